/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * MLTCP: connections of a job that the path has no room for wait for a sister.
 *
 * No window is smaller than two segments, so many connections exceed a short queue however far they
 * yield. Of a job's flows on a path the one that has most of its iteration left leads: the iteration
 * ends with its last flow, so that is the one to hurry. One that has lost something at hardly more than
 * the smallest window lately, has to yield at the smallest, and doesn't lead, waits: it sends its two
 * segments once in MLTCP_WAIT_RTTS round trips, and its window doesn't grow.
 *
 * How it is held is its host's: by TCP's own pacing, where nobody else has switched that on, which stays
 * on until what it holds back has left.
 *
 * Who leads stands in a word for each job and path, in a table that the host keeps: the path's key,
 * when the leader last said so, and what it has left. No lock: whoever writes last leads, and two
 * leaders for a moment do no harm. Where two jobs share a word, hardly any flow waits. Where a leader
 * is gone, or on another physical path between the same addresses, others wait for it in vain: for
 * MLTCP_LEAD_OLD, and at most that slowly. Where steps take longer than that, the lead goes round.
 */
#ifndef MLTCP_WAIT_H
#define MLTCP_WAIT_H

#include "mltcp_core.h"

/* A flow waits for so many round trips, but not longer than MLTCP_WAIT_MAX_NS. */
#define MLTCP_WAIT_RTTS 16

/* A leader that hasn't said so for so many units of mltcp_lead_time() leads no more. */
#define MLTCP_LEAD_OLD 64

/* A time in units of 2^20 ns, about a millisecond. */
static inline __u16 mltcp_lead_time(__u64 now)
{
	return (__u16)(now >> 20);
}

/* Does another flow of the job lead, by what stands in the word? */
static inline __u8 mltcp_is_led(const struct mltcp_flow *f, __u64 now, __u64 word, __u32 key)
{
	__u32 left_kib = word & MLTCP_LEFT_MAX;
	__u16 told = (__u16)(word >> 24);

	if (word >> 40 != (key & 0xffffff) || (__u16)(mltcp_lead_time(now) - told) > MLTCP_LEAD_OLD)
		return 0;
	/* The one that leads stays until another one has more left. */
	return left_kib >= f->left_kib && (!f->lead_kib || left_kib != f->lead_kib);
}

/*
 * Lead at now, unless a sister does; a flow with nothing left says so, if it led, and leads no more.
 * slot: of the job and path, with the lowest 24 bits of key.
 */
static inline void mltcp_lead(struct mltcp_flow *f, __u64 now, __u64 *slot, __u32 key)
{
	if (!f->left_kib && !f->lead_kib)
		return;
	if (mltcp_is_led(f, now, MLTCP_READ_ONCE(*slot), key)) {
		f->lead_kib = 0;
		return;
	}
	f->lead_kib = f->left_kib;
	MLTCP_WRITE_ONCE(*slot, (__u64)(key & 0xffffff) << 40 | (__u64)mltcp_lead_time(now) << 24 |
					f->left_kib);
}

/*
 * How long a flow waits, nanoseconds. srtt_us, min_us: its smoothed and its least round trip,
 * microseconds. The smoothed one holds the waits before, so the present one counts where it is shorter.
 */
static inline __u32 mltcp_wait_ns(const struct mltcp_flow *f, __u32 srtt_us, __u32 min_us)
{
	__u64 rtt_us = (__u64)min_us + f->delay.queue_us, wait_ns;

	wait_ns = 1000 * MLTCP_WAIT_RTTS * (rtt_us < srtt_us ? rtt_us : srtt_us);
	return wait_ns < MLTCP_WAIT_MAX_NS ? wait_ns : MLTCP_WAIT_MAX_NS;
}

/*
 * Has a flow that has to yield at window cwnd, segments, to wait? It waits from then on. slot: NULL
 * without a job, or where it can't be held, or has nothing to send.
 */
static inline __u8 mltcp_must_wait(struct mltcp_flow *f, __u32 cwnd, __u64 *slot, __u32 key)
{
	f->waits = 0;
	if (cwnd > MLTCP_CWND_MIN || !f->tight || !slot || !f->left_kib)
		return 0;
	mltcp_lead(f, f->last_ns, slot, key);
	if (!f->lead_kib)
		f->waits = f->has_waited = f->delay.held = 1;
	return f->waits;
}

#endif
