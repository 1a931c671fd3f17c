/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * MLTCP: the algorithm, as integer functions without a kernel type: where a flow is in its iteration,
 * and what it may do there. mltcp_step.h has what an ACK goes through, mltcp_yield.h and mltcp_loss.h
 * what becomes of the window.
 *
 * A training job's flow sends a burst of total_bytes, is silent while the job computes, and
 * starts again. The share of the burst already acknowledged, the bytes ratio, says how far
 * the flow is ahead of others on the same link; it sets
 *
 *   F       by which the window's increase is scaled (MLTCP, arXiv 2402.09589: F rises with
 *           the ratio, so that a flow that is ahead gets further ahead);
 *   keep    the share of the window that is kept after a loss (the paper's MD variant);
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
 * A burst that is longer than total_bytes by more than one part of so many is no iteration of that
 * job. Flows that go on at the end's F for as long as they have ramped up to it would get up to 1.44
 * times their share.
 */
#define MLTCP_OVERRUN 8

/*
 * What a flow may do is decided anew each time it has sent this share of total_bytes, not at
 * every ACK: that costs more than all the rest, and F moves by no more than slope / MLTCP_STEPS.
 */
#define MLTCP_STEPS 64

/* A flow that has nothing to decide looks again after that time: parameters change. Nanoseconds. */
#define MLTCP_LOOK_AGAIN_NS 10000000

/* next_ns where time alone changes nothing, next_bytes where bytes don't. */
#define MLTCP_NEVER 0xffffffffffffffffULL

/*
 * A flow that receives more than this share of what it sends, or whose host does, doesn't yield where
 * nothing tells the queue that it sends into from the one that its ACKs wait in.
 */
#define MLTCP_TWO_WAY_SHARE 8

/* The largest ACK, bytes of IP: IPv6's header, TCP's, its time stamps and three SACK blocks. */
#define MLTCP_ACK_BYTES 112

/* What a host receives and sends is counted at most that often. Nanoseconds. */
#define MLTCP_HOST_AGAIN_NS 1000000

/* A flow may yield for at most so many times as long as in the last iteration, or as it usually idles. */
#define MLTCP_IDLE_GROWS 2

/* A flow next to which yielding is in vain still tries it once in 2^this iterations. */
#define MLTCP_RARELY_MAX 5

/*
 * A flow of which so many more losses turned out to be none than not has delays that are no queue's:
 * segments or ACKs come late or in another order. The most that is counted is what so many real
 * losses more take back.
 */
#define MLTCP_UNDONE_MANY 4
#define MLTCP_UNDONE_MAX 7

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
#define MLTCP_CWND_BEGIN 4

/* A loss at so many segments, or fewer, says that the path has no room for all flows, */
#define MLTCP_CWND_TIGHT (MLTCP_CWND_MIN + 1)

/* for so many iterations. */
#define MLTCP_TIGHT 3

/* The ratio at which all of an iteration has been sent, but for a step and what learning rounds. */
#define MLTCP_ALL_SENT (MLTCP_ONE - 2 * MLTCP_ONE / MLTCP_STEPS)

/* A flow waits no longer than this for a sister (mltcp_wait.h), */
#define MLTCP_WAIT_MAX_NS 20000000

/* and for no longer than this where timers are late. Nanoseconds. */
#define MLTCP_WAITED_NS (MLTCP_WAIT_MAX_NS + 10000000)

/* What a flow has left of its iteration is told in 24 bits (mltcp_wait.h). KiB. */
#define MLTCP_LEFT_MAX 0xffffffU

/* The slow-start threshold of a connection that hasn't lost yet (as TCP_INFINITE_SSTHRESH). */
#define MLTCP_SSTHRESH_NONE 0x7fffffffU

/* value * share, for a fixed-point share. */
static inline __u64 mltcp_scale(__u32 value, __u32 share)
{
	return (__u64)value * share >> MLTCP_SHIFT;
}

/* Are parameters from user space within what the core is defined for? */
static inline __u8 mltcp_params_valid(const struct mltcp_params *p)
{
	const __u32 known = MLTCP_SCALE_INCREASE | MLTCP_SCALE_DECREASE | MLTCP_YIELD;

	return p->total_bytes <= MLTCP_TOTAL_MAX && p->gap_ns <= MLTCP_GAP_MAX_NS &&
	       p->slope <= MLTCP_GAIN_MAX && p->intercept <= MLTCP_GAIN_MAX - p->slope &&
	       p->keep_min <= MLTCP_KEEP_MAX && p->keep_max <= MLTCP_KEEP_MAX &&
	       p->yield_min <= MLTCP_ONE && p->yield_max <= MLTCP_ONE &&
	       p->shape < MLTCP_SHAPE_COUNT &&
	       (!(p->mechanisms & ~known) || p->mechanisms == MLTCP_MECHANISMS_DEFAULT);
}

/*
 * The mechanisms of a congestion control that a flow uses where no job of the host's administrator
 * says more. Anyone may have chosen it, or have it by default, and send what he likes, so it keeps no
 * more than its base after a loss: a seventh of the window lost at each loss instead of a half would
 * give a flow twice its share of the link. The increase alone doesn't, for F is as often below 1 as
 * above.
 */
static inline __u32 mltcp_open_mechanisms(__u32 mechanisms)
{
	return mechanisms & ~MLTCP_SCALE_DECREASE;
}

/* May somebody set a job with these parameters who isn't the host's administrator? */
static inline __u8 mltcp_params_open(const struct mltcp_params *p, const struct mltcp_params *most)
{
	if (p->mechanisms != MLTCP_MECHANISMS_DEFAULT && p->mechanisms & MLTCP_SCALE_DECREASE)
		return 0;
	return p->slope <= most->slope && p->intercept <= most->intercept &&
	       p->shape == most->shape;
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

/* F at a ratio of at most MLTCP_ONE, fixed point. */
static inline __u32 mltcp_gain(const struct mltcp_params *p, __u32 ratio)
{
	__u32 square = mltcp_scale(ratio, ratio);
	__u64 top, bottom;

	switch (p->shape) {
	case MLTCP_SHAPE_QUADRATIC:
		return mltcp_scale(p->slope, square) + p->intercept;
	case MLTCP_SHAPE_CONCAVE:
		return mltcp_scale(p->slope, 2 * ratio - square) + p->intercept;
	case MLTCP_SHAPE_RECIPROCAL:
		/* I (S + I) / (S + I - S r); 1 / (4 - 3.5 r) for I = 0.25, S = 1.75 */
		top = (__u64)p->intercept * (p->slope + p->intercept);
		bottom = p->slope + p->intercept - mltcp_scale(p->slope, ratio);
		return bottom ? mltcp_div64(top, bottom) : p->slope + p->intercept;
	default:
		return mltcp_scale(p->slope, ratio) + p->intercept;
	}
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
 * connection's totals until now, which are no part of the first iteration. A loss may be under way, and
 * the base's threshold for it is needed if a time-out follows.
 */
static inline void mltcp_reset(struct mltcp_flow *f, __u32 job, __u64 acked_bytes,
			       __u32 retransmits)
{
	struct mltcp_flow fresh = {};

	fresh.job = job;
	fresh.acked_bytes = acked_bytes;
	fresh.piece_kib = mltcp_kib(acked_bytes);
	fresh.retransmits = retransmits;
	fresh.before.base_ssthresh = f->before.base_ssthresh;
	fresh.before.over = f->before.over | MLTCP_FORGOTTEN;
	fresh.delay.held = f->delay.held;
	fresh.paces = f->paces;
	fresh.gain = MLTCP_ONE;
	fresh.next_ns = MLTCP_NEVER;
	fresh.send_ns = 1; /* the first ACK comes after a gap */
	*f = fresh;
}

/* Bytes acknowledged in the present iteration. */
static inline __u64 mltcp_sent(const struct mltcp_flow *f)
{
	return f->acked_bytes - f->start_bytes;
}

/*
 * Has nothing been sent twice in the present iteration? Where a hole was filled, one ACK covers far
 * more than was just carried, so the time it took says nothing of the link's rate.
 */
static inline __u8 mltcp_is_clean(const struct mltcp_flow *f)
{
	return f->retransmits == f->start_retransmits;
}

/* Does the present ACK come after a gap? */
static inline __u8 mltcp_was_idle(const struct mltcp_flow *f)
{
	return f->send_ns > f->last_ns;
}

/* Does the present ACK, at now, open a new iteration? To be asked once per gap. */
static inline __u8 mltcp_is_boundary(struct mltcp_flow *f, const struct mltcp_params *p, __u64 now)
{
	return !f->iteration || mltcp_after_gap(f, p, now);
}

/*
 * Is the present iteration worth a report? Not one without a byte, nor one of a flow of which
 * nothing is known. default_gap_ns: the gap of flows without a job.
 */
static inline __u8 mltcp_is_reported(const struct mltcp_flow *f, __u64 default_gap_ns)
{
	return f->iteration && mltcp_sent(f) && (f->job || default_gap_ns || mltcp_is_sure(f));
}

/* Is the present iteration one of those in which the flow yields? */
static inline __u8 mltcp_yields_now(const struct mltcp_flow *f)
{
	return !(f->iteration & ((1U << (f->flags & MLTCP_RARELY)) - 1));
}

/*
 * In one of how many iterations to yield, as a power of two, after the one that ends now. Next to
 * a flow that never ends it is in vain, and costs as long as the flow may yield; then it is tried
 * the more rarely, until it helps again.
 */
static inline __u8 mltcp_next_rarely(const struct mltcp_flow *f)
{
	__u8 rarely = f->flags & MLTCP_RARELY;

	if (f->flags & MLTCP_IN_VAIN)
		return rarely < MLTCP_RARELY_MAX ? rarely + 1 : rarely;
	return mltcp_yields_now(f) ? 0 : rarely;
}

/* Is it by its waiting for a sister that a flow has sent nothing until now? Not between its bursts. */
static inline __u8 mltcp_waited(const struct mltcp_flow *f, __u64 now)
{
	return f->delay.held && f->left_kib && now - f->last_ns <= MLTCP_WAITED_NS;
}

/*
 * Sending began at now, with nothing outstanding. retransmits: the connection's running total, all
 * of which belong to what was sent before. A flow that has waited for a sister goes on with its burst.
 */
static inline void mltcp_on_send(struct mltcp_flow *f, __u64 now, __u32 retransmits)
{
	if (mltcp_waited(f, now))
		return;
	f->waits = 0;
	f->send_ns = now ? now : 1; /* no sending is earlier than the first ACK's last_ns, 0 */
	f->retransmits = retransmits;
	/* To decide, so no ACK need ask whether it came after a gap that may be a boundary. */
	if (now < f->last_ns || now - f->last_ns >= MLTCP_GAP_MIN_NS)
		f->next_bytes = 0;
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
 * Is what a host has received and sent to be counted again? The latest count may be of a later time
 * than the present ACK, which another processor has.
 */
static inline __u8 mltcp_host_is_due(__u64 counted_ns, __u64 now)
{
	return now >= counted_ns + MLTCP_HOST_AGAIN_NS;
}

/*
 * Has the flow's host received more than a share of what it sent in the iteration that ends? ACKs
 * also wait behind what comes on other connections, such as another stage's of a pipeline, or the
 * neighbour's in a ring whose connections each carry data one way. Both are the host's, for what
 * comes to many flows is much to each of them alone.
 */
static inline __u8 mltcp_host_receives(const struct mltcp_flow *f, const struct mltcp_host *host)
{
	__u32 came_kib = host->came_kib - f->host.came_kib;
	__u32 sent_kib = host->sent_kib - f->host.sent_kib;

	if (!(f->flags & MLTCP_HOST_KNOWN) || came_kib > 0x7fffffffU || sent_kib > 0x7fffffffU)
		return 0;
	return came_kib > sent_kib / MLTCP_TWO_WAY_SHARE;
}

/*
 * Does it matter to the flow what its host receives? Not to one without an iteration to yield in, nor
 * to one whose stamps tell the way ahead. To count it takes a while.
 */
static inline __u8 mltcp_asks_host(const struct mltcp_flow *f, const struct mltcp_params *p)
{
	return f->delay.watched && !f->delay.fine && (p->total_bytes || mltcp_total(f));
}

/*
 * How long the flow may yield in the iteration that begins, after a pause of idle_us, microseconds.
 * Others' bursts fit into the pause that their jobs usually make. One that is far longer, as for an
 * evaluation, doesn't make them longer; nothing is usual yet when the second iteration begins.
 */
static inline __u32 mltcp_next_idle(const struct mltcp_flow *f, __u32 idle_us)
{
	__u64 most_us = f->idle_us > f->gap_us ? f->idle_us : f->gap_us;

	most_us *= MLTCP_IDLE_GROWS;
	return f->iteration < 2 || !most_us || idle_us < most_us ? idle_us : (__u32)most_us;
}

/*
 * Start the next iteration with the ACK at now. The bytes it acknowledges belong to it.
 * received_bytes: the connection's running total. host: what its host has, if mltcp_asks_host();
 * else NULL.
 */
static inline void mltcp_begin(struct mltcp_flow *f, const struct mltcp_params *p, __u64 now,
			       __u64 received_bytes, const struct mltcp_host *host)
{
	__u64 idle_ns = f->iteration ? f->send_ns - f->last_ns : p->gap_ns;
	__u8 host_receives = host && mltcp_host_receives(f, host);

	f->flags = mltcp_next_rarely(f);
	if (host_receives)
		f->flags |= MLTCP_HOST_TWO_WAY;
	if (host) {
		f->flags |= MLTCP_HOST_KNOWN;
		f->host = *host;
	}
	if (received_bytes > f->acked_bytes / MLTCP_TWO_WAY_SHARE)
		f->flags |= MLTCP_TWO_WAY;
	f->idle_us = mltcp_next_idle(f, mltcp_gap_us(idle_ns));
	f->iteration++;
	if (f->tight)
		f->tight--;
	if (!f->tight)
		f->has_waited = 0;
	f->told_bytes = p->total_bytes;
	f->start_bytes = f->acked_bytes;
	f->start_ns = now;
	f->last_ns = now;
	f->step_bytes = f->acked_bytes;
	f->step_ns = now;
	if (mltcp_is_clean(f))
		mltcp_delay_fade(&f->delay);
	f->start_retransmits = f->retransmits;
	mltcp_delay_cross(&f->delay, f->flags & MLTCP_TWO_WAY);
}

/*
 * Has the flow yielded long enough? It does so no longer than it was idle before, nor than twice as
 * long as it usually is: jobs whose bursts fit in there are served by then, and for others it would wait
 * in vain.
 */
static inline __u8 mltcp_yield_is_over(const struct mltcp_flow *f, __u64 now)
{
	return now > f->start_ns && now - f->start_ns > 1000ULL * f->idle_us;
}

/* Is the queue longer than this flow may make it? */
static inline __u8 mltcp_must_yield(const struct mltcp_flow *f)
{
	return f->yield_us && mltcp_delay_queue(&f->delay) > f->yield_us;
}

/*
 * Queueing delay above which a flow at this ratio yields, microseconds; 0: it doesn't.
 *
 * A loss is the only time at which a sender knows the queue to be full, so without one there
 * is nothing to share out. Nor is there where most losses are none: hosts that can't keep up delay
 * what they send and receive, and whoever makes room for others there only leaves time unused.
 */
static inline __u32 mltcp_yield_target(struct mltcp_flow *f, const struct mltcp_params *p,
				       __u64 now)
{
	__u32 target;

	if (!mltcp_yields_now(f) || f->delay.full_us < MLTCP_QUEUE_MIN_US)
		return 0;
	if (f->undone >= MLTCP_UNDONE_MANY)
		return 0;
	if (f->flags & MLTCP_ANY_TWO_WAY && !f->delay.fine)
		return 0;
	if (mltcp_yield_is_over(f, now)) {
		if (f->resume_ssthresh && mltcp_must_yield(f))
			f->flags |= MLTCP_IN_VAIN;
		return 0;
	}
	target = mltcp_scale(f->delay.full_us, mltcp_between(p->yield_min, p->yield_max, f->ratio));
	return target > MLTCP_QUEUE_MIN_US ? target : MLTCP_QUEUE_MIN_US;
}

/* F and the share of the window kept are within their bounds, whoever set the parameters. */
static inline __u32 mltcp_bounded_gain(__u32 gain)
{
	return gain < MLTCP_GAIN_MAX ? gain : MLTCP_GAIN_MAX;
}

/* At least a 65,536th: 0 would say that the base decides. */
static inline __u32 mltcp_bounded_keep(__u32 keep)
{
	if (!keep)
		return 1;
	return keep < MLTCP_KEEP_MAX ? keep : MLTCP_KEEP_MAX;
}

/* Bytes as KiB, rounded up, of which what says who leads (mltcp_wait.h) has so many bits. */
static inline __u32 mltcp_left_kib(__u64 bytes)
{
	__u64 kib = (bytes + 1023) >> 10;

	return kib < MLTCP_LEFT_MAX ? kib : MLTCP_LEFT_MAX;
}

/*
 * Set what the flow may do until it has got a step further, with the ACK at now. mechanisms:
 * those of the job, or of the congestion control, and MLTCP_TRUSTED.
 */
static inline void mltcp_decide(struct mltcp_flow *f, const struct mltcp_params *p,
				__u32 mechanisms, __u64 now)
{
	__u64 total = mltcp_total(f), sent = mltcp_sent(f);

	if (f->acked_bytes > f->step_bytes && now > f->step_ns && mltcp_is_clean(f))
		mltcp_delay_rate(&f->delay, f->acked_bytes - f->step_bytes, now - f->step_ns);
	f->step_bytes = f->acked_bytes;
	f->step_ns = now;
	f->ratio = mltcp_ratio(sent, total);
	f->left_kib = sent < total ? mltcp_left_kib(total - sent) : 0;
	/*
	 * No iteration known, or longer than any: behave like the base. So does the first one of a flow
	 * whose job isn't trusted, which a tag begins, not a pause: a new tag with each ACK, of a total
	 * as small, would keep F at its largest.
	 */
	f->active = total && (p->gap_ns || f->gap_us) && !mltcp_overruns(sent, total) &&
		    (mechanisms & MLTCP_TRUSTED || f->iteration > 1);
	f->next_bytes = MLTCP_NEVER;
	f->next_ns = now + MLTCP_LOOK_AGAIN_NS;
	f->gain = MLTCP_ONE;
	f->free_gain = MLTCP_ONE;
	f->free_us = 0;
	f->keep = 0;
	if (!f->active || !(mechanisms & MLTCP_YIELD)) {
		f->yield_us = 0;
		f->waits = 0;
	}
	if (!f->active)
		return;
	f->next_ns = MLTCP_NEVER;
	/* The last step ends where the burst does. */
	f->next_bytes = f->acked_bytes + total / MLTCP_STEPS;
	if (sent < total && f->next_bytes > f->start_bytes + total)
		f->next_bytes = f->start_bytes + total;
	if (mechanisms & MLTCP_SCALE_INCREASE) {
		f->gain = mltcp_bounded_gain(mltcp_gain(p, f->ratio));
		f->free_gain = mltcp_bounded_gain(p->slope + p->intercept);
	}
	if (mechanisms & MLTCP_SCALE_DECREASE)
		f->keep = mltcp_bounded_keep(mltcp_between(p->keep_min, p->keep_max, f->ratio));
	if (mechanisms & MLTCP_YIELD)
		f->yield_us = mltcp_yield_target(f, p, now);
	if (!f->yield_us) {
		f->waits = 0;
		return;
	}
	f->next_ns = f->start_ns + 1000ULL * f->idle_us + 1;
	if (mechanisms & MLTCP_TRUSTED && f->free_gain > f->gain)
		f->free_us = f->yield_us / 2;
}

/* For reports, with each decision: window in segments, smoothed RTT, retransmissions in all. */
static inline void mltcp_note(struct mltcp_flow *f, __u32 cwnd, __u32 srtt_us, __u32 retransmits)
{
	f->cwnd = cwnd;
	f->srtt_us = srtt_us;
	f->retransmits = retransmits;
}

/* The flow is its base until mltcp_decide() says otherwise; what it took back of the queue stays. */
static inline void mltcp_be_base(struct mltcp_flow *f)
{
	f->active = 0;
	f->gain = MLTCP_ONE;
	f->free_gain = MLTCP_ONE;
	f->free_us = 0;
	f->keep = 0;
	f->yield_us = 0;
	f->waits = 0;
}

/* May the window grow as the base's does, as far as the flow is concerned? Asked by every ACK. */
static inline __u8 mltcp_is_base(const struct mltcp_flow *f)
{
	return !(f->yield_us | f->resume_ssthresh | (f->gain ^ MLTCP_ONE));
}

/*
 * F at present. Where the queue is far below what the flow may make of it, nobody has anything of a
 * flow that holds back: it then grows as if it were ahead.
 */
static inline __u32 mltcp_gain_now(const struct mltcp_flow *f)
{
	return mltcp_delay_queue(&f->delay) < f->free_us ? f->free_gain : f->gain;
}

/*
 * The count of acknowledged segments to hand to the base's congestion avoidance: acked * F.
 * The remainder is carried to the next call, so nothing is lost to rounding; at F = 1 the
 * count is the true one.
 */
static inline __u32 mltcp_scaled_acked(struct mltcp_flow *f, __u32 acked)
{
	__u32 gain = mltcp_gain_now(f);
	__u64 scaled;

	if (gain == MLTCP_ONE)
		return acked;
	scaled = (__u64)acked * gain + f->carry;
	f->carry = scaled & (MLTCP_ONE - 1);
	scaled >>= MLTCP_SHIFT;
	return scaled > 0x7fffffff ? 0x7fffffff : scaled;
}

#endif
