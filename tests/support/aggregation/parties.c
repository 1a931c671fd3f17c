// SPDX-License-Identifier: GPL-2.0-only
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

void parties_open(struct parties *p, uint32_t workers, uint32_t slots, uint32_t values,
		  uint32_t min_rto_us)
{
	uint32_t i;

	p->job = (struct agg_job){
		.key = 0x5eed5eed5eed5eedull,
		.generation = 1,
		.slots = slots,
		.values = values,
		.workers = workers,
		.everyone = workers == 64 ? ~0ull : (1ull << workers) - 1,
	};
	p->entries = calloc(2 * slots, sizeof(*p->entries));
	for (i = 0; i < 2 * slots; i++) {
		p->entries[i].round = (i & 1) - 2;
		p->entries[i].final = 1;
	}
	p->workers = calloc(workers, sizeof(*p->workers));
	for (i = 0; i < workers; i++) {
		struct worker_config config = {
			.key = p->job.key,
			.generation = 1,
			.slots = slots,
			.values = values,
			.workers = workers,
			.rank = i,
			.sender = i,
			.min_rto_us = min_rto_us,
		};

		p->workers[i] = worker_open(&config);
	}
}

void parties_close(struct parties *p)
{
	uint32_t i;

	for (i = 0; i < p->job.workers; i++)
		worker_close(p->workers[i]);
	free(p->workers);
	free(p->entries);
}

static void answer(struct agg_packet *packet, uint32_t to, carry_fn *carry, void *network)
{
	packet->header.check = agg_check(packet, packet->header.count);
	carry(network, to, packet, sizeof(packet->header) + packet->header.count * 4);
}

void parties_take(struct parties *p, struct agg_packet *packet, carry_fn *carry, void *network)
{
	const struct agg_header *header = &packet->header;
	uint32_t from = header->worker, i;

	switch (agg_take(&p->job, &p->entries[header->slot * 2 + (header->round & 1)], packet)) {
	case AGG_REPLY:
		answer(packet, from, carry, network);
		break;
	case AGG_BROADCAST:
		for (i = 0; i < p->job.workers; i++)
			answer(packet, i, carry, network);
		break;
	default:
		break;
	}
}

void parties_let_send(struct parties *p, uint32_t rank, uint64_t now_ns, carry_fn *carry,
		      void *network)
{
	struct agg_packet packet;
	uint32_t length;

	while ((length = worker_send(p->workers[rank], now_ns, &packet)))
		carry(network, rank, &packet, length);
}
