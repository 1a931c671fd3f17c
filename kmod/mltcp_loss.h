/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * MLTCP: what follows a loss, a mark or a time-out, of the base's threshold and of what is known of
 * the queue; and what follows if it turns out that nothing was lost.
 */
#ifndef MLTCP_LOSS_H
#define MLTCP_LOSS_H

#include "mltcp_core.h"

/*
 * Note a loss, or a mark: the queue was as long as it may become.
 *
 * base: the base's threshold, segments. srtt_us, min_us: smoothed and least RTT of the connection,
 * microseconds.
 */
static inline void mltcp_note_full(struct mltcp_flow *f, __u32 base, __u32 srtt_us, __u32 min_us)
{
	f->before.resume_ssthresh = f->resume_ssthresh;
	f->before.full_us = f->delay.full_us;
	f->before.full_date = f->delay.full_date;
	f->before.own_us = f->delay.own_us;
	f->before.own_losses = f->delay.own_losses;
	f->before.base_ssthresh = base;
	f->before.undone = f->undone;
	f->before.tight = f->tight;
	f->before.over = 0;
	if (f->undone)
		f->undone--;
	f->losses++;
	f->next_bytes = 0; /* what to bear of the queue follows from what the loss found */
	mltcp_delay_full(&f->delay, f->last_ns, srtt_us, min_us);
}

/*
 * Slow-start threshold after a loss (or ECN mark) at window cwnd, where the base would set
 * base; segments. Notes the queue that the loss found.
 *
 * A loss is final: what the flow would have taken back after yielding is gone. But it has given up
 * part of the window already, for the same queue, so what it keeps is of the window that it had
 * before, though no more than MLTCP_KEEP_MAX of what it has now: every loss takes something.
 *
 * srtt_us, min_us: smoothed and least RTT of the connection, microseconds.
 */
static inline __u32 mltcp_on_loss(struct mltcp_flow *f, __u32 cwnd, __u32 base, __u32 srtt_us,
				  __u32 min_us)
{
	__u32 from = cwnd;
	__u64 kept;

	mltcp_note_full(f, base, srtt_us, min_us);
	f->waits = 0;
	if (cwnd <= MLTCP_CWND_TIGHT)
		f->tight = MLTCP_TIGHT;
	if (f->resume_ssthresh && f->full_cwnd > cwnd)
		from = f->full_cwnd;
	f->resume_ssthresh = 0;
	if (!f->keep)
		return base;
	kept = mltcp_scale(from, f->keep);
	if (kept > mltcp_scale(cwnd, MLTCP_KEEP_MAX))
		kept = mltcp_scale(cwnd, MLTCP_KEEP_MAX);
	return kept > MLTCP_CWND_MIN ? (__u32)kept : MLTCP_CWND_MIN;
}

/*
 * As mltcp_on_loss(), for a base that measures congestion by the share of marked segments and cuts
 * its window in proportion (DCTCP, RFC 8257). What it has measured stays its own; its cut is scaled
 * by what the flow gives up of the window after a loss, as a multiple of the half that Reno gives
 * up. So a flow that is to keep half its window cuts as its base does.
 *
 * A mark is as final as a loss: taking back the window after marks fills the queue past the
 * threshold again, and gained nothing.
 */
static inline __u32 mltcp_on_mark(struct mltcp_flow *f, __u32 cwnd, __u32 base, __u32 srtt_us,
				  __u32 min_us)
{
	__u64 cut = cwnd > base ? cwnd - base : 0;

	mltcp_note_full(f, base, srtt_us, min_us);
	if (f->keep) /* rounded up: with all marked, a small window shrinks, too */
		cut = (cut * (MLTCP_ONE - f->keep) + MLTCP_ONE / 2 - 1) >> (MLTCP_SHIFT - 1);
	f->resume_ssthresh = 0;
	return cwnd > cut + MLTCP_CWND_MIN ? cwnd - (__u32)cut : MLTCP_CWND_MIN;
}

/*
 * Slow-start threshold after a time-out, which mltcp_on_loss() was asked for when there was, as yet,
 * nothing but a loss: what the base would set (RFC 5681, 3.1). Nothing has come back of what was sent,
 * so there is nothing by which to tell how much of the window the path still carries.
 *
 * All is also taken for lost where the path turns out to carry shorter packets only, and nobody is
 * asked for a threshold. What the base set for a loss that is over isn't for that.
 *
 * The queue of before has gone meanwhile, and what is sent twice has no round trip by which to see it.
 * What was under way tells of nothing but what kept it. So the flow isn't cut for a round trip.
 * now: of the time-out.
 */
static inline __u32 mltcp_on_time_out(struct mltcp_flow *f, __u64 now, __u32 ssthresh)
{
	__u32 base = f->before.base_ssthresh;

	f->delay.queue_us = f->delay.standing_us = f->delay.least_us = 0;
	f->turn_ns = now;
	return base && !(f->before.over & MLTCP_REPAIRED) && base < ssthresh ? base : ssthresh;
}

/* A sister has told something of the queue, which stays though the loss may turn out to be none. */
static inline void mltcp_on_heard(struct mltcp_flow *f)
{
	f->before.full_us = f->delay.full_us;
	f->before.full_date = f->delay.full_date;
}

/* Whatever was lost is repaired. That it was late may still turn out. */
static inline void mltcp_on_repaired(struct mltcp_flow *f)
{
	f->before.over |= MLTCP_REPAIRED;
}

/*
 * Nothing was lost: a segment or its ACK was late. The base gives the window back that the flow had,
 * and the flow has back what it would have taken back of the queue, and what it knew of it, or what a
 * sister has told since. So do its sisters, unless one has told them something else since.
 */
static inline void mltcp_on_undo(struct mltcp_flow *f, __u64 *slot, __u32 key)
{
	if (!f->before.base_ssthresh || f->before.over & MLTCP_FORGOTTEN)
		return;
	if (f->before.resume_ssthresh > f->resume_ssthresh)
		f->resume_ssthresh = f->before.resume_ssthresh;
	mltcp_delay_recall(&f->delay, slot, key, f->before.full_us, f->before.full_date);
	f->delay.own_us = f->before.own_us;
	f->delay.own_losses = f->before.own_losses;
	f->before.base_ssthresh = 0;
	f->undone = f->before.undone;
	if (f->undone < MLTCP_UNDONE_MAX)
		f->undone++;
	f->losses--;
	f->tight = f->before.tight;
	f->next_bytes = 0;
}

#endif
