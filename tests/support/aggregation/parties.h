/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A job's workers and its aggregator, the very code of both; what is between them is the caller's.
 */
#ifndef PARTIES_H
#define PARTIES_H

#include "worker.h"

struct aggregator {
	struct agg_job job;
	struct agg_entry *entries; /* two for each slot */
};

struct parties {
	uint32_t count; /* workers */
	struct aggregator aggregator;
	struct worker **workers;
};

/* Takes a packet to or from the worker of that rank; the packet is the caller's again
 * afterwards. */
typedef void carry_fn(void *network, uint32_t rank, const struct agg_packet *packet,
		      uint32_t length);

/* The next of a sequence of random bits (SplitMix64: Steele, Lea, Flood, OOPSLA'14). */
uint64_t draw_bits(uint64_t *state);
/* The same as a number from 0 up to, but without, 1. */
double draw_share(uint64_t *state);

void parties_open(struct parties *p, uint32_t workers, uint32_t slots, uint32_t values,
		  uint32_t min_rto_us);
void parties_close(struct parties *p);
/* Whether the aggregator has use for what may be a packet. */
bool parties_accept(const struct parties *p, const struct agg_packet *packet, uint32_t length);
/* The aggregator takes a packet that it accepts, and `carry` its answers. */
void parties_take(struct parties *p, struct agg_packet *packet, carry_fn *carry, void *network);
/* `carry` takes what a worker has to send. */
void parties_let_send(struct parties *p, uint32_t rank, uint64_t now_ns, carry_fn *carry,
		      void *network);

#endif
