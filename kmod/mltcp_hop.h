/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Rates from the network's feedback: what a hop says of itself, in two bytes, and how it counts the
 * queue. mltcp_rate.h is what flows make of that. Includers are as for mltcp_core.h.
 */
#ifndef MLTCP_HOP_H
#define MLTCP_HOP_H

#include "mltcp_core.h"

/*
 * What a hop says: in the high bits how busy it is, of MLTCP_HOP_BUSY; in the low ones the delay of
 * its queue, microseconds below MLTCP_HOP_FINE and MLTCP_HOP_COARSE of them above.
 */
#define MLTCP_HOP_BUSY 127U
#define MLTCP_HOP_SHIFT 9
#define MLTCP_HOP_STEPS ((1U << MLTCP_HOP_SHIFT) - 1)
#define MLTCP_HOP_FINE 256U
#define MLTCP_HOP_COARSE 64U

/* What stands where a hop's word belongs: no hop has been met yet; 0 where nothing is asked. */
#define MLTCP_HOP_ASKS 1U

/* Utilisation is averaged over the time that a hop takes for so many KiB. */
#define MLTCP_HOP_KIB 8

/* The longest queue that a hop's word can tell. Nanoseconds. */
#define MLTCP_HOP_MOST_NS \
	(1000ULL * (MLTCP_HOP_FINE + (MLTCP_HOP_STEPS - MLTCP_HOP_FINE) * MLTCP_HOP_COARSE))

/* What a hop's link is like. */
struct mltcp_hop_link {
	__u64 ns_per_kib; /* that it takes for 1024 bytes */
	__u64 queue_ns; /* that it takes for what its queue holds, less a packet; 0: not known */
	__u64 bucket_ns; /* likewise, for what a token bucket passes on at once after a pause */
};

/* The queue as a hop would have it, counted where packets pass on their way to it. */
struct mltcp_hop {
	__u64 seen_ns; /* time of the latest packet */
	__u64 waits_ns; /* what the hop had left to send then, or has sent ahead, at its rate */
	__u32 busy; /* average utilisation, fixed point */
	__u32 pad;
};

/* What a hop says that is so busy, fixed point, and has such a queue. */
static inline __u32 mltcp_hop_word(__u32 busy, __u64 queue_us)
{
	__u64 steps = queue_us;

	if (queue_us >= MLTCP_HOP_FINE)
		steps = MLTCP_HOP_FINE + (queue_us - MLTCP_HOP_FINE) / MLTCP_HOP_COARSE;
	if (steps > MLTCP_HOP_STEPS)
		steps = MLTCP_HOP_STEPS;
	busy = (__u32)((MLTCP_HOP_BUSY * (__u64)busy + MLTCP_ONE / 2) >> MLTCP_SHIFT);
	return busy << MLTCP_HOP_SHIFT | (__u32)steps;
}

static inline __u32 mltcp_hop_queue_us(__u32 word)
{
	__u32 steps = word & MLTCP_HOP_STEPS;

	if (steps < MLTCP_HOP_FINE)
		return steps;
	return MLTCP_HOP_FINE + (steps - MLTCP_HOP_FINE) * MLTCP_HOP_COARSE;
}

/* Fixed point, at most MLTCP_ONE. */
static inline __u32 mltcp_hop_busy(__u32 word)
{
	return mltcp_ratio(word >> MLTCP_HOP_SHIFT, MLTCP_HOP_BUSY);
}

/*
 * A packet of so many bytes comes to a hop of that link. What finds no room in its queue is dropped,
 * so it is nothing to wait for. Returns what the packet is to be told, above MLTCP_HOP_ASKS and
 * below 1 << 16. The busier of two hops says more, and of two that are always busy the one with the
 * longer queue.
 */
static inline __u32 mltcp_hop_pass(struct mltcp_hop *h, const struct mltcp_hop_link *link,
				   __u64 now, __u32 bytes)
{
	__u64 passed = now > h->seen_ns ? now - h->seen_ns : 0,
	      span = link->ns_per_kib * MLTCP_HOP_KIB;
	__u64 worked = h->waits_ns < passed ? h->waits_ns : passed;
	__u64 most_ns = link->queue_ns && link->queue_ns < MLTCP_HOP_MOST_NS ? link->queue_ns
									     : MLTCP_HOP_MOST_NS;
	__u64 queue_ns;
	__u32 word;

	if (passed) {
		h->busy = mltcp_between(h->busy, mltcp_ratio(worked, passed),
					mltcp_ratio(passed, span));
		h->seen_ns = now; /* another processor's packet may be of an earlier time */
	}
	h->waits_ns -= worked;
	queue_ns = h->waits_ns > link->bucket_ns ? h->waits_ns - link->bucket_ns : 0;
	word = mltcp_hop_word(h->busy, queue_ns / 1000);
	if (queue_ns < most_ns)
		h->waits_ns += bytes * link->ns_per_kib >> 10;
	return word > MLTCP_HOP_ASKS ? word : MLTCP_HOP_ASKS + 1;
}

#endif
