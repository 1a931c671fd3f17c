// SPDX-License-Identifier: BSD-2-Clause
#include <stdlib.h>
#include "parties.h"

uint64_t draw_bits(uint64_t *state)
{
	uint64_t x = *state += 0x9e3779b97f4a7c15ull;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

double draw_share(uint64_t *state)
{
	return (draw_bits(state) >> 11) * 0x1p-53;
}

static void open_aggregator(struct parties *p, uint32_t slots, uint32_t values)
{
	struct aggregator *a = &p->aggregator;
	uint32_t i;

	a->job = (struct agg_job){
		.secret = {{0x5ec2e75ec2e7ull, 7}},
		.key = 0x5eed5eed5eed5eedull,
		.generation = 1,
		.slots = slots,
		.values = values,
		.workers = p->count,
		.everyone = p->count == 64 ? ~0ull : (1ull << p->count) - 1,
	};
	agg_expand(&a->job.secret);
	a->entries = calloc(2 * slots, sizeof(*a->entries));
	for (i = 0; i < 2 * slots; i++) {
		a->entries[i].round = (i & 1) - 2;
		a->entries[i].final = 1;
	}
}

void parties_open(struct parties *p, uint32_t workers, uint32_t slots, uint32_t values,
		  uint32_t min_rto_us)
{
	uint32_t i;

	p->count = workers;
	open_aggregator(p, slots, values);
	p->workers = calloc(workers, sizeof(*p->workers));
	for (i = 0; i < workers; i++) {
		struct worker_config config = {
			.secret = p->aggregator.job.secret,
			.key = p->aggregator.job.key,
			.generation = p->aggregator.job.generation,
			.slots = slots,
			.values = values,
			.workers = workers,
			.rank = i,
			.min_rto_us = min_rto_us,
		};

		p->workers[i] = worker_open(&config);
	}
}

void parties_close(struct parties *p)
{
	uint32_t i;

	for (i = 0; i < p->count; i++)
		worker_close(p->workers[i]);
	free(p->workers);
	free(p->aggregator.entries);
}

bool parties_accept(const struct parties *p, const struct agg_packet *packet, uint32_t length)
{
	const struct agg_header *header = &packet->header;
	const struct agg_job *job = &p->aggregator.job;

	return length >= sizeof(*header) && header->magic == AGG_MAGIC && header->key == job->key &&
	       header->generation == job->generation && header->worker < job->workers &&
	       agg_well_formed(job, header, length) &&
	       agg_check(&job->secret, packet, header->count) == header->check;
}

static void answer(const struct agg_secret *secret, struct agg_packet *packet, uint32_t to,
		   carry_fn *carry, void *network)
{
	packet->header.check = agg_check(secret, packet, packet->header.count);
	carry(network, to, packet, sizeof(packet->header) + packet->header.count * 4);
}

void parties_take(struct parties *p, struct agg_packet *packet, carry_fn *carry, void *network)
{
	struct agg_header *header = &packet->header;
	struct aggregator *a = &p->aggregator;
	uint32_t i;
	struct agg_entry *entry = &a->entries[header->slot * 2 + (header->round & 1)];
	enum agg_action action = agg_take(&a->job, entry, packet);

	if (action == AGG_REPLY)
		answer(&a->job.secret, packet, header->worker, carry, network);
	for (i = 0; action == AGG_BROADCAST && i < a->job.workers; i++)
		answer(&a->job.secret, packet, i, carry, network);
}

void parties_let_send(struct parties *p, uint32_t rank, uint64_t now_ns, carry_fn *carry,
		      void *network)
{
	struct agg_packet packet;
	uint32_t length;

	while ((length = worker_send(p->workers[rank], now_ns, &packet)))
		carry(network, rank, &packet, length);
}
