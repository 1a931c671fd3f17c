/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * MLTCP: the algorithm, as integer functions without a kernel type: where a flow is in its iteration,
 * and what it may do there. mltcp_step.h has what an ACK goes through, mltcp_yield.h and mltcp_loss.h
 * what becomes of the window.
 *
 * A training job's flow sends a burst of burst_bytes, is silent while the job computes, and
 * starts again. The share of the burst already acknowledged, the bytes ratio, says how far
 * the flow is ahead of others on the same link; it sets
 *
 *   F       by which the window's increase is scaled (MLTCP, arXiv 2402.09589: F rises with
 *           the ratio, so that a flow that is ahead gets further ahead);
 *   yield   the queueing delay above which the flow shrinks its window by itself, so that a
 *           flow that is behind leaves the queue to the one ahead before packets are lost.
 *           Not in the paper; the idea of LEDBAT (RFC 6817) with a target that follows the
 *           ratio.
 *
 * The kernel module, the BPF programs, the simulator and the tests compile these same files. The
 * includer defines __u8 ... __u64 and, where plain 64-bit division isn't available,
 * mltcp_div64(n, d), and where it has its own, MLTCP_READ_ONCE and MLTCP_WRITE_ONCE. No function
 * but those of mltcp_learn.h loops, and those a few times. Times are nanoseconds of a monotonic
 * clock unless a name ends in _us or _ms.
 */
#ifndef MLTCP_CORE_H
#define MLTCP_CORE_H

#include "mltcp_learn.h"
#include "mltcp_delay.h"

/*
 * A burst that is longer than burst_bytes by more than one part of so many is no iteration of that
 * job. Flows that go on at the end's F for as long as they have ramped up to it would get up to 1.44
 * times their share.
 */
#define MLTCP_OVERRUN 8

/*
 * What a flow may do is decided anew each time it has sent this share of burst_bytes, not at
 * every ACK: that costs more than all the rest, and F moves by little more than slope / MLTCP_STEPS.
 */
#define MLTCP_STEPS 64

/* A flow that has nothing to decide looks again after that time: parameters change. Nanoseconds. */
#define MLTCP_LOOK_AGAIN_NS 10000000

/* next_ns where time alone changes nothing, next_bytes where bytes don't. */
#define MLTCP_NEVER 0xffffffffffffffffULL

/*
 * A flow that receives more than this share of what it sends, or whose host does, doesn't yield: its RTT
 * holds the queue that its ACKs wait in.
 */
#define MLTCP_BIDIRECTIONAL_SHARE 8

/* The largest ACK, bytes of IP: IPv6's header, TCP's, its time stamps and three SACK blocks. */
#define MLTCP_ACK_BYTES 112

/*
 * How many times the excess of the queueing delay a flow takes off its window: all flows that are
 * behind must make up for the one ahead, which keeps increasing.
 */
#define MLTCP_YIELD_GAIN 3

/* The smallest window a flow may be left with, segments (as tcp_reno_ssthresh). */
#define MLTCP_CWND_MIN 2

/*
 * The smallest window that an iteration begins with, segments: the loss of one of so many is told by
 * the others (RFC 5681, 3.2).
 */
#define MLTCP_CWND_BEGIN (2 * MLTCP_CWND_MIN)

/* The ratio at which all of an iteration has been sent, but for a step and what learning rounds. */
#define MLTCP_ALL_SENT (MLTCP_ONE - 2 * MLTCP_ONE / MLTCP_STEPS)

/* value * share, for a fixed-point share. */
static inline __u64 mltcp_scale(__u32 value, __u32 share)
{
	return (__u64)value * share >> MLTCP_SHIFT;
}

/* Are parameters from user space within what the core is defined for? */
static inline __u8 mltcp_params_valid(const struct mltcp_params *p)
{
	const __u32 known = MLTCP_SCALE_INCREASE | MLTCP_YIELD;

	return p->burst_bytes <= MLTCP_TOTAL_MAX && p->gap_ns <= MLTCP_GAP_MAX_NS &&
	       p->slope <= MLTCP_GAIN_MAX && p->intercept <= MLTCP_GAIN_MAX - p->slope &&
	       p->yield_min <= MLTCP_ONE && p->yield_max <= MLTCP_ONE &&
	       (!(p->mechanisms & ~known) || p->mechanisms == MLTCP_MECHANISMS_DEFAULT);
}

/* May somebody set a job with these parameters who isn't the host's administrator? */
static inline __u8 mltcp_params_open(const struct mltcp_params *p, const struct mltcp_params *most)
{
	return p->slope <= most->slope && p->intercept <= most->intercept;
}

/* min(1, sent / total) in fixed point; total 0 gives 0. */
static inline __u32 mltcp_ratio(__u64 sent, __u64 total)
{
	if (!total)
		return 0;
	if (sent >= total)
		return MLTCP_ONE;
	/* Keep sent << MLTCP_SHIFT within 64 bits: beyond 2^47 low bits don't matter. */
	if (total >> 47) {
		sent >>= MLTCP_SHIFT;
		total >>= MLTCP_SHIFT;
	}
	return mltcp_div64(sent << MLTCP_SHIFT, total);
}

/* Is a burst of which so many bytes were sent longer than an iteration? total: at most 2^63 - 1. */
static inline __u8 mltcp_overruns(__u64 sent, __u64 total)
{
	return sent > total + total / MLTCP_OVERRUN;
}

/* F at a ratio of at most MLTCP_ONE, fixed point, within its bounds whoever set the parameters. */
static inline __u32 mltcp_gain(const struct mltcp_params *p, __u32 ratio)
{
	__u32 gain = mltcp_scale(p->slope, ratio) + p->intercept;

	return gain < MLTCP_GAIN_MAX ? gain : MLTCP_GAIN_MAX;
}

/* Between low (ratio 0) and high (ratio 1), fixed point. high may be the smaller one. */
static inline __u32 mltcp_between(__u32 low, __u32 high, __u32 ratio)
{
	if (high >= low)
		return low + (__u32)mltcp_scale(high - low, ratio);
	return low - (__u32)mltcp_scale(low - high, ratio);
}

/*
 * Forget everything: the flow is new, or was given to another job. acked_bytes, retransmits: the
 * connection's totals until now, which are no part of the first iteration.
 */
static inline void mltcp_reset(struct mltcp_flow *f, __u32 job, __u64 acked_bytes,
			       __u32 retransmits)
{
	*f = (struct mltcp_flow){
		.job = job,
		.acked_bytes = acked_bytes,
		/* Before its first byte a flow was silent: two bursts are enough to learn. */
		.gaps[0] = {.kib = mltcp_kib(acked_bytes), .us = MLTCP_GAP_MAX_NS / 1000},
		.retransmits = retransmits,
		.gain = MLTCP_ONE,
		.next_ns = MLTCP_NEVER,
		.send_ns = 1, /* the first ACK comes after a gap */
	};
	mltcp_delay_forget(&f->delay);
}

/* Bytes acknowledged in the present iteration. */
static inline __u64 mltcp_sent(const struct mltcp_flow *f)
{
	return f->acked_bytes - f->start_bytes;
}

/* Does the present ACK come after a gap? */
static inline __u8 mltcp_was_idle(const struct mltcp_flow *f)
{
	return f->send_ns > f->last_ns;
}

/* Does the present ACK open a new iteration? To be asked once per gap. */
static inline __u8 mltcp_is_boundary(struct mltcp_flow *f, const struct mltcp_params *p)
{
	return !f->iteration || mltcp_after_gap(f, p);
}

/*
 * Is the present iteration worth a report? Not one without a byte, nor one of a flow of which
 * nothing is known. default_gap_ns: the gap of flows without a job.
 */
static inline __u8 mltcp_is_reported(const struct mltcp_flow *f, __u64 default_gap_ns)
{
	return f->iteration && mltcp_sent(f) && (f->job || default_gap_ns || mltcp_is_sure(f));
}

/*
 * Sending began at now, with nothing outstanding. retransmits: the connection's running total, all
 * of which belong to what was sent before.
 */
static inline void mltcp_on_send(struct mltcp_flow *f, __u64 now, __u32 retransmits)
{
	f->send_ns = now ? now : 1; /* no sending is earlier than the first ACK's last_ns, 0 */
	f->retransmits = retransmits;
	if (now >= f->last_ns && now - f->last_ns < MLTCP_GAP_MIN_NS)
		return;
	/* To decide, so no ACK need ask whether it came after a gap that may be a boundary. */
	f->next_bytes = 0;
	f->look_ns = now;
}

/*
 * What a host has received, or sent, without what ACKs take of it at most, from its running totals of
 * octets and packets of IP. It falls with every ACK that is shorter.
 */
static inline __u32 mltcp_host_kib(__u64 octets, __u64 packets)
{
	return mltcp_kib(octets - packets * MLTCP_ACK_BYTES);
}

/*
 * Is what a host has received and sent to be counted again? No two iterations of a flow begin closer
 * together than the shortest gap. The latest count may be of a later time than the present ACK, which
 * another processor has.
 */
static inline __u8 mltcp_host_is_due(__u64 counted_ns, __u64 now)
{
	return now >= counted_ns + MLTCP_GAP_MIN_NS;
}

/*
 * Has the flow's host received more than a share of what it sent in the iteration that ends? ACKs
 * also wait behind what comes on other connections, such as another stage's of a pipeline, or the
 * neighbour's in a ring whose connections each carry data one way. Both are the host's, for what
 * comes to many flows is much to each of them alone.
 */
static inline __u8 mltcp_host_receives(const struct mltcp_flow *f, const struct mltcp_host *host)
{
	__s32 rx_kib = host->rx_kib - f->host.rx_kib;
	__s32 tx_kib = host->tx_kib - f->host.tx_kib;

	if (tx_kib < 0) /* more short ACKs than data */
		tx_kib = 0;
	return f->flags & MLTCP_HOST_KNOWN && rx_kib > tx_kib / MLTCP_BIDIRECTIONAL_SHARE;
}

/*
 * Does it matter to the flow what its host receives? Not to one without an iteration to yield in. To
 * count it takes a while.
 */
static inline __u8 mltcp_asks_host(const struct mltcp_flow *f, const struct mltcp_params *p)
{
	return f->delay.watched && (p->burst_bytes || mltcp_total(f));
}

/*
 * Start the next iteration with the ACK at now. The bytes it acknowledges belong to it.
 * received_bytes: the connection's running total. host: what its host has, if mltcp_asks_host();
 * else NULL.
 */
static inline void mltcp_begin(struct mltcp_flow *f, const struct mltcp_params *p, __u64 now,
			       __u64 received_bytes, const struct mltcp_host *host)
{
	__u8 host_receives = host && mltcp_host_receives(f, host);

	f->flags = host_receives ? MLTCP_HOST_BIDIRECTIONAL : 0;
	if (host) {
		f->flags |= MLTCP_HOST_KNOWN;
		f->host = *host;
	}
	if (received_bytes > f->acked_bytes / MLTCP_BIDIRECTIONAL_SHARE)
		f->flags |= MLTCP_BIDIRECTIONAL;
	f->iteration++;
	f->told_bytes = p->burst_bytes;
	f->start_bytes = f->acked_bytes;
	f->start_ns = now;
	f->last_ns = now;
	f->start_retransmits = f->retransmits;
}

/*
 * Until when may the flow yield in its iteration? For its usual gap, or until that is known the one that
 * its job states. Jobs whose bursts fit into it are served by then, and for others it would wait in vain.
 */
static inline __u64 mltcp_yield_until(const struct mltcp_flow *f, const struct mltcp_params *p)
{
	return f->start_ns + (f->gap_us ? 1000ULL * f->gap_us : p->gap_ns);
}

/* Is the queue longer than this flow may make it? */
static inline __u8 mltcp_must_yield(const struct mltcp_flow *f)
{
	return f->yield_us && f->delay.queue_us > f->yield_us;
}

/*
 * Queueing delay above which a flow at this ratio yields, microseconds; 0: it doesn't.
 *
 * A loss is the only time at which a sender knows the queue to be full, so without one there is
 * nothing to share out. Where much comes towards the flow or its host, ACKs wait in a queue, too.
 */
static inline __u32 mltcp_yield_target(const struct mltcp_flow *f, const struct mltcp_params *p,
				       __u32 ratio, __u64 now)
{
	if (f->flags & MLTCP_ANY_BIDIRECTIONAL || now > mltcp_yield_until(f, p))
		return 0;
	return mltcp_scale(f->delay.full_us, mltcp_between(p->yield_min, p->yield_max, ratio));
}

/*
 * The ratio that counts for a flow of a job that the administrator set: the largest among the job's
 * flows between the same two addresses. They are waited for together. By ratios of their own, one
 * that happens to be ahead would starve the others, and the last would meet other jobs at ratio 0
 * though its job has sent almost everything. Whichever begins an iteration first begins it for all.
 * slot, key: as mltcp_delay_ask(), of the job.
 */
static inline __u32 mltcp_job_ratio(const struct mltcp_flow *f, __u64 *slot, __u32 key, __u64 now)
{
	__u64 word = MLTCP_READ_ONCE(*slot);

	if (now != f->start_ns && word >> 32 == key && (__u32)word > f->ratio)
		return (__u32)word;
	MLTCP_WRITE_ONCE(*slot, (__u64)key << 32 | f->ratio);
	return f->ratio;
}

/* The window is the base's, but for what a flow that has yielded still takes back. */
static inline void mltcp_be_as_base(struct mltcp_flow *f)
{
	f->gain = MLTCP_ONE;
	f->yield_us = 0;
}

/*
 * Set what the flow may do until it has got a step further, with the ACK at now. mechanisms:
 * those of the job, or of the congestion control, and MLTCP_TRUSTED. job_slot, job_key: where
 * mltcp_job_ratio() is kept; NULL: the flow's own ratio counts.
 */
static inline void mltcp_decide(struct mltcp_flow *f, const struct mltcp_params *p,
				__u32 mechanisms, __u64 now, __u64 *job_slot, __u32 job_key)
{
	__u64 learned = (__u64)f->total_kib << MLTCP_KIB_SHIFT, total, sent = mltcp_sent(f);
	__u32 ratio;

	/* A total that was too large is corrected at once: the iteration might not end by it. */
	if ((p->burst_bytes ? p->burst_bytes : learned) < f->told_bytes)
		f->told_bytes = p->burst_bytes;
	total = mltcp_total(f);
	f->ratio = mltcp_ratio(sent, total);
	/*
	 * No iteration known, or longer than any: behave like the base. So does the first one of a flow
	 * whose job isn't trusted, which a tag begins, not a pause: a new tag with each ACK, of a total
	 * as small, would keep F at its largest.
	 */
	f->active = total && (p->gap_ns || f->gap_us) && !mltcp_overruns(sent, total) &&
		    (mechanisms & MLTCP_TRUSTED || f->iteration > 1);
	mltcp_be_as_base(f);
	f->next_bytes = MLTCP_NEVER;
	f->next_ns = now + MLTCP_LOOK_AGAIN_NS;
	if (!f->active)
		return;
	f->next_ns = MLTCP_NEVER;
	/* The last step ends where the burst does. */
	f->next_bytes = f->acked_bytes + total / MLTCP_STEPS;
	if (sent < total && f->next_bytes > f->start_bytes + total)
		f->next_bytes = f->start_bytes + total;
	ratio = job_slot ? mltcp_job_ratio(f, job_slot, job_key, now) : f->ratio;
	if (mechanisms & MLTCP_YIELD)
		f->yield_us = mltcp_yield_target(f, p, ratio, now);
	/* Where the queue is far below that, nobody gains if a flow that is behind holds back. */
	if (mechanisms & MLTCP_TRUSTED && f->delay.queue_us < f->yield_us / 4)
		ratio = MLTCP_ONE;
	if (mechanisms & MLTCP_SCALE_INCREASE)
		f->gain = mltcp_gain(p, ratio);
	if (f->yield_us)
		f->next_ns = mltcp_yield_until(f, p) + 1;
}

/* For reports, with each decision: window in segments, smoothed RTT, retransmissions in all. */
static inline void mltcp_note(struct mltcp_flow *f, __u32 cwnd, __u32 srtt_us, __u32 retransmits)
{
	f->cwnd = cwnd;
	f->srtt_us = srtt_us;
	f->retransmits = retransmits;
}

/* May the window grow as the base's does, as far as the flow is concerned? Asked by every ACK. */
static inline __u8 mltcp_is_base(const struct mltcp_flow *f)
{
	return !(f->yield_us | f->resume_ssthresh | (f->gain ^ MLTCP_ONE));
}

/*
 * The count of acknowledged segments to hand to the base's congestion avoidance: acked * F.
 * The remainder is carried to the next call, so nothing is lost to rounding; at F = 1 the
 * count is the true one.
 */
static inline __u32 mltcp_scaled_acked(struct mltcp_flow *f, __u32 acked)
{
	__u64 scaled;

	if (f->gain == MLTCP_ONE)
		return acked;
	scaled = (__u64)acked * f->gain + f->carry;
	f->carry = scaled & (MLTCP_ONE - 1);
	scaled >>= MLTCP_SHIFT;
	return scaled > 0x7fffffff ? 0x7fffffff : scaled;
}

/*
 * The window after the base's increase from `before`, segments, for which so many were acknowledged: it
 * grows by no more than in slow start (RFC 5681, 3.1). CUBIC's convex region, and Reno's at few
 * segments, would by F make more of a scaled count.
 */
static inline __u32 mltcp_bounded_cwnd(__u32 before, __u32 cwnd, __u32 acked)
{
	return cwnd > before && cwnd - before > acked ? before + acked : cwnd;
}

#endif
