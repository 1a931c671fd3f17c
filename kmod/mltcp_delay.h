/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What a flow knows of the queue on its path: how long it is now, from round-trip times, and how long
 * it is when full, from losses and ECN marks, the only times at which a sender can tell.
 *
 * An RTT holds more than path and queue: delayed ACKs, interrupt and GRO coalescing, the serialisation
 * of the flow's own bursts, milliseconds of coarse timestamps. All of these make a sample too long and
 * none too short. So the queue is the minimum since the flow last looked, at least an RTT ago (RFC
 * 6817 and RFC 8289 take a minimum for the like): a shorter sample is believed at once, a longer one
 * when there was none shorter.
 */
#ifndef MLTCP_DELAY_H
#define MLTCP_DELAY_H

#include "mltcp_uapi.h"

#ifndef MLTCP_READ_ONCE
#define MLTCP_READ_ONCE(x) (*(const volatile __typeof__(x) *)&(x))
#define MLTCP_WRITE_ONCE(x, value) (*(volatile __typeof__(x) *)&(x) = (value))
#endif

/* mltcp_delay.least_us before an RTT's first sample. */
#define MLTCP_NO_SAMPLE 0xffffffffU

/* The RTT beyond the path's minimum, microseconds. */
static inline __u32 mltcp_queue_us(__u32 rtt_us, __u32 min_us)
{
	return rtt_us > min_us ? rtt_us - min_us : 0;
}

/* An ACK's RTT sample, microseconds; 0 or less: it has none. min_us: the path's minimum RTT. */
static inline void mltcp_delay_sample(struct mltcp_delay *d, __s32 rtt_us, __u32 min_us)
{
	__u32 queue_us = mltcp_queue_us(rtt_us, min_us);

	if (rtt_us <= 0)
		return;
	if (queue_us < d->least_us)
		d->least_us = queue_us;
	if (queue_us < d->queue_us)
		d->queue_us = queue_us;
}

/* The flow looks at the queue. */
static inline void mltcp_delay_look(struct mltcp_delay *d)
{
	if (d->least_us != MLTCP_NO_SAMPLE)
		d->queue_us = d->least_us;
	d->least_us = MLTCP_NO_SAMPLE;
}

/* Nothing of what was sent before is in the queue any more. */
static inline void mltcp_delay_forget(struct mltcp_delay *d)
{
	d->queue_us = 0;
	d->least_us = MLTCP_NO_SAMPLE;
}

/* The queue is full. srtt_us, min_us: smoothed and minimum RTT, microseconds. */
static inline void mltcp_delay_full(struct mltcp_delay *d, __u32 srtt_us, __u32 min_us)
{
	__u32 queue_us = mltcp_queue_us(srtt_us, min_us);

	if (!queue_us)
		return; /* a loss without a queue was none of its making */
	d->full_us = d->full_us ? d->full_us - d->full_us / 4 + queue_us / 4 : queue_us;
}

/*
 * The flows from one address to another share what they take for a full queue: of a job's flows, the
 * one that thinks most of the queue to be its own would starve the others. slot: a word of a table that
 * the host keeps, at a place that follows from the path: the path's key and the delay. Two paths may
 * have the same slot; then the latest to write has it. No lock: whoever writes last is right.
 */
static inline void mltcp_delay_ask(struct mltcp_delay *d, const __u64 *slot, __u32 key)
{
	__u64 word = MLTCP_READ_ONCE(*slot);

	if (word && word >> 32 == key)
		d->full_us = (__u32)word;
}

/* Does the word still hold what this flow knows? */
static inline __u8 mltcp_delay_is_told(const struct mltcp_delay *d, const __u64 *slot, __u32 key)
{
	return MLTCP_READ_ONCE(*slot) == ((__u64)key << 32 | d->full_us);
}

static inline void mltcp_delay_tell(const struct mltcp_delay *d, __u64 *slot, __u32 key)
{
	MLTCP_WRITE_ONCE(*slot, (__u64)key << 32 | d->full_us);
}

#endif
