/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * MLTCP: what a loss, an ECN mark or a timeout says of the queue. The window after them is the base's.
 */
#ifndef MLTCP_LOSS_H
#define MLTCP_LOSS_H

#include "mltcp_core.h"

/*
 * A loss, or a mark: the path's queue is full. A loss is final: what the flow would have taken back
 * after yielding is gone. srtt_us, min_us: smoothed and minimum RTT, microseconds. slot, key: as
 * mltcp_delay_ask().
 */
static inline void mltcp_on_loss(struct mltcp_flow *f, __u32 srtt_us, __u32 min_us, __u64 *slot,
				 __u32 key)
{
	if (f->delay.watched)
		mltcp_delay_ask(&f->delay, slot, key);
	f->loss_snapshot.resume_ssthresh = f->resume_ssthresh;
	f->loss_snapshot.full_us = f->delay.full_us;
	f->loss_snapshot.valid = 1;
	f->resume_ssthresh = 0;
	f->losses++;
	f->next_bytes = 0; /* what to bear of the queue follows from what the loss found */
	if (!f->delay.watched)
		return;
	mltcp_delay_full(&f->delay, srtt_us, min_us);
	if (f->delay.full_us)
		mltcp_delay_tell(&f->delay, slot, key);
}

/*
 * A timeout at now. The queue of before has gone meanwhile, and what is sent twice has no RTT by which
 * to see it.
 */
static inline void mltcp_on_time_out(struct mltcp_flow *f, __u64 now)
{
	mltcp_delay_forget(&f->delay);
	f->look_ns = now;
}

/*
 * The loss was spurious: a segment or its ACK was late. The base gives back the window that the flow
 * had; the flow has back what it would have taken back, and what it took for a full queue. So have the
 * others of its path, unless one has found something else since.
 */
static inline void mltcp_on_undo(struct mltcp_flow *f, __u64 *slot, __u32 key)
{
	if (!f->loss_snapshot.valid)
		return;
	f->loss_snapshot.valid = 0;
	if (f->loss_snapshot.resume_ssthresh > f->resume_ssthresh)
		f->resume_ssthresh = f->loss_snapshot.resume_ssthresh;
	if (f->delay.watched && mltcp_delay_is_told(&f->delay, slot, key)) {
		f->delay.full_us = f->loss_snapshot.full_us;
		mltcp_delay_tell(&f->delay, slot, key);
	}
	f->losses--;
	f->next_bytes = 0;
}

#endif
