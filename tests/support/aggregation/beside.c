// SPDX-License-Identifier: BSD-2-Clause
/*
 * Workers and an aggregator, the very code of both, around a switch whose links have rates and
 * finite queues, in virtual time; beside the first worker a sender by RFC 5681, with selective
 * acknowledgements and one for every two packets.
 */
#include <stdlib.h>
#include <string.h>
#include "beside.h"
#include "parties.h"

#define HEADERS 42 /* Ethernet, IPv4 and UDP */
#define RENO_FRAME 1514
#define RENO_ACK 66
#define ROOM 4096 /* frames in a link at most; a power of two */
#define RENO_WINDOW 65536
#define SUSPECT 3 /* later packets acknowledged that make one lost */

struct frame {
	uint64_t at_ns; /* arrival */
	uint32_t bytes, length; /* on the wire; of the packet */
	uint64_t order; /* of reno's; 0 for the job's */
	struct agg_packet *packet;
};

struct link {
	struct frame frames[ROOM];
	uint32_t first, count;
	uint64_t free_ns; /* when what is queued has left */
	uint64_t last_ns; /* arrival of the last frame */
};

struct reno {
	double cwnd, ssthresh;
	uint64_t next, flying, recovery, scanned, highest, heard_ns;
	bool acknowledged[RENO_WINDOW];
	uint32_t owed; /* packets that the receiver hasn't acknowledged */
	uint64_t owed_orders[2];
};

struct world {
	const struct beside *beside;
	struct beside_report *report;
	struct link *up, *down;
	struct parties parties;
	uint64_t *looks_ns; /* when a worker looks at what came, UINT64_MAX: nothing came */
	struct frame *came; /* at each worker, ROOM of them */
	uint32_t *waiting;
	struct reno reno;
	uint64_t now_ns, random;
};

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static bool send_over(struct world *w, struct link *link, uint32_t bytes, uint64_t order,
		      const struct agg_packet *packet, uint32_t length)
{
	double ns_per_byte = 8e9 / w->beside->rate;
	uint64_t begin = later(link->free_ns, w->now_ns);
	struct frame *frame;

	if ((begin - w->now_ns) / ns_per_byte + bytes > w->beside->queue || link->count == ROOM)
		return false;
	link->free_ns = begin + (uint64_t)(bytes * ns_per_byte);
	frame = &link->frames[(link->first + link->count++) % ROOM];
	/* Hosts take their time, which keeps flows from falling into step with a full queue. */
	link->last_ns = later(link->free_ns + w->beside->delay_ns +
				      (uint64_t)(w->beside->jitter_ns * draw_share(&w->random)),
			      link->last_ns);
	*frame = (struct frame){link->last_ns, bytes, length, order, NULL};
	if (packet) {
		frame->packet = malloc(sizeof(*packet));
		memcpy(frame->packet, packet, length);
	}
	return true;
}

static void carry_down(void *network, uint32_t rank, const struct agg_packet *packet,
		       uint32_t length)
{
	struct world *w = network;

	send_over(w, &w->down[rank], length + HEADERS, 0, packet, length);
}

static void carry_up(void *network, uint32_t rank, const struct agg_packet *packet, uint32_t length)
{
	struct world *w = network;

	send_over(w, &w->up[rank], length + HEADERS, 0, packet, length);
}

static void let_send(struct world *w, uint32_t rank)
{
	parties_let_send(&w->parties, rank, w->now_ns, carry_up, w);
}

static void reno_send(struct world *w)
{
	struct reno *r = &w->reno;

	while (r->flying < (uint64_t)r->cwnd) {
		r->acknowledged[r->next % RENO_WINDOW] = false;
		r->flying++;
		send_over(w, &w->up[0], RENO_FRAME, r->next++, NULL, 0);
	}
}

static void reno_acknowledged(struct world *w, uint64_t order)
{
	struct reno *r = &w->reno;

	if (order < r->scanned || r->acknowledged[order % RENO_WINDOW])
		return;
	r->acknowledged[order % RENO_WINDOW] = true;
	r->flying--;
	r->highest = order > r->highest ? order : r->highest;
	r->heard_ns = w->now_ns;
	r->cwnd += r->cwnd < r->ssthresh ? 1 : 1 / r->cwnd;
	for (; r->scanned + SUSPECT <= r->highest; r->scanned++) {
		if (r->acknowledged[r->scanned % RENO_WINDOW])
			continue;
		r->flying--;
		if (r->scanned < r->recovery)
			continue;
		r->ssthresh = r->cwnd / 2 > 2 ? r->cwnd / 2 : 2;
		r->cwnd = r->ssthresh;
		r->recovery = r->next;
		w->report->reno_cuts++;
	}
}

/* Nothing for 200 ms: all that was sent is lost. */
static void reno_timer(struct world *w)
{
	struct reno *r = &w->reno;

	if (!w->beside->reno || w->now_ns < r->heard_ns + 200000000)
		return;
	r->heard_ns = w->now_ns;
	r->scanned = r->next;
	r->flying = 0;
	r->ssthresh = r->cwnd / 2 > 2 ? r->cwnd / 2 : 2;
	r->cwnd = 1;
	r->recovery = r->next;
	reno_send(w);
}

/* The receiver acknowledges every second packet, and at once what leaves a hole. */
static void at_reno_receiver(struct world *w, uint64_t order)
{
	struct reno *r = &w->reno;
	uint64_t before = r->owed ? r->owed_orders[0] : 0;

	if (!r->owed) {
		r->owed_orders[0] = order;
		r->owed = 1;
		return;
	}
	r->owed = 0;
	/* One acknowledgement for both; the second rides on the first's frame. */
	send_over(w, &w->down[0], RENO_ACK, before, NULL, 0);
	send_over(w, &w->down[0], 0, order, NULL, 0);
}

static void arrive_above(struct world *w, uint32_t rank, struct frame *frame)
{
	bool counts = w->now_ns >= w->beside->from_ns;

	if (frame->order) {
		w->report->reno_bytes += counts ? frame->bytes : 0;
		at_reno_receiver(w, frame->order);
		return;
	}
	if (!rank && frame->packet->header.count && counts)
		w->report->worker_bytes += frame->bytes;
	parties_take(&w->parties, frame->packet, carry_down, w);
	free(frame->packet);
}

static void arrive_below(struct world *w, uint32_t rank, struct frame *frame)
{
	uint64_t wake = w->beside->wake_ns;

	if (frame->order) {
		reno_acknowledged(w, frame->order);
		reno_send(w);
		return;
	}
	w->came[rank * ROOM + w->waiting[rank]++] = *frame;
	if (w->looks_ns[rank] == UINT64_MAX)
		w->looks_ns[rank] = w->now_ns + (uint64_t)(wake * 2 * draw_share(&w->random));
}

static void look(struct world *w, uint32_t rank, const struct worker_request *requests)
{
	uint32_t i;

	for (i = 0; i < w->waiting[rank]; i++) {
		struct frame *frame = &w->came[rank * ROOM + i];

		worker_receive(w->parties.workers[rank], w->now_ns, frame->packet, frame->length);
		free(frame->packet);
		if (worker_state(w->parties.workers[rank]) == WORKER_DONE) {
			worker_begin(w->parties.workers[rank], &requests[rank], w->now_ns);
			w->report->collectives += !rank;
		}
	}
	w->waiting[rank] = 0;
	w->looks_ns[rank] = UINT64_MAX;
	let_send(w, rank);
}

static bool is_first(struct link *link, uint64_t *first)
{
	if (!link->count || link->frames[link->first].at_ns >= *first)
		return false;
	*first = link->frames[link->first].at_ns;
	return true;
}

static struct frame take(struct link *link)
{
	struct frame frame = link->frames[link->first];

	link->first = (link->first + 1) % ROOM;
	link->count--;
	return frame;
}

enum what { NOTHING, ABOVE, BELOW, LOOK, TIMER };

static enum what find_next(struct world *w, uint64_t *first, uint32_t *rank)
{
	enum what what = NOTHING;
	uint32_t i;

	for (i = 0; i < w->parties.count; i++) {
		uint64_t timer = worker_wakes_at(w->parties.workers[i]);

		if (is_first(&w->up[i], first)) {
			what = ABOVE;
			*rank = i;
		}
		if (is_first(&w->down[i], first)) {
			what = BELOW;
			*rank = i;
		}
		if (w->looks_ns[i] < *first) {
			*first = w->looks_ns[i];
			what = LOOK;
			*rank = i;
		}
		if (timer < *first) {
			*first = timer;
			what = TIMER;
			*rank = i;
		}
	}
	return what;
}

static void step(struct world *w, const struct worker_request *requests)
{
	uint64_t first = w->now_ns + 50000000;
	uint32_t rank = 0;
	struct frame frame;
	enum what what = find_next(w, &first, &rank);

	w->now_ns = later(first, w->now_ns);
	if (what == ABOVE) {
		frame = take(&w->up[rank]);
		arrive_above(w, rank, &frame);
	} else if (what == BELOW) {
		frame = take(&w->down[rank]);
		arrive_below(w, rank, &frame);
	} else if (what == LOOK) {
		look(w, rank, requests);
	} else if (what == TIMER) {
		let_send(w, rank);
	}
	reno_timer(w);
}

static void make_world(struct world *w)
{
	const struct beside *b = w->beside;
	uint32_t i;

	parties_open(&w->parties, b->workers, b->slots, b->values, 10000);
	w->up = calloc(b->workers, sizeof(*w->up));
	w->down = calloc(b->workers, sizeof(*w->down));
	w->looks_ns = calloc(b->workers, sizeof(*w->looks_ns));
	w->waiting = calloc(b->workers, sizeof(*w->waiting));
	w->came = calloc((size_t)b->workers * ROOM, sizeof(*w->came));
	for (i = 0; i < b->workers; i++)
		w->looks_ns[i] = UINT64_MAX;
	w->reno.cwnd = 10;
	w->reno.ssthresh = 1e9;
	w->reno.next = w->reno.scanned = 1;
}

static void end_link(struct link *link)
{
	while (link->count)
		free(take(link).packet);
}

/* requests: one for each worker, which it does over and over. */
void beside_run(const struct beside *beside, const struct worker_request *requests,
		struct beside_report *report)
{
	struct world *w = calloc(1, sizeof(*w));
	struct worker_counters counters;
	uint32_t i, j;

	memset(report, 0, sizeof(*report));
	w->beside = beside;
	w->report = report;
	w->random = beside->seed;
	make_world(w);
	for (i = 0; i < beside->workers; i++) {
		worker_begin(w->parties.workers[i], &requests[i], 0);
		let_send(w, i);
	}
	if (beside->reno)
		reno_send(w);
	while (w->now_ns < beside->seconds_ns)
		step(w, requests);
	worker_counters(w->parties.workers[0], &counters);
	report->worker_cuts = counters.windows_cut;
	for (i = 0; i < beside->workers; i++) {
		end_link(&w->up[i]);
		end_link(&w->down[i]);
		for (j = 0; j < w->waiting[i]; j++)
			free(w->came[i * ROOM + j].packet);
	}
	parties_close(&w->parties);
	free(w->up);
	free(w->down);
	free(w->looks_ns);
	free(w->waiting);
	free(w->came);
	free(w);
}
