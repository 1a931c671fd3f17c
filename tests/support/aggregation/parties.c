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

static bool has_parent(const struct parties *p, uint32_t which)
{
	return which != p->aggregators - 1;
}

static void open_aggregator(struct parties *p, uint32_t which, uint32_t slots, uint32_t values)
{
	struct aggregator *a = &p->at[which];
	uint32_t workers = p->count / p->racks, i;

	if (p->racks > 1 && !has_parent(p, which))
		workers = p->racks;
	a->job = (struct agg_job){
		.secret = {{0x5ec2e75ec2e7ull + which, 7}},
		.key = 0x5eed5eed5eed5eedull + which,
		.generation = 1 + which,
		.slots = slots,
		.values = values,
		.workers = workers,
		.everyone = workers == 64 ? ~0ull : (1ull << workers) - 1,
		.parent = has_parent(p, which),
	};
	agg_expand(&a->job.secret);
	a->entries = calloc(2 * slots, sizeof(*a->entries));
	for (i = 0; i < 2 * slots; i++) {
		a->entries[i].round = (i & 1) - 2;
		a->entries[i].final = 1;
	}
}

void parties_open(struct parties *p, uint32_t workers, uint32_t racks, uint32_t slots,
		  uint32_t values, uint32_t min_rto_us)
{
	uint32_t i;

	p->count = workers;
	p->racks = racks;
	p->aggregators = racks > 1 ? racks + 1 : 1;
	p->at = calloc(p->aggregators, sizeof(*p->at));
	for (i = 0; i < p->aggregators; i++)
		open_aggregator(p, i, slots, values);
	for (i = 0; racks > 1 && i < racks; i++) {
		p->at[i].parent.secret = p->at[racks].job.secret;
		p->at[i].parent.key = p->at[racks].job.key;
		p->at[i].parent.generation = p->at[racks].job.generation;
		p->at[i].parent.job = racks;
		p->at[i].parent.worker = i;
	}
	p->workers = calloc(workers, sizeof(*p->workers));
	for (i = 0; i < workers; i++) {
		uint32_t rack = i / (workers / racks);
		struct worker_config config = {
			.secret = p->at[rack].job.secret,
			.key = p->at[rack].job.key,
			.job = rack,
			.generation = p->at[rack].job.generation,
			.slots = slots,
			.values = values,
			.workers = workers,
			.rank = i,
			.sender = i % (workers / racks),
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
	for (i = 0; i < p->aggregators; i++)
		free(p->at[i].entries);
	free(p->at);
}

uint32_t parties_above(const struct parties *p, uint32_t rank)
{
	return p->count + rank / (p->count / p->racks);
}

bool parties_accept(const struct parties *p, uint32_t party, const struct agg_packet *packet,
		    uint32_t length)
{
	uint32_t which = (party - p->count) % p->aggregators;
	const struct agg_header *header = &packet->header;
	const struct aggregator *a = &p->at[which];
	const struct agg_secret *secret = &a->job.secret;

	if (length < sizeof(*header) || header->magic != AGG_MAGIC)
		return false;
	if (party < p->count + p->aggregators) {
		if (header->key != a->job.key || header->generation != a->job.generation ||
		    header->worker >= a->job.workers || !agg_well_formed(&a->job, header, length))
			return false;
	} else if (header->key != a->parent.key || header->generation != a->parent.generation ||
		   !agg_is_for(header, a->parent.worker) || header->slot >= a->job.slots ||
		   header->count % 4 || header->count > a->job.values ||
		   length != sizeof(*header) + header->count * 4) {
		return false;
	} else {
		secret = &a->parent.secret;
	}
	return agg_check(secret, packet, header->count) == header->check;
}

static void answer(const struct agg_secret *secret, struct agg_packet *packet, uint32_t to,
		   carry_fn *carry, void *network)
{
	packet->header.check = agg_check(secret, packet, packet->header.count);
	carry(network, to, packet, sizeof(packet->header) + packet->header.count * 4);
}

void parties_take(struct parties *p, uint32_t party, struct agg_packet *packet, carry_fn *carry,
		  void *network)
{
	uint32_t which = (party - p->count) % p->aggregators, below, i;
	struct agg_header *header = &packet->header;
	struct aggregator *a = &p->at[which];
	struct agg_entry *entry = &a->entries[header->slot * 2 + (header->round & 1)];
	enum agg_action action;

	if (party < p->count + p->aggregators)
		action = agg_take(&a->job, entry, packet);
	else
		action = agg_take_total(&a->job, entry, packet);
	if (action == AGG_UP) {
		agg_sign_up(&a->parent, header);
		answer(&a->parent.secret, packet, p->count + p->racks, carry, network);
		return;
	}
	/* The first of those below it. */
	below = has_parent(p, which) ? which * (p->count / p->racks) : 0;
	if (p->racks > 1 && !has_parent(p, which))
		below = p->count + p->aggregators;
	agg_sign_down(&a->job, which, header);
	if (action == AGG_REPLY && header->worker < a->job.workers)
		answer(&a->job.secret, packet, below + header->worker, carry, network);
	for (i = 0; action == AGG_BROADCAST && i < a->job.workers; i++)
		answer(&a->job.secret, packet, below + i, carry, network);
}

void parties_let_send(struct parties *p, uint32_t rank, uint64_t now_ns, carry_fn *carry,
		      void *network)
{
	struct agg_packet packet;
	uint32_t length;

	while ((length = worker_send(p->workers[rank], now_ns, &packet)))
		carry(network, rank, &packet, length);
}
