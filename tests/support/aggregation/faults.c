// SPDX-License-Identifier: BSD-2-Clause
/*
 * Workers and an aggregator, the very code of both, over a network that loses, repeats, delays,
 * damages and forges packets, in virtual time. Deterministic by its seed.
 */
#include <stdlib.h>
#include <string.h>
#include "faults.h"
#include "parties.h"

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
	struct parties parties;
};

static uint64_t draw(struct network *n)
{
	return draw_bits(&n->random);
}

static bool chance(struct network *n, double share)
{
	return draw_share(&n->random) < share;
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
		packet.header.key = n->parties.aggregator.job.key; /* every packet shows it */
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

static void carry_answer(void *network, uint32_t rank, const struct agg_packet *packet,
			 uint32_t length)
{
	transmit(network, rank, packet, length);
}

static void carry_up(void *network, uint32_t rank, const struct agg_packet *packet, uint32_t length)
{
	struct network *n = network;

	transmit(n, n->faults->workers, packet, length);
}

static void at_aggregator(struct network *n, struct event *event)
{
	if (parties_accept(&n->parties, &event->packet, event->length))
		parties_take(&n->parties, &event->packet, carry_answer, n);
	else
		n->report->refused++;
}

static void let_send(struct network *n, uint32_t rank)
{
	parties_let_send(&n->parties, rank, n->now_ns, carry_up, n);
}

/* The next timer of a worker; its rank in *rank. */
static uint64_t next_timer(const struct network *n, uint32_t *rank)
{
	uint64_t first = UINT64_MAX, at;
	uint32_t i;

	for (i = 0; i < n->faults->workers; i++) {
		at = worker_wakes_at(n->parties.workers[i]);
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
		if (worker_state(n->parties.workers[i]) == WORKER_RUNNING)
			return false;
	return true;
}

static void run_once(struct network *n, const struct worker_request *requests)
{
	uint32_t i, rank = 0;

	for (i = 0; i < n->faults->workers; i++) {
		worker_begin(n->parties.workers[i], &requests[i], n->now_ns);
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
			worker_receive(n->parties.workers[event->to], n->now_ns, &event->packet,
				       event->length);
			let_send(n, event->to);
		}
		free(event);
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
	parties_open(&n.parties, faults->workers, faults->slots, faults->values, 1000);
	for (i = 0; i < collectives; i++) {
		run_once(&n, requests + i * faults->workers);
		for (rank = 0; rank < faults->workers; rank++)
			states[i * faults->workers + rank] = worker_state(n.parties.workers[rank]);
	}
	report->time_ns = n.now_ns;
	while (n.count)
		free(take_first(&n));
	parties_close(&n.parties);
	free(n.heap);
}
