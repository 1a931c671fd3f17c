/* SPDX-License-Identifier: BSD-2-Clause */
/* What a worker's files share: its slots, and what is below protocol.c, the lowest first. */
#ifndef INTERNAL_H
#define INTERNAL_H

#include "worker.h"

#define INITIAL_WINDOW 16 /* packets, as it begins a collective */
#define LATER_ANSWERS 3 /* that make a packet without one suspect, at first */
#define MOST_LATER_ANSWERS 32
#define MAX_RTO_NS 100000000ull /* polls are small, and peers may take long */
#define FIRST_RTO_NS 50000000ull
#define GROWTH 0.25 /* packets in an RTT */
#define PAIRS_FROM 8 /* packets of window, from which on new ones go out in pairs */
#define TRAINS_OF_WINDOW 3 /* at least */
#define DEAF_POLLS 3
#define USUAL_SLOTS 256 /* 0.4 MB on the way at an MTU of 1500 */
#define ROUNDS_OF_SLOT 24
#define SLOTS_MAX 65536 /* that a packet can name */
#define MOST_SHORT_WORKERS 16 /* whose sums leave 10 bits to a value of 16 */
#define ORDERS 4096 /* a power of two, more than packets in flight */

enum slot_state { SLOT_IDLE, SLOT_READY, SLOT_FLYING };

struct slot {
	enum slot_state state;
	uint32_t round;
	uint32_t chunk; /* of the round; AGG_END in one that only agrees on the first chunk */
	uint32_t own; /* the next chunk in which we have something; AGG_END */
	uint32_t length; /* values that we send in this round */
	int16_t exponent; /* agreed, of `chunk` */
	int16_t own_exponent; /* ours, of `own` */
	bool looked; /* `own` is known: the tensor is searched as packets go out */
	bool urgent, resend; /* waits in the urgent queue; with its values */
	bool held; /* the aggregator said that it has ours */
	bool repeated; /* its values were sent more than once: no sample of the RTT (Karn) */
	uint32_t polls; /* since it was sent */
	uint64_t order, sent_ns, wakes_ns;
};

struct queue {
	uint32_t *slots, first, count;
};

struct worker {
	struct worker_config config;
	struct worker_request request;
	struct worker_counters counters;
	enum worker_state state;
	struct slot *slots;
	struct queue ready, urgent;
	uint32_t begun; /* collectives, modulo 2^32 */
	uint32_t operation, chunks, active; /* active: slots not done yet */
	uint32_t searched; /* chunks, for what isn't zero */
	uint32_t stride; /* slots in use: a slot's chunks are so far apart */
	int32_t bits; /* of a quantised value, without sign */
	bool is_short; /* these travel as 16 bits */
	uint32_t values; /* of a chunk */
	bool rounds_to_agree; /* begin with a round that carries exponents and chunks alone */
	bool nonfinite;
	double cwnd, ssthresh; /* packets */
	uint32_t flying;
	bool second; /* the next new packet is the second of a pair */
	uint64_t order, answered, scanned, recovery; /* numbers of packets sent */
	uint32_t
		later; /* answers that make a packet without one suspect; more after false alarms */
	uint32_t by_order[ORDERS];
	double srtt_ns, rttvar_ns;
	uint64_t wakes_ns, heard_ns, progress_ns;
	struct ends *ends; /* sockets.c's */
};

/* tensor.c */
bool has_exponents(const struct worker *w);
uint32_t length_of(const struct worker *w, uint32_t chunk); /* values of a chunk */
uint32_t words_of(const struct worker *w, uint32_t length); /* of so many values, in a packet */
const void *values_of(const struct worker *w, uint32_t chunk);
void find_own(struct worker *w, struct slot *slot, uint64_t chunk);

/* queues.c */
void put_ready(struct worker *w, uint32_t index);
uint32_t take_ready(struct worker *w);
void make_urgent(struct worker *w, uint32_t index, bool resend);
uint32_t take_urgent(struct worker *w);

/* window.c */
void sample_rtt(struct worker *w, double rtt);
void set_timer(struct worker *w, struct slot *slot, uint64_t now);
void note_loss(struct worker *w, const struct slot *slot);
void run_timers(struct worker *w, uint64_t now);
void look_for_holes(struct worker *w);
void grow_window(struct worker *w);
uint32_t worker_train(const struct worker *w);

#endif
