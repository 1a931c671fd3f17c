/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What a flow knows of the queue on its path, and what it doesn't.
 *
 * Inputs write what they find into struct mltcp_delay; whoever acts on it reads queue_us and
 * full_us and need not know which input said so. The inputs:
 *
 *   mltcp_delay_rtt()    the round-trip time of an ACK beyond the path's least: the queue now,
 *                        both ways;
 *   mltcp_delay_ahead()  the receiver's time stamp in it, where that counts microseconds: how much
 *                        of that is the way ahead's;
 *   mltcp_delay_full()   a loss, the one time at which a sender knows the queue to be full;
 *   mltcp_delay_ask()    what other flows of the path have found a full queue to be.
 *
 * A further sign of a queue that has reached its limit (an ECN mark) is one that calls
 * mltcp_delay_full().
 *
 * A round-trip time is more than path and queue, and what is more isn't to be taken for queue:
 *
 *   coarse stamps      where an ACK covers data that was sent twice, Linux may take the RTT from
 *                      the time stamps in the packets, which count milliseconds (RFC 7323, 4.1;
 *                      Karn's rule excludes every other sample);
 *   delayed ACKs       a receiver waits, 40 ms and more, for the second of two segments
 *                      (RFC 1122, 4.2.3.2); none is awaited where more than one was acknowledged or
 *                      more is on its way;
 *   own serialisation  segments sent at one instant, a super-packet of segmentation offload among
 *                      them, wait for each other. The first ones tell what they found;
 *   stretch ACKs       one ACK for many segments (receive offload) came as late as the last of
 *                      them, which waited for the others;
 *   the way back       ACKs wait behind what comes towards the flow. Only the queue that it sends
 *                      into is its business; which of the two it is, fine time stamps tell.
 */
#ifndef MLTCP_DELAY_H
#define MLTCP_DELAY_H

#include "mltcp_uapi.h"

#ifndef mltcp_div64
#define mltcp_div64(n, d) ((n) / (d))
#endif

#ifndef MLTCP_READ_ONCE
#define MLTCP_READ_ONCE(x) (*(const volatile __typeof__(x) *)&(x))
#define MLTCP_WRITE_ONCE(x, value) (*(volatile __typeof__(x) *)&(x) = (value))
#endif

/* Queues shorter than this drown in the noise of RTT samples. Microseconds. */
#define MLTCP_QUEUE_MIN_US 50

/* No queue that a training job should fill is longer than this. Microseconds. */
#define MLTCP_QUEUE_MAX_US 1000000

/* Granularity of the usual time stamps of packets. Microseconds. */
#define MLTCP_STAMP_US 1000

/* A receiver acknowledges so many full segments at once (RFC 5681, 4.2). */
#define MLTCP_ACKED_SEGMENTS 2

/*
 * Units of 2^this ns, about a second, in which knowledge of full queues is dated, and after how
 * many of them it is forgotten: the 300 s for which Linux keeps its least RTT by default
 * (tcp_min_rtt_wlen), to which queues are compared.
 */
#define MLTCP_DATE_SHIFT 30
#define MLTCP_DATES_MAX 280

/* A link on which a KiB takes longer, of 82 kbit/s, carries no training. Nanoseconds. */
#define MLTCP_KIB_NS_MAX 100000000

/* A flow that has lost so often knows by itself what a full queue is. */
#define MLTCP_OWN_LOSSES 4

/* It is on another path than its sisters if theirs is so many times longer or shorter. */
#define MLTCP_OTHER_PATH 2

/*
 * A path's word: 24 bits of its key, 16 bits of the date (they come again after 19 hours), 24 bits
 * of microseconds.
 */
#define MLTCP_PATH_US ((1U << 24) - 1)
#define MLTCP_PATH_KEY 0xffffff0000000000ULL

/* The receiver's clock is known to count microseconds once so many of them have passed. */
#define MLTCP_FINE_WITHIN_US 65536

/* What an ACK says of the round-trip time. */
struct mltcp_rtt {
	__u32 now_us; /* time of the ACK on the clock that the sample is of, microseconds, wraps */
	__s32 rtt_us; /* the sample, of the latest of the segments; 0 or less: none */
	__u32 min_us; /* the path's least, microseconds */
	__u32 segments; /* acknowledged by it */
	__u64 bytes; /* likewise */
	__u32 outstanding; /* segments that are left; 0: none */
	__u32 retransmitted; /* segments, ever, by the connection */
	__u32 stamp; /* the receiver's (RFC 7323: TSval), where it may be fine; 0: it isn't, or none */
};

/* Microseconds of the serialisation of what the ACK covers beyond what ACKs usually cover. */
static inline __u32 mltcp_delay_own(const struct mltcp_delay *d, const struct mltcp_rtt *s,
				    __u32 queue_us)
{
	__u64 own_ns = s->bytes * d->kib_ns >> 10, own;

	own = mltcp_div64(own_ns * (s->segments - MLTCP_ACKED_SEGMENTS), 1000ULL * s->segments);
	/* The rate is the flow's own, with others on the link less than what the link has. */
	return own < queue_us - queue_us / 4 ? (__u32)own : queue_us - queue_us / 4;
}

/* Does what the stamps have counted fit to the time that has passed, to a sixteenth? */
static inline __u8 mltcp_delay_fits(__u32 counted_us, __u32 passed_us)
{
	return counted_us - (passed_us - passed_us / 16) <= passed_us / 8;
}

/*
 * Find out whether the receiver's stamps count microseconds. Nobody says so: each end of a connection
 * chooses by its own route (Linux 6.7: tcp_usec_ts). Until then ahead_us is the time of the stamp
 * that is kept.
 */
static inline void mltcp_delay_find_fine(struct mltcp_delay *d, const struct mltcp_rtt *s,
					 __u32 queue_us)
{
	__u32 passed_us = s->now_us - d->ahead_us;

	if (d->stamp && passed_us < MLTCP_FINE_WITHIN_US)
		return;
	d->fine = d->stamp && mltcp_delay_fits(s->stamp - d->stamp, passed_us);
	d->stamp = s->stamp;
	d->ahead_us = d->fine ? s->stamp - (s->now_us - s->rtt_us) - queue_us : s->now_us;
}

/*
 * The queue of the way ahead, of a round trip that is longer than the path's least by queue_us: from
 * the sending of the latest segment by our clock to its receipt by the receiver's, beyond the
 * shortest (LEDBAT: RFC 6817). Where an application reads late, Linux stamps the ACK that it sends
 * for that with the time at which the segment came, so that wait doesn't count either.
 *
 * Clocks drift apart, jump, and lie. The round trip is of one clock, and the way ahead is longer than
 * the shortest by no more than that is: where the stamps say more, the shortest was too short. So a
 * receiver can make a flow yield less than by round trips, but never more.
 */
static inline __u32 mltcp_delay_ahead(struct mltcp_delay *d, const struct mltcp_rtt *s,
				      __u32 queue_us)
{
	__u32 ahead_us = s->stamp - (s->now_us - s->rtt_us), late_us = ahead_us - d->ahead_us;

	if ((__s32)late_us < 0)
		late_us = 0;
	else if (late_us > queue_us)
		late_us = queue_us;
	d->ahead_us = ahead_us - late_us;
	return late_us;
}

/*
 * A sample of a queue no longer than the latest one's: there is nothing to doubt about it. Half of
 * all samples are, so a host may ask this, which needs less, before it calls mltcp_delay_rtt(). False
 * where the sample isn't one, or more is to be done with it.
 */
static inline __u8 mltcp_delay_shorter(struct mltcp_delay *d, __u32 now_us, __s32 rtt_us,
				       __u32 min_us)
{
	__u32 queue_us = (__u32)rtt_us > min_us ? rtt_us - min_us : 0;

	if (rtt_us <= 0 || queue_us > d->queue_us || d->crossed)
		return 0;
	d->queue_us = queue_us;
	d->sent_us = now_us - rtt_us;
	return 1;
}

/* The input of each ACK. */
static inline void mltcp_delay_rtt(struct mltcp_delay *d, const struct mltcp_rtt *s)
{
	__u32 rtt_us = s->rtt_us, sent_us = s->now_us - rtt_us, queue_us;

	if (s->rtt_us <= 0 || (!s->stamp && mltcp_delay_shorter(d, s->now_us, rtt_us, s->min_us)))
		return;
	queue_us = rtt_us > s->min_us ? rtt_us - s->min_us : 0;
	if (s->stamp && d->fine)
		queue_us = mltcp_delay_ahead(d, s, queue_us);
	else if (s->stamp)
		mltcp_delay_find_fine(d, s, queue_us);
	/* What follows can only make a sample too long. */
	if (queue_us > d->queue_us) {
		if (sent_us - d->sent_us + 1 <= 2)
			return; /* sent at the same instant, to the microsecond */
		if (s->segments == 1 && !s->outstanding)
			return; /* perhaps a delayed ACK */
		if (s->retransmitted && rtt_us % MLTCP_STAMP_US == 0)
			return; /* hardly by chance */
		if (s->segments > MLTCP_ACKED_SEGMENTS)
			queue_us -= mltcp_delay_own(d, s, queue_us);
	}
	d->queue_us = queue_us;
	d->sent_us = sent_us;
	if (!d->crossed)
		return;
	if (queue_us < d->least_us)
		d->least_us = queue_us;
	if (queue_us > d->most_us)
		d->most_us = queue_us;
}

/* The queue to act upon, microseconds. */
static inline __u32 mltcp_delay_queue(const struct mltcp_delay *d)
{
	return d->crossed ? d->standing_us : d->queue_us;
}

/*
 * Where ACKs wait in a queue of their own they come in bunches, and so does what they call for: then
 * only what stays for a round trip is too much (RFC 6817, 2.4.2, and RFC 8289 take a minimum for the
 * like). To be called when one has passed.
 */
static inline void mltcp_delay_passed(struct mltcp_delay *d)
{
	d->standing_us = d->least_us;
	d->least_us = d->queue_us;
	d->most_us = d->queue_us;
}

/*
 * Do ACKs come in bunches, because much comes towards the flow? What else delays them, a host that is
 * busy, does so for a moment only, and to take that for traffic would make the flow yield too late.
 * To be called with each iteration.
 */
static inline void mltcp_delay_cross(struct mltcp_delay *d, __u8 two_way)
{
	__u8 crossed = two_way && d->fine;

	if (crossed && !d->crossed)
		d->standing_us = d->least_us = d->most_us = d->queue_us;
	d->crossed = crossed;
}

/*
 * So many bytes were acknowledged within so many nanoseconds: the shortest time that a KiB took says
 * what sending takes.
 */
static inline void mltcp_delay_rate(struct mltcp_delay *d, __u64 bytes, __u64 ns)
{
	__u64 kib = bytes >> 10, each_ns = kib ? mltcp_div64(ns, kib) : 0;

	if (each_ns && each_ns <= MLTCP_KIB_NS_MAX && (!d->kib_ns || each_ns < d->kib_ns))
		d->kib_ns = each_ns;
}

/* An iteration has passed: the route may have changed. */
static inline void mltcp_delay_fade(struct mltcp_delay *d)
{
	if (d->kib_ns < MLTCP_KIB_NS_MAX)
		d->kib_ns += d->kib_ns / 8;
}

static inline __u16 mltcp_date(__u64 now)
{
	return (__u16)(now >> MLTCP_DATE_SHIFT);
}

static inline __u8 mltcp_is_old(__u16 date, __u64 now)
{
	return (__u16)(mltcp_date(now) - date) > MLTCP_DATES_MAX;
}

/* The queue was full at time now, so its delay was what the latest sample said. */
static inline void mltcp_delay_full(struct mltcp_delay *d, __u64 now, __u32 srtt_us, __u32 min_us)
{
	/* What comes in bunches fills the queue only for a moment, which the latest sample may miss. */
	__u32 queue_us = d->crossed ? d->most_us : d->queue_us, most = MLTCP_QUEUE_MAX_US;

	/* A loss without a queue was none of its making. */
	if (queue_us < MLTCP_QUEUE_MIN_US)
		return;
	if (d->full_us && mltcp_is_old(d->full_date, now))
		d->full_us = d->own_us = d->own_losses = 0;
	/* One sample alone may be anything: it must fit to those before it. */
	if (d->full_us)
		most = 2 * d->full_us;
	else if (srtt_us <= min_us)
		most = 0;
	else if (srtt_us - min_us < MLTCP_QUEUE_MAX_US / 2)
		most = 2 * (srtt_us - min_us);
	if (queue_us > most)
		queue_us = most;
	if (queue_us > MLTCP_QUEUE_MAX_US)
		queue_us = MLTCP_QUEUE_MAX_US;
	if (queue_us < MLTCP_QUEUE_MIN_US)
		return;
	d->full_us = d->full_us ? d->full_us - d->full_us / 4 + queue_us / 4 : queue_us;
	d->own_us = d->own_us ? d->own_us - d->own_us / 4 + queue_us / 4 : queue_us;
	if (d->own_losses < MLTCP_OWN_LOSSES)
		d->own_losses++;
	d->most_us = d->queue_us;
	d->full_date = mltcp_date(now);
}

/*
 * The flows from one address to another share what they found a full queue to be. Each by itself
 * finds something else, as it looks only when it loses; the one that thinks most of the queue to be
 * its own then starves its sisters, and a job is as fast as its slowest flow.
 *
 * Between the same addresses there may be several paths (ECMP chooses one by the ports, too). A
 * flow that has found again and again a full queue to be another than its sisters did keeps to
 * itself.
 *
 * slot: a word of a table that the host keeps, at a place that follows from the path. Two paths may
 * have the same slot; then the latest to lose has it. No lock: whoever writes last is right. Only
 * 24 bits of key count, the lowest.
 */
static inline void mltcp_delay_heard(struct mltcp_delay *d, __u64 now, const __u64 *slot, __u32 key)
{
	__u64 word = MLTCP_READ_ONCE(*slot);
	__u32 full_us = word & MLTCP_PATH_US;
	__u16 date = (__u16)(word >> 24);

	if (d->full_us && mltcp_is_old(d->full_date, now))
		d->full_us = d->own_us = d->own_losses = 0;
	if (!word || (word & MLTCP_PATH_KEY) != (__u64)key << 40 || mltcp_is_old(date, now))
		return;
	if (!full_us && d->own_losses)
		return;
	if (d->own_losses == MLTCP_OWN_LOSSES &&
	    (full_us > MLTCP_OTHER_PATH * d->own_us || d->own_us > MLTCP_OTHER_PATH * full_us)) {
		d->full_us = d->own_us;
		return;
	}
	d->full_us = full_us;
	d->full_date = date;
}

/* What is told of a path. */
static inline __u64 mltcp_delay_word(const struct mltcp_delay *d, __u32 key)
{
	return d->full_us ? (__u64)key << 40 | (__u64)d->full_date << 24 | d->full_us : 0;
}

static inline void mltcp_delay_tell(const struct mltcp_delay *d, __u64 *slot, __u32 key)
{
	if (d->full_us)
		MLTCP_WRITE_ONCE(*slot, mltcp_delay_word(d, key));
}

/*
 * The queue wasn't full when it was taken for that: what was known before holds again. For the path's
 * other flows, too, where what they know is what this one said; that nothing is known is told by a
 * queue of 0.
 */
static inline void mltcp_delay_recall(struct mltcp_delay *d, __u64 *slot, __u32 key, __u32 full_us,
				      __u16 full_date)
{
	__u64 told = mltcp_delay_word(d, key), nothing = told & ~(__u64)MLTCP_PATH_US;

	d->full_us = full_us;
	d->full_date = full_date;
	if (told && MLTCP_READ_ONCE(*slot) == told)
		MLTCP_WRITE_ONCE(*slot, full_us ? mltcp_delay_word(d, key) : nothing);
}

/*
 * Take samples from now on, or none: then no queue is seen, for nothing would ever say that it has
 * gone.
 */
static inline void mltcp_delay_watch(struct mltcp_delay *d, __u8 watched)
{
	d->watched = watched;
	if (watched)
		return;
	d->queue_us = 0;
	d->crossed = 0;
}

/*
 * To be called with each decision: what is known of the path. Says whether another flow has told
 * something else than what this one knew.
 */
static inline __u8 mltcp_delay_ask(struct mltcp_delay *d, __u64 now, const __u64 *slot, __u32 key)
{
	__u32 known_us = d->full_us;

	mltcp_delay_heard(d, now, slot, key);
	return d->full_us != known_us;
}

#endif
