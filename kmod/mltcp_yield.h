/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * MLTCP: what the queue makes of a flow's window, once per RTT, before the base's increase.
 * mltcp_core.h decides how much of the queue the flow may bear.
 */
#ifndef MLTCP_YIELD_H
#define MLTCP_YIELD_H

#include "mltcp_core.h"

/*
 * A flow looks at the queue once per RTT, but no more often than this: interrupt coalescing delays all
 * packets of a moment, and the minimum must span several. Nanoseconds.
 */
#define MLTCP_LOOK_NS 300000ULL

/* Keep the slow-start threshold up to which the flow takes its window back. */
static inline void mltcp_set_aside(struct mltcp_flow *f, __u32 cwnd, __u32 ssthresh)
{
	if (!f->resume_ssthresh)
		f->resume_ssthresh = cwnd > ssthresh ? cwnd : ssthresh;
}

/*
 * The window of a flow that yields, segments: less MLTCP_YIELD_GAIN times the share of the RTT that
 * is too much, at most a half. The increase goes on meanwhile, so that flows of one job, which yield
 * alike, come to equal windows.
 */
static inline __u32 mltcp_yield(struct mltcp_flow *f, __u32 cwnd, __u32 rtt_us)
{
	__u64 excess = MLTCP_YIELD_GAIN * (__u64)(f->delay.queue_us - f->yield_us);
	__u32 cut = cwnd / 2, least = cwnd < MLTCP_CWND_MIN ? cwnd : MLTCP_CWND_MIN;

	f->yields++;
	if (excess < rtt_us / 2)
		cut = mltcp_div64(cwnd * excess, rtt_us);
	return cwnd - cut > least ? cwnd - cut : least;
}

/*
 * The window and slow-start threshold of a flow that begins its next iteration, both in segments:
 * what the path holds without its queue. The rest of the window comes back as after yielding, while
 * the queue is short; else each burst would begin with a window sent at once into a queue of which
 * the flow knows nothing, and delay the one ahead before the first ACK tells. What the path holds
 * follows from the window that the last burst ended with: after a long pause the base has taken its
 * part already.
 *
 * To be called after mltcp_on_send(). srtt_us, min_us: smoothed and minimum RTT, microseconds.
 */
static inline void mltcp_begin_small(struct mltcp_flow *f, __u32 srtt_us, __u32 min_us, __u32 *cwnd,
				     __u32 *ssthresh)
{
	__u64 held;

	if (!f->yield_us || f->ratio < MLTCP_ALL_SENT || min_us >= srtt_us)
		return;
	held = mltcp_div64((__u64)f->cwnd * min_us, srtt_us);
	if (held < MLTCP_CWND_BEGIN)
		held = MLTCP_CWND_BEGIN;
	if (held >= *cwnd)
		return;
	mltcp_set_aside(f, *cwnd, *ssthresh);
	*cwnd = held;
	*ssthresh = held;
}

/*
 * Before the base's increase: each time it looks, the window of a flow that must yield shrinks, and one
 * that has yielded takes it back once the queue is less than half of what it may make of it. Says
 * whether the flow yields. srtt_us, min_us: smoothed and minimum RTT, microseconds.
 */
static inline __u8 mltcp_yield_or_resume(struct mltcp_flow *f, __u32 srtt_us, __u32 min_us,
					 __u32 *cwnd, __u32 *ssthresh)
{
	__u32 borne = f->yield_us ? f->yield_us : f->delay.full_us;
	__u32 rtt_us = min_us + f->delay.queue_us;
	__u64 apart_ns;

	if (rtt_us > srtt_us) /* which still tells of a queue that has gone */
		rtt_us = srtt_us;
	apart_ns = rtt_us * 1000ULL > MLTCP_LOOK_NS ? rtt_us * 1000ULL : MLTCP_LOOK_NS;
	if (f->last_ns >= f->look_ns && f->last_ns - f->look_ns <= apart_ns)
		return mltcp_must_yield(f);
	f->look_ns = f->last_ns;
	mltcp_delay_look(&f->delay);
	if (mltcp_must_yield(f)) {
		mltcp_set_aside(f, *cwnd, *ssthresh);
		*cwnd = mltcp_yield(f, *cwnd, srtt_us);
		if (*ssthresh > *cwnd)
			*ssthresh = *cwnd > MLTCP_CWND_MIN ? *cwnd : MLTCP_CWND_MIN;
		return 1;
	}
	/* Where a full queue isn't known any more, there is nothing to share. */
	if (f->resume_ssthresh && (!borne || f->delay.queue_us < borne / 2)) {
		if (*ssthresh < f->resume_ssthresh)
			*ssthresh = f->resume_ssthresh;
		f->resume_ssthresh = 0;
	}
	return 0;
}

#endif
