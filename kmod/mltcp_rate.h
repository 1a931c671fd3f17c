/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Windows from the network's feedback: the law of `mltcp_int`, as integer functions.
 *
 * After HPCC (Li et al., SIGCOMM 2019): once per round trip the window is divided by how busy the
 * busiest hop is, so that it is right after one step whether it was too large or too small, and a
 * small additive part makes flows fair. Two things are weighted by how far the flow is through its
 * iteration (MLTCP): the additive part, and the queue that the flow bears before it steps back.
 * Flows that are ahead bear more, so those behind make room. This is a design in the spirit of MLCC
 * (Zhao et al., IEEE TNSM 2024), whose own law isn't public; what differs from HPCC:
 *
 *  - A hop says one number, not a history: how busy it is while nothing waits, else for how long
 *    what comes would wait. It fits in two bytes, and the worst hop's is simply the largest.
 *  - The target is a short queue (target_us), not a link that is 95 % busy: windows hold whole
 *    segments, and on paths of a few segments a link without a queue is idle part of the time.
 *
 * Without feedback for some round trips the flow is its base (mltcp_rate_fresh()). Includers are as
 * for mltcp_core.h. Times are nanoseconds of a monotonic clock unless a name ends in _us.
 */
#ifndef MLTCP_RATE_H
#define MLTCP_RATE_H

#include "mltcp_core.h"

/* What a hop says: below this how busy it is, in units of 1/MLTCP_HOP_BUSY; from here on nothing
 * but the delay of its queue, microseconds. */
#define MLTCP_HOP_QUEUE 0x8000U
#define MLTCP_HOP_BUSY 0x4000U

/* A hop's utilisation is averaged over about this time, nanoseconds. */
#define MLTCP_HOP_AVERAGE_NS 1000000ULL

/* Feedback that is older than so many round trips, and than so many nanoseconds, is none. */
#define MLTCP_STALE_RTTS 4
#define MLTCP_STALE_NS 5000000ULL

/* On long paths the queue that is accepted is this part of the round trip. */
#define MLTCP_RATE_RTT_SHARE 4

/* Slow start ends, though its threshold hasn't been reached, where the path is this full. */
#define MLTCP_RATE_FULL (MLTCP_ONE / 4 * 3)

/* The window never changes by more than this factor in one step. */
#define MLTCP_RATE_STEP 2

/* The queue as a hop would have it, counted where packets pass on their way to it. */
struct mltcp_hop {
	__u64 seen_ns; /* time of the latest packet */
	__u64 waits_ns; /* what the hop had left to send then, as time at its rate */
	__u32 busy; /* average utilisation, fixed point */
	__u32 pad;
};

struct mltcp_rate_params {
	__u32 target_us; /* queue's delay that a flow at the end of its burst accepts, at least */
	__u32 low; /* share of it that a flow at the beginning accepts, fixed point */
	__u32 add_bytes; /* added per round trip at F = 1, bytes */
	__u32 host; /* 1: the flow's own round trips are the feedback */
};

/* What a flow keeps. All zero for a new one. */
struct mltcp_rate {
	__u64 window; /* bytes; 0: none yet */
	__u64 heard_ns; /* time of the latest feedback; 0: never */
	__u64 stepped_ns; /* time of the latest step */
	__u64 stepped_bytes; /* acknowledged in all at that time */
	__u32 busy; /* of the busiest hop, fixed point, above MLTCP_ONE with a queue */
	__u32 queue_us; /* delay of its queue, average over the round trip, microseconds */
	__u32 steps; /* since the flow began */
	__u32 fallbacks; /* times that the feedback was found to be gone */
	__u8 follows; /* 1: the law has the window; 0: the base has */
	__u8 pad[7];
};

/*
 * A packet of so many bytes comes to a hop that sends ns_per_kib nanoseconds for each 1024 bytes.
 * Returns what the packet is to be told, from 1 to (1 << 16) - 1: 0 is what no hop has said.
 */
static inline __u32 mltcp_hop_pass(struct mltcp_hop *h, __u64 now, __u32 bytes, __u64 ns_per_kib)
{
	__u64 passed = now > h->seen_ns ? now - h->seen_ns : 0;
	__u64 takes = bytes * ns_per_kib >> 10, queue_us, share;

	h->waits_ns = h->waits_ns > passed ? h->waits_ns - passed : 0;
	queue_us = h->waits_ns / 1000;
	if (passed >= MLTCP_HOP_AVERAGE_NS)
		h->busy = 0;
	else
		h->busy -= mltcp_div64((__u64)h->busy * passed, MLTCP_HOP_AVERAGE_NS);
	share = mltcp_div64(takes << MLTCP_SHIFT, MLTCP_HOP_AVERAGE_NS);
	h->busy += share < MLTCP_ONE ? share : MLTCP_ONE;
	h->waits_ns += takes;
	h->seen_ns = now;
	if (queue_us) {
		if (queue_us >= MLTCP_HOP_QUEUE)
			queue_us = MLTCP_HOP_QUEUE - 1;
		return MLTCP_HOP_QUEUE | queue_us;
	}
	share = (__u64)h->busy * MLTCP_HOP_BUSY >> MLTCP_SHIFT;
	if (!share)
		return 1;
	return share < MLTCP_HOP_QUEUE ? share : MLTCP_HOP_QUEUE - 1;
}

/* Is the feedback new enough to go by? */
static inline __u8 mltcp_rate_fresh(const struct mltcp_rate *r, __u64 now, __u32 srtt_us)
{
	__u64 stale = (__u64)srtt_us * 1000 * MLTCP_STALE_RTTS;

	if (stale < MLTCP_STALE_NS)
		stale = MLTCP_STALE_NS;
	return r->heard_ns && now - r->heard_ns <= stale;
}

/* Feedback of the worst hop came with an ACK. */
static inline void mltcp_rate_hear(struct mltcp_rate *r, __u64 now, __u32 value, __u32 srtt_us)
{
	__u32 queue_us = 0, busy = MLTCP_ONE;

	if (value >= MLTCP_HOP_QUEUE)
		queue_us = value - MLTCP_HOP_QUEUE;
	else
		busy = (__u64)value * MLTCP_ONE / MLTCP_HOP_BUSY;
	if (busy > MLTCP_ONE)
		busy = MLTCP_ONE;
	/* A quarter of what is new: several ACKs per round trip, and single packets say little. */
	if (mltcp_rate_fresh(r, now, srtt_us)) {
		queue_us = (3 * r->queue_us + queue_us) / 4;
		busy = (3 * r->busy + busy) / 4;
	} else {
		r->follows = 0; /* a pause: the path may be another one by now */
	}
	r->queue_us = queue_us;
	r->busy = busy;
	r->heard_ns = now;
}

/* What an end alone can tell: the delay of the queues on its path, from its round trips. */
static inline __u32 mltcp_rate_guess(__u32 queue_us)
{
	if (queue_us >= MLTCP_HOP_QUEUE)
		queue_us = MLTCP_HOP_QUEUE - 1;
	if (queue_us > MLTCP_QUEUE_MIN_US)
		return MLTCP_HOP_QUEUE | queue_us;
	/* No queue: at most this busy, so that the window grows by a half in a round trip. */
	return MLTCP_HOP_BUSY * 2 / 3;
}

/* How full the path is for a flow at this ratio, fixed point: MLTCP_ONE is just right. */
static inline __u64 mltcp_rate_load(const struct mltcp_rate *r, const struct mltcp_rate_params *p,
				    __u32 min_rtt_us, __u32 ratio)
{
	__u32 accepted = min_rtt_us / MLTCP_RATE_RTT_SHARE, target;
	__u64 span, off;

	if (accepted < p->target_us)
		accepted = p->target_us;
	span = (__u64)min_rtt_us + accepted;
	target = mltcp_scale(accepted, mltcp_between(p->low, MLTCP_ONE, ratio));
	if (!r->queue_us)
		return r->busy;
	if (!span)
		span = 1;
	if (r->queue_us >= target)
		return MLTCP_ONE + mltcp_div64((__u64)(r->queue_us - target) << MLTCP_SHIFT, span);
	off = mltcp_div64((__u64)(target - r->queue_us) << MLTCP_SHIFT, span);
	return off < MLTCP_ONE / 2 ? MLTCP_ONE - off : MLTCP_ONE / 2;
}

/*
 * An ACK: step if a round trip has passed since the last step. acked_bytes: of the connection, in
 * all. gain, ratio: of the flow's MLTCP state. Returns the window in segments of mss bytes, or 0
 * while slow start finds out how much the path carries.
 */
static inline __u32 mltcp_rate_window(struct mltcp_rate *r, const struct mltcp_rate_params *p,
				      __u64 now, __u64 acked_bytes, __u32 cwnd, __u32 ssthresh,
				      __u32 mss, __u32 srtt_us, __u32 min_rtt_us, __u32 gain,
				      __u32 ratio)
{
	__u64 load, window, delivered, least = (__u64)MLTCP_CWND_MIN * mss;

	if (!r->follows) {
		if (cwnd < ssthresh && mltcp_rate_load(r, p, min_rtt_us, ratio) < MLTCP_RATE_FULL)
			return 0;
		r->follows = 1;
		r->window = 0;
		r->stepped_ns = now;
		r->stepped_bytes = acked_bytes;
	}
	/* From what the base has come to, or what a loss or a pause has left. */
	if (!r->window || (__u64)cwnd * mss + mss < r->window)
		r->window = (__u64)cwnd * mss;
	if (now - r->stepped_ns >= (__u64)srtt_us * 1000) {
		load = mltcp_rate_load(r, p, min_rtt_us, ratio);
		if (load < MLTCP_ONE / MLTCP_RATE_STEP)
			load = MLTCP_ONE / MLTCP_RATE_STEP;
		if (load > MLTCP_ONE * MLTCP_RATE_STEP)
			load = MLTCP_ONE * MLTCP_RATE_STEP;
		window = mltcp_div64(r->window << MLTCP_SHIFT, load);
		window += mltcp_scale(p->add_bytes, gain);
		/* A sender that doesn't use its window says nothing of the path. */
		delivered = acked_bytes - r->stepped_bytes;
		if (window > r->window && window > MLTCP_RATE_STEP * (delivered + 2 * (__u64)mss))
			window = r->window;
		if (window < least)
			window = least;
		r->window = window;
		r->stepped_ns = now;
		r->stepped_bytes = acked_bytes;
		r->steps++;
	}
	return mltcp_div64(r->window + mss / 2, mss);
}

/* There is no feedback: the base goes on from the window that the law has left it. */
static inline void mltcp_rate_lose(struct mltcp_rate *r)
{
	if (!r->follows)
		return;
	r->follows = 0;
	r->fallbacks++;
	r->heard_ns = 0;
}

#endif
