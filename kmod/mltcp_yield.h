/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * MLTCP: what a flow does to its window before the base's increase. mltcp_core.h decides how much of
 * the queue the flow may bear.
 */
#ifndef MLTCP_YIELD_H
#define MLTCP_YIELD_H

#include "mltcp_core.h"

/*
 * Has a smoothed RTT passed since the flow last yielded, took a share back or, where ACKs wait, might
 * have? Until then the queue doesn't show what came of that.
 */
static inline __u8 mltcp_has_passed(const struct mltcp_flow *f, __u32 srtt_us)
{
	__u64 now = f->last_ns;

	return now < f->turn_ns || now - f->turn_ns > (__u64)srtt_us * 1000;
}

/*
 * The window of a flow that must yield, segments: shrunk by MLTCP_YIELD_GAIN times the share of
 * the RTT that is too much, at most by half, at most once per smoothed RTT, and not below
 * MLTCP_CWND_MIN: a window that is less, as after a time-out, stays. The increase goes on
 * meanwhile, so that flows of one job, which yield alike, come to equal windows.
 *
 * ssthresh: the slow-start threshold, segments. A flow that has to yield in slow start hasn't
 * found its share yet, and takes that way up again once it may. passed: that RTT has.
 */
static inline __u32 mltcp_yield(struct mltcp_flow *f, __u32 cwnd, __u32 ssthresh, __u32 srtt_us,
				__u8 passed)
{
	__u64 excess = MLTCP_YIELD_GAIN * (__u64)(mltcp_delay_queue(&f->delay) - f->yield_us);
	__u32 cut = cwnd / 2, least = cwnd < MLTCP_CWND_MIN ? cwnd : MLTCP_CWND_MIN;

	if (!f->resume_ssthresh) {
		f->resume_ssthresh = cwnd > ssthresh ? cwnd : ssthresh;
		f->full_cwnd = cwnd;
	}
	if (!passed)
		return cwnd;
	f->turn_ns = f->last_ns;
	f->yields++;
	if (excess < srtt_us / 2)
		cut = mltcp_div64(cwnd * excess, srtt_us);
	return cwnd - cut > least ? cwnd - cut : least;
}

/*
 * The round trip at present, microseconds: the smoothed one still tells of a queue that has gone. Fine
 * stamps tell the way ahead's queue alone, and the round trip may hold another.
 */
static inline __u32 mltcp_present_rtt(const struct mltcp_flow *f, __u32 srtt_us, __u32 min_us)
{
	__u32 rtt_us = min_us + f->delay.queue_us;

	return f->delay.fine || rtt_us > srtt_us ? srtt_us : rtt_us;
}

/*
 * The slow-start threshold, segments, of a flow that has yielded and may take its share back, at
 * window cwnd and threshold ssthresh: once the queue is well below what it may make of it. To be
 * called when a round trip, of rtt_us microseconds, has passed: by each ACK, slow start would double the window in the time
 * that the queue takes to show it.
 *
 * It takes back no more than the queue has room for: flows that yielded together may do so
 * together, too, when their time is over. If each of them grows by the share of the round trip
 * that is missing to that queue, all of them together make just that. Where what is known of a full
 * queue has grown old there is nothing to share, and the flow has all of it back.
 */
static inline __u32 mltcp_resume(struct mltcp_flow *f, __u32 cwnd, __u32 ssthresh, __u32 rtt_us)
{
	__u32 borne = f->yield_us ? f->yield_us : f->delay.full_us, back = f->resume_ssthresh;
	__u64 most;

	if (!borne) {
		f->resume_ssthresh = 0;
		return back > ssthresh ? back : ssthresh;
	}
	if (!back || mltcp_delay_queue(&f->delay) >= borne / 2)
		return ssthresh;
	most = cwnd + 1ULL;
	most += mltcp_div64((__u64)cwnd * (borne - mltcp_delay_queue(&f->delay)),
			    rtt_us ? rtt_us : 1);
	f->turn_ns = f->last_ns;
	if (back <= most)
		f->resume_ssthresh = 0;
	else
		back = most;
	return back > ssthresh ? back : ssthresh;
}

/*
 * The window and slow-start threshold of a flow that begins its next iteration, both in segments:
 * what the path holds without its queue. The rest of the window comes back as after yielding, while
 * the queue is short; else each burst would begin with a window sent at once into a queue of which
 * the flow knows nothing, and delay the one ahead before the first ACK tells. What the path holds
 * follows from the window that the last burst ended with: after a long pause the base has taken its
 * part already. Those that wait for a sister (mltcp_wait.h) begin with less than others.
 *
 * To be called after mltcp_on_send(). srtt_us, min_us: smoothed and least RTT of the connection,
 * microseconds.
 */
static inline void mltcp_begin_small(struct mltcp_flow *f, __u32 srtt_us, __u32 min_us, __u32 *cwnd,
				     __u32 *ssthresh)
{
	__u32 least = f->has_waited ? MLTCP_CWND_MIN : MLTCP_CWND_BEGIN;
	__u64 held;

	if (!f->yield_us || f->ratio < MLTCP_ALL_SENT || min_us >= srtt_us)
		return;
	held = mltcp_div64((__u64)f->cwnd * min_us, srtt_us);
	if (held < least)
		held = least;
	if (held >= *cwnd)
		return;
	if (!f->resume_ssthresh) {
		f->resume_ssthresh = *cwnd > *ssthresh ? *cwnd : *ssthresh;
		f->full_cwnd = *cwnd;
	}
	*cwnd = held;
	*ssthresh = held;
}

/*
 * Has mltcp_yield_or_resume() anything to do? Not with a queue between what the flow may make of it
 * and where it takes its share back, nor where it hasn't yielded.
 */
static inline __u8 mltcp_is_aside(const struct mltcp_flow *f)
{
	__u32 borne = f->yield_us ? f->yield_us : f->delay.full_us;

	if (f->delay.crossed || f->delay.held || mltcp_must_yield(f))
		return 1;
	return f->resume_ssthresh && (!borne || f->delay.queue_us < borne / 2);
}

/*
 * What comes before the base's increase: the window of a flow that must yield shrinks, else one
 * that has yielded may slow-start back. Both in segments. Says whether the flow yields. srtt_us,
 * min_us: smoothed and least RTT of the connection, microseconds.
 */
static inline __u8 mltcp_yield_or_resume(struct mltcp_flow *f, __u32 srtt_us, __u32 min_us,
					 __u32 *cwnd, __u32 *ssthresh)
{
	__u32 rtt_us = mltcp_present_rtt(f, srtt_us, min_us);
	__u8 passed = mltcp_has_passed(f, srtt_us), resumes = mltcp_has_passed(f, rtt_us);

	if (f->delay.crossed && passed) {
		mltcp_delay_passed(&f->delay);
		f->turn_ns = f->last_ns;
	}
	if (mltcp_must_yield(f)) {
		*cwnd = mltcp_yield(f, *cwnd, *ssthresh, srtt_us, passed);
		if (*ssthresh > *cwnd)
			*ssthresh = *cwnd > MLTCP_CWND_MIN ? *cwnd : MLTCP_CWND_MIN;
		return 1;
	}
	f->waits = 0;
	if (resumes)
		*ssthresh = mltcp_resume(f, *cwnd, *ssthresh, rtt_us);
	return 0;
}

#endif
