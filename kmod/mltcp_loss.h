/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * MLTCP: what follows a loss, a mark or a time-out, of the base's threshold and of what is known of
 * the queue; and what follows if it turns out that nothing was lost.
 */
#ifndef MLTCP_LOSS_H
#define MLTCP_LOSS_H

#include "mltcp_core.h"

/* A connection at a loss, or a mark. */
struct mltcp_loss {
	__u32 cwnd; /* segments */
	__u32 flight; /* segments outstanding */
	__u32 base; /* what the base would set the slow-start threshold to, segments */
	__u32 srtt_us; /* smoothed RTT, microseconds */
	__u32 min_us; /* minimum RTT, microseconds */
};

/* Note a loss, or a mark: the path's queue is full. slot, key: as mltcp_delay_ask(). */
static inline void mltcp_note_full(struct mltcp_flow *f, const struct mltcp_loss *loss, __u64 *slot,
				   __u32 key)
{
	if (f->delay.watched)
		mltcp_delay_ask(&f->delay, slot, key);
	f->loss_snapshot.resume_ssthresh = f->resume_ssthresh;
	f->loss_snapshot.full_us = f->delay.full_us;
	f->loss_snapshot.base_ssthresh = loss->base;
	f->loss_snapshot.over = 0;
	f->losses++;
	f->next_bytes = 0; /* what to bear of the queue follows from what the loss found */
	if (!f->delay.watched)
		return;
	mltcp_delay_full(&f->delay, loss->srtt_us, loss->min_us);
	mltcp_delay_tell(&f->delay, slot, key);
}

/*
 * Slow-start threshold after a loss (or ECN mark), segments.
 *
 * What is kept is of the segments in flight: where the application sent less than the window, its rest
 * says nothing of the path. A loss is final: what the flow would have taken back after yielding is
 * gone. It has given that up for the same queue, so it then keeps the most; every loss takes something.
 */
static inline __u32 mltcp_on_loss(struct mltcp_flow *f, const struct mltcp_loss *loss, __u64 *slot,
				  __u32 key)
{
	__u32 share = f->resume_ssthresh ? MLTCP_KEEP_MAX : f->keep;
	__u32 most = mltcp_scale(loss->cwnd, share), kept = most;

	mltcp_note_full(f, loss, slot, key);
	f->resume_ssthresh = 0;
	if (!f->keep)
		return loss->base;
	if (loss->flight < loss->cwnd)
		kept = mltcp_scale(loss->flight, share);
	if (kept < loss->base)
		kept = loss->base < most ? loss->base : most;
	return kept > MLTCP_CWND_MIN ? kept : MLTCP_CWND_MIN;
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
static inline __u32 mltcp_on_mark(struct mltcp_flow *f, const struct mltcp_loss *loss, __u64 *slot,
				  __u32 key)
{
	__u32 cwnd = loss->cwnd;
	__u64 cut = cwnd > loss->base ? cwnd - loss->base : 0;

	mltcp_note_full(f, loss, slot, key);
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
 * The queue of before has gone meanwhile, and what is sent twice has no RTT by which to see it.
 * now: of the time-out.
 */
static inline __u32 mltcp_on_time_out(struct mltcp_flow *f, __u64 now, __u32 ssthresh)
{
	__u32 base = f->loss_snapshot.base_ssthresh;

	mltcp_delay_forget(&f->delay);
	f->look_ns = now;
	return base && !(f->loss_snapshot.over & MLTCP_REPAIRED) && base < ssthresh ? base
										    : ssthresh;
}

/* Recovery is complete; it may still prove spurious. */
static inline void mltcp_on_repaired(struct mltcp_flow *f)
{
	f->loss_snapshot.over |= MLTCP_REPAIRED;
}

/*
 * The loss was spurious: a segment or its ACK was late. The base gives back the window that the flow
 * had; the flow has back what it would have taken back, and what it took for a full queue. So have the
 * others of its path.
 */
static inline void mltcp_on_undo(struct mltcp_flow *f, __u64 *slot, __u32 key)
{
	if (!f->loss_snapshot.base_ssthresh || f->loss_snapshot.over & MLTCP_FORGOTTEN)
		return;
	if (f->loss_snapshot.resume_ssthresh > f->resume_ssthresh)
		f->resume_ssthresh = f->loss_snapshot.resume_ssthresh;
	if (f->loss_snapshot.full_us) {
		f->delay.full_us = f->loss_snapshot.full_us;
		mltcp_delay_tell(&f->delay, slot, key);
	}
	f->loss_snapshot.base_ssthresh = 0;
	f->losses--;
	f->next_bytes = 0;
}

#endif
