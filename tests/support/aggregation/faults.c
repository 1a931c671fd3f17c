// SPDX-License-Identifier: BSD-2-Clause
/*
 * Workers and an aggregator, the very code of both, over a network that loses, repeats, delays,
 * damages and forges packets, in virtual time. Deterministic by its seed.
 */
#include <stdlib.h>
#include <string.h>
#include "faults.h"

struct event {
	uint64_t at_ns;
	uint32_t to, length; /* to: a rank; as many as there are: the aggregator */
	struct agg_packet packet;
};

struct network {
	const struct faults *faults;
	struct faults_report *report;
	struct event **heap;
	uint64_t count, room, random, now_ns;
	struct agg_packet old[64]; /* seen on the way, to be sent again by somebody else */
	uint32_t old_length[64];
	struct agg_job job; /* as the aggregator knows it */
	struct agg_entry *entries; /* two for each slot */
	struct worker **workers;
};

/* The next of a sequence of random bits (SplitMix64: Steele, Lea, Flood, OOPSLA'14). */
static uint64_t draw(struct network *n)
{
	uint64_t x = n->random += 0x9e3779b97f4a7c15ull;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

static bool chance(struct network *n, double share)
{
	return (draw(n) >> 11) * 0x1p-53 < share;
}

static bool earlier(const struct event *a, const struct event *b)
{
	return a->at_ns < b->at_ns;
}

static void insert(struct network *n, struct event *event)
{
	uint64_t i = n->count++;

	if (n->count > n->room) {
		n->room = n->room ? n->room * 2 : 1024;
		n->heap = realloc(n->heap, n->room * sizeof(*n->heap));
	}
	for (; i && earlier(event, n->heap[(i - 1) / 2]); i = (i - 1) / 2)
		n->heap[i] = n->heap[(i - 1) / 2];
	n->heap[i] = event;
}

static struct event *take_first(struct network *n)
{
	struct event *first = n->heap[0], *last = n->heap[--n->count];
	uint64_t i = 0, child;

	while ((child = 2 * i + 1) < n->count) {
		if (child + 1 < n->count && earlier(n->heap[child + 1], n->heap[child]))
			child++;
		if (!earlier(n->heap[child], last))
			break;
		n->heap[i] = n->heap[child];
		i = child;
	}
	n->heap[i] = last;
	return first;
}

static void deliver(struct network *n, uint32_t to, const struct agg_packet *packet,
		    uint32_t length)
{
	struct event *event = malloc(sizeof(*event));

	event->to = to;
	event->length = length;
	memcpy(&event->packet, packet, length);
	event->at_ns = n->now_ns + 50000 + draw(n) % 20000;
	if (chance(n, n->faults->delay))
		event->at_ns += draw(n) % 3000000;
	if (chance(n, n->faults->corrupt)) {
		/* Several bits, or a cut; the length in the header stays what it was. */
		uint64_t flips = 1 + draw(n) % 8;

		while (flips--)
			((uint8_t *)&event->packet)[draw(n) % length] ^= 1 << draw(n) % 8;
		if (chance(n, 0.1))
			event->length = draw(n) % (length + 1);
		n->report->corrupted++;
	}
	insert(n, event);
}

/* What an outsider sends: an old packet, or one that is made up. */
static void forge(struct network *n, uint32_t to)
{
	uint64_t which = draw(n) % 64;
	struct agg_packet packet = n->old[which];
	uint32_t length = n->old_length[which];
	struct agg_secret guessed = {{0, 7}};

	if (length && chance(n, 0.5)) {
		deliver(n, to, &packet, length);
	} else {
		packet.header.magic = AGG_MAGIC;
		packet.header.type = 1 + draw(n) % 8;
		packet.header.flags = 0;
		packet.header.worker = draw(n) % n->faults->workers;
		packet.header.key = n->job.key; /* every packet shows it */
		packet.header.job = 0;
		packet.header.generation = 1;
		packet.header.round = draw(n) % 8;
		packet.header.slot = draw(n) % n->faults->slots;
		packet.header.count = 4;
		guessed.word[0] = draw(n); /* that is what it can't know */
		packet.header.check = agg_check(&guessed, &packet, 4);
		deliver(n, to, &packet, sizeof(packet.header) + 16);
	}
	n->report->forged++;
}

static void transmit(struct network *n, uint32_t to, const struct agg_packet *packet,
		     uint32_t length)
{
	uint64_t slot = draw(n) % 64;

	n->report->packets++;
	if (chance(n, n->faults->forge)) {
		forge(n, to);
		memcpy(&n->old[slot], packet, length);
		n->old_length[slot] = length;
	}
	if (chance(n, n->faults->lose)) {
		n->report->lost++;
		return;
	}
	deliver(n, to, packet, length);
	if (chance(n, n->faults->repeat)) {
		n->report->repeated++;
		deliver(n, to, packet, length);
	}
}

/* Whether the aggregator has use for what may be a packet. */
static bool is_accepted(const struct network *n, const struct agg_packet *packet, uint32_t length)
{
	const struct agg_header *header = &packet->header;

	return length >= sizeof(*header) && header->magic == AGG_MAGIC &&
	       header->key == n->job.key && header->generation == n->job.generation &&
	       header->worker < n->job.workers && agg_well_formed(&n->job, header, length) &&
	       agg_check(&n->job.secret, packet, header->count) == header->check;
}

static void answer(struct network *n, struct agg_packet *packet, uint32_t to)
{
	packet->header.check = agg_check(&n->job.secret, packet, packet->header.count);
	transmit(n, to, packet, sizeof(packet->header) + packet->header.count * 4);
}

static void at_aggregator(struct network *n, struct event *event)
{
	struct agg_packet *packet = &event->packet;
	struct agg_header *header = &packet->header;
	enum agg_action action;
	uint32_t i;

	if (!is_accepted(n, packet, event->length)) {
		n->report->refused++;
		return;
	}
	action = agg_take(&n->job, &n->entries[header->slot * 2 + (header->round & 1)], packet);
	if (action == AGG_REPLY)
		answer(n, packet, header->worker);
	for (i = 0; action == AGG_BROADCAST && i < n->job.workers; i++)
		answer(n, packet, i);
}

static void let_send(struct network *n, uint32_t rank)
{
	struct agg_packet packet;
	uint32_t length;

	while ((length = worker_send(n->workers[rank], n->now_ns, &packet)))
		transmit(n, n->faults->workers, &packet, length);
}

/* The next timer of a worker; its rank in *rank. */
static uint64_t next_timer(const struct network *n, uint32_t *rank)
{
	uint64_t first = UINT64_MAX, at;
	uint32_t i;

	for (i = 0; i < n->faults->workers; i++) {
		at = worker_wakes_at(n->workers[i]);
		if (at < first) {
			first = at;
			*rank = i;
		}
	}
	return first;
}

static bool all_done(const struct network *n)
{
	uint32_t i;

	for (i = 0; i < n->faults->workers; i++)
		if (worker_state(n->workers[i]) == WORKER_RUNNING)
			return false;
	return true;
}

static void run_once(struct network *n, const struct worker_request *requests)
{
	uint32_t i, rank = 0;

	for (i = 0; i < n->faults->workers; i++) {
		worker_begin(n->workers[i], &requests[i], n->now_ns);
		let_send(n, i);
	}
	while (!all_done(n)) {
		uint64_t timer = next_timer(n, &rank);
		struct event *event;

		if (!n->count || timer < n->heap[0]->at_ns) {
			if (timer == UINT64_MAX || timer > n->faults->limit_ns)
				return; /* nothing will ever happen */
			n->now_ns = timer > n->now_ns ? timer : n->now_ns;
			let_send(n, rank);
			continue;
		}
		event = take_first(n);
		n->now_ns = event->at_ns;
		if (event->to == n->faults->workers) {
			at_aggregator(n, event);
		} else {
			worker_receive(n->workers[event->to], n->now_ns, &event->packet,
				       event->length);
			let_send(n, event->to);
		}
		free(event);
	}
}

static void open_job(struct network *n)
{
	const struct faults *f = n->faults;
	uint32_t i;

	n->job = (struct agg_job){
		.secret = {{0x5ec2e75ec2e7ull, 7}},
		.key = 0x5eed5eed5eed5eedull,
		.generation = 1,
		.slots = f->slots,
		.values = f->values,
		.workers = f->workers,
		.everyone = f->workers == 64 ? ~0ull : (1ull << f->workers) - 1,
	};
	agg_expand(&n->job.secret);
	n->entries = calloc(2 * f->slots, sizeof(*n->entries));
	for (i = 0; i < 2 * f->slots; i++) {
		n->entries[i].round = (i & 1) - 2;
		n->entries[i].final = 1;
	}
	n->workers = calloc(f->workers, sizeof(*n->workers));
	for (i = 0; i < f->workers; i++) {
		struct worker_config config = {
			.secret = n->job.secret,
			.key = n->job.key,
			.generation = n->job.generation,
			.slots = f->slots,
			.values = f->values,
			.workers = f->workers,
			.rank = i,
			.min_rto_us = 1000,
		};

		n->workers[i] = worker_open(&config);
	}
}

/* Run collectives one after the other, late packets of one arriving in the next.
 *
 * requests: `workers` for each. states: as many, of what came of them. */
void faults_run(const struct faults *faults, const struct worker_request *requests,
		uint32_t collectives, uint32_t *states, struct faults_report *report)
{
	struct network n = {.faults = faults, .report = report, .random = faults->seed};
	uint32_t i, rank = 0;

	memset(report, 0, sizeof(*report));
	open_job(&n);
	for (i = 0; i < collectives; i++) {
		run_once(&n, requests + i * faults->workers);
		for (rank = 0; rank < faults->workers; rank++)
			states[i * faults->workers + rank] = worker_state(n.workers[rank]);
	}
	report->time_ns = n.now_ns;
	while (n.count)
		free(take_first(&n));
	for (i = 0; i < faults->workers; i++)
		worker_close(n.workers[i]);
	free(n.workers);
	free(n.entries);
	free(n.heap);
}
