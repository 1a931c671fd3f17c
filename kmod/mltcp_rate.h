/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Rates from the network's feedback: the law of `mltcp_int`, as integer functions.
 *
 * After HPCC (Li et al., SIGCOMM 2019): once per round trip a flow sets its window to what the path
 * has room for, so that it is right after one step whether it was too large or too small. What a
 * flow is entitled to is what it delivered, over how busy the busiest hop was meanwhile; the window
 * is that for as long as a round trip takes with the queue that the flow accepts:
 *
 *     window = delivered / interval / busy * (round trip without a queue + accepted queue)
 *
 * The accepted queue is weighted by how far the job is through its iteration (MLTCP). Where flows
 * share a hop, each round trip takes share from those that accept less and gives it to those that
 * accept more: after some of them the job ahead has nearly all, and the others wait. So does the
 * additive part, by F. This is a design in the spirit of MLCC (Zhao et al., IEEE TNSM 2024), whose own law
 * isn't public; what differs from HPCC:
 *
 *  - A hop says two numbers in two bytes, not a history; what is delivered the sender counts itself.
 *    The reference is the rate that came about, as in BBR, not the window that was asked for: a
 *    window set twice upon the same news would swing.
 *  - The target is a short queue (target_us), not a link that is 95 % busy: a few packets at random
 *    make a queue at 80 % already, and a link without one is idle part of the time.
 *  - Windows below two segments are sent as rates: a queue of 200 us has room for three packets at
 *    200 Mbit/s, fewer than flows that wait for their turn.
 *  - The flows of a job are one to it: all it delivers is shared out by what each has left to send,
 *    so that a host's own flows don't fight and are done together (struct mltcp_rate_job).
 *
 * Without feedback for some round trips the flow is its base (mltcp_rate_fresh()). Includers are as
 * for mltcp_core.h; one whose flows run on several processors defines MLTCP_ADD. Times are
 * nanoseconds of a monotonic clock unless a name ends in _us.
 */
#ifndef MLTCP_RATE_H
#define MLTCP_RATE_H

#include "mltcp_hop.h"

#ifndef MLTCP_ADD
#define MLTCP_ADD(to, count) (*(to) += (count))
#endif

/* What applies where user space has said nothing: struct mltcp_rate_params. */
#define MLTCP_RATE_DEFAULT_TARGET_US 200
#define MLTCP_RATE_DEFAULT_LOW (MLTCP_ONE / 5)
#define MLTCP_RATE_DEFAULT_ADD_BYTES 362

/* Feedback that is older than so many round trips, and than so many nanoseconds, is none. */
#define MLTCP_STALE_RTTS 4
#define MLTCP_STALE_NS 5000000ULL

/*
 * A slot that another path or job has used is free when it did so that long ago, and a
 * flow that was silent for so long begins anew. Nanoseconds.
 */
#define MLTCP_RATE_KEPT_NS 1000000000ULL

/* On long paths the queue that is accepted is this part of the round trip. */
#define MLTCP_RATE_RTT_SHARE 2

/* On slow links it has room for so many full segments. */
#define MLTCP_RATE_SEGMENTS 3

/* Round trips without a queue differ by so small a part of themselves, or by so many microseconds. */
#define MLTCP_RATE_NOISE 16
#define MLTCP_RATE_NOISE_US 50

/* Full segments whose sending time is no queue, to a host that goes by round trips. */
#define MLTCP_RATE_NOISY 2

/* A word of a hop counts for at least this share of the average, fixed point. */
#define MLTCP_RATE_NEWS (MLTCP_ONE / 8)

/* An ACK's delay counts for so much of the average of what hosts take, fixed point. */
#define MLTCP_RATE_LATE (MLTCP_ONE / 16)

/* So many times in a round trip a packet asks the hops. */
#define MLTCP_RATE_ASKS 4

/* The window never changes by more than this factor in one step. */
#define MLTCP_RATE_STEP 2

/* Of a flow to which much comes back, the window goes this part of the way in one step. */
#define MLTCP_RATE_CAUTION 4

/* Nothing is less busy than this to a step, fixed point. */
#define MLTCP_RATE_BUSY_MIN (MLTCP_ONE / 16)

/* A queue so many times as long as is accepted: the hop is busy, whatever its average says. */
#define MLTCP_RATE_SURELY 2

/*
 * All flows of a job together send a packet at least this often, so that they hear when it is their
 * turn; but no flow needs more than MLTCP_CWND_MIN segments in a round trip. Microseconds.
 */
#define MLTCP_RATE_PAUSE_US 2000

/* The flow gets at least this part of an equal share. */
#define MLTCP_RATE_SHARE_MIN 4

struct mltcp_rate_params {
	__u32 target_us; /* queue's delay that a flow at the end of its burst accepts, at least */
	__u32 low; /* share of it that a flow at the beginning accepts, fixed point */
	__u32 add_bytes; /* added to a window per round trip at F = 1, bytes */
	__u32 host; /* 1: the host's own round trips are the feedback */
};

/* What a host's flows have heard of a path. All zero: nothing yet. */
struct mltcp_rate_path {
	__u64 heard_ns; /* time of the latest feedback; 0: never */
	__u32 busy; /* of the busiest hop, average over the round trip, fixed point */
	__u32 queue_us; /* delay of its queue, likewise, microseconds */
	__u32 key; /* of the path, where paths share a table */
	__u32 pad;
};

/*
 * The flows of a job on a path: how far they are through their burst together. All zero for a new
 * one. Flows on several processors write to it without a lock; what is lost by that is little.
 */
struct mltcp_rate_job {
	__u64 acked; /* bytes, in all */
	__u64 begun; /* bytes where the present burst began */
	__u64 total; /* bytes of the burst before it; 0: there was none */
	__u64 last_ns; /* time of the latest ACK */
	__u64 gap_ns; /* the shortest silence before an iteration of a flow */
	__u64 kib_ns; /* the shortest time in which a KiB was delivered; 0: not known */
	__u32 flows; /* that have begun the present burst */
	__u32 bursts; /* since the job began */
	__u32 key; /* of job and path, where they share a table */
	__u32 pad;
};

/* What a flow keeps. All zero for a new one. */
struct mltcp_rate {
	__u64 window; /* bytes */
	__u64 stepped_ns; /* time of the latest step */
	__u64 stepped_bytes; /* mltcp_rate_job::acked at that time */
	__u32 cwnd; /* given last, segments */
	__u32 rtt_us; /* round trip that the window is for, microseconds */
	__u32 steps; /* since the flow began */
	__u32 fallbacks; /* times that the feedback was found to be gone */
	__u32 bursts; /* mltcp_rate_job::bursts then */
	__u32 late_us; /* what round trips take beyond the least and the hops' queues, average */
	__u8 follows; /* 1: the law has the window; 0: the base has */
	__u8 pad[3];
};

/* The connection, as an ACK finds it. */
struct mltcp_rate_ack {
	__u64 now;
	__u32 cwnd; /* segments */
	__u32 mss; /* bytes */
	__u32 rtt_us; /* smoothed RTT, microseconds; to mltcp_rate_guess() the sample */
	__u32 min_rtt_us;
};

/*
 * Nanoseconds since then. What flows share may be later than now, which is when the present ACK came:
 * other processors have written since, and the word of this very ACK is heard after it came.
 */
static inline __u64 mltcp_rate_since(__u64 now, __u64 then)
{
	return now > then ? now - then : 0;
}

/* Is the slot of that path's, or may it be? Where it is another's, the flow keeps to itself. */
static inline __u8 mltcp_rate_path_is(struct mltcp_rate_path *path, __u32 key, __u64 now)
{
	struct mltcp_rate_path fresh = {.key = key};

	if (path->key == key)
		return 1;
	if (path->heard_ns && mltcp_rate_since(now, path->heard_ns) < MLTCP_RATE_KEPT_NS)
		return 0;
	*path = fresh;
	return 1;
}

/* Is the slot of that job's on that path, or may it be? */
static inline __u8 mltcp_rate_job_is(struct mltcp_rate_job *j, __u32 key, __u64 now)
{
	struct mltcp_rate_job fresh = {.key = key};

	if (j->key == key)
		return 1;
	if (j->last_ns && mltcp_rate_since(now, j->last_ns) < MLTCP_RATE_KEPT_NS)
		return 0;
	*j = fresh;
	return 1;
}

/*
 * An ACK of one of the job's flows that acknowledges so many bytes. begins: it begins this iteration
 * of the flow, counted from 1, or 0. The flow's usual gap is gap_ns; 0: not known yet.
 */
static inline void mltcp_rate_job_ack(struct mltcp_rate_job *j, __u64 now, __u64 bytes,
				      __u32 begins, __u64 gap_ns)
{
	if (begins) {
		j->gap_ns += j->gap_ns / 8;
		if (gap_ns && (!j->gap_ns || gap_ns < j->gap_ns))
			j->gap_ns = gap_ns;
		/* The first of the flows: the job was silent, not just this flow. */
		if (!j->bursts ||
		    (j->gap_ns && mltcp_rate_since(now, j->last_ns) > j->gap_ns / 2)) {
			j->total = j->acked - j->begun;
			j->begun = j->acked;
			j->flows = 0;
			j->bursts++;
			j->kib_ns += j->kib_ns / 8; /* routes may change */
		}
		/* Where no gap tells one burst from the next, each flow counts once. */
		if (j->gap_ns || !j->flows || begins == 1)
			MLTCP_ADD(&j->flows, 1);
	}
	MLTCP_ADD(&j->acked, bytes);
	j->last_ns = now;
}

/* How far the job is through its burst, fixed point; the flow, where that isn't known. */
static inline __u32 mltcp_rate_progress(const struct mltcp_rate_job *j, const struct mltcp_flow *f)
{
	__u64 sent = j->acked - j->begun;

	if (!f->active || !j->total || mltcp_overruns(sent, j->total))
		return f->ratio;
	return mltcp_ratio(sent, j->total);
}

/*
 * The flow's share of what its job sends, fixed point: that of what is left to send, so that flows
 * of unequal size are done together; an equal one where that isn't known.
 */
static inline __u32 mltcp_rate_share(const struct mltcp_rate_job *j, const struct mltcp_flow *f)
{
	__u32 equal = MLTCP_ONE / (j->flows ? j->flows : 1), least = equal / MLTCP_RATE_SHARE_MIN;
	__u64 sent = j->acked - j->begun, left;
	__u32 share;

	if (!f->active || !f->ratio || sent >= j->total)
		return equal;
	left = mltcp_div64(mltcp_sent(f) * (MLTCP_ONE - f->ratio), f->ratio);
	share = mltcp_ratio(left, j->total - sent);
	return share > least ? share : least;
}

/* The path's round trip with the queue that it has, microseconds, 1 at least. */
static inline __u32 mltcp_rate_rtt(const struct mltcp_rate_path *path, __u32 min_rtt_us)
{
	__u32 rtt_us = min_rtt_us + path->queue_us;

	return rtt_us ? rtt_us : 1;
}

/* Is the feedback new enough to go by? */
static inline __u8 mltcp_rate_fresh(const struct mltcp_rate_path *path, __u64 now, __u32 min_rtt_us)
{
	__u64 stale = mltcp_rate_rtt(path, min_rtt_us) * 1000ULL * MLTCP_STALE_RTTS;

	if (stale < MLTCP_STALE_NS)
		stale = MLTCP_STALE_NS;
	return path->heard_ns && mltcp_rate_since(now, path->heard_ns) <= stale;
}

/*
 * Is a packet that is sent now to ask the hops, where the latest that did so was sent at asked_ns?
 * Only some do: receivers can't join those that differ in what hops wrote into them (GRO).
 */
static inline __u8 mltcp_rate_asks(__u64 now, __u64 asked_ns, __u32 rtt_us)
{
	return now - asked_ns >= (__u64)rtt_us * (1000 / MLTCP_RATE_ASKS);
}

/* The word of the worst hop came with an ACK. */
static inline void mltcp_rate_hear(struct mltcp_rate_path *path, __u64 now, __u32 word,
				   __u32 min_rtt_us)
{
	__u64 passed = mltcp_rate_since(now, path->heard_ns);
	__u64 span = mltcp_rate_rtt(path, min_rtt_us) * 1000ULL;
	__u32 queue_us = mltcp_hop_queue_us(word), busy = mltcp_hop_busy(word), weight;

	if (mltcp_rate_fresh(path, now, min_rtt_us)) {
		/* An average over a round trip, of which a word is worth the time since the last. */
		weight = mltcp_ratio(passed, span);
		if (weight < MLTCP_RATE_NEWS)
			weight = MLTCP_RATE_NEWS;
		queue_us = mltcp_between(path->queue_us, queue_us, weight);
		busy = mltcp_between(path->busy, busy, weight);
	}
	path->queue_us = queue_us;
	path->busy = busy;
	path->heard_ns = now;
}

/* What the job's link takes for so many full segments, as far as is known, microseconds. */
static inline __u32 mltcp_rate_segments_us(const struct mltcp_rate_job *j, __u32 mss,
					   __u32 segments)
{
	return (__u32)mltcp_div64(j->kib_ns * mss * segments >> 10, 1000);
}

/*
 * What an end alone can tell, as a hop would say it: the delay of the queues on its path, from its
 * round trips, which differ without a queue, too: a short packet takes less time than full ones on
 * each link, which MLTCP_RATE_NOISY of them make up for.
 */
static inline __u32 mltcp_rate_guess(const struct mltcp_rate_job *j, const struct mltcp_rate_ack *a)
{
	__u32 noise_us = a->min_rtt_us / MLTCP_RATE_NOISE;
	__u32 queue_us = mltcp_queue_us(a->rtt_us, a->min_rtt_us);
	__u32 segments_us = mltcp_rate_segments_us(j, a->mss, MLTCP_RATE_NOISY);

	queue_us -= queue_us < segments_us ? queue_us : segments_us;
	if (noise_us < MLTCP_RATE_NOISE_US)
		noise_us = MLTCP_RATE_NOISE_US;
	/* No queue: at most this busy, so that the window grows by a half in a round trip. */
	return mltcp_hop_word(queue_us > noise_us ? MLTCP_ONE : MLTCP_ONE / 3 * 2, queue_us);
}

/* Delay of the queue that a flow at the end of its burst accepts, microseconds. */
static inline __u32 mltcp_rate_target(const struct mltcp_rate_params *p,
				      const struct mltcp_rate_job *j,
				      const struct mltcp_rate_ack *a)
{
	__u32 most = a->min_rtt_us / MLTCP_RATE_RTT_SHARE;
	__u32 least = mltcp_rate_segments_us(j, a->mss, MLTCP_RATE_SEGMENTS);

	if (most < p->target_us)
		most = p->target_us;
	return most > least ? most : least;
}

/* Delay of the queue that the flow accepts, microseconds. */
static inline __u32 mltcp_rate_accepts(const struct mltcp_rate_params *p,
				       const struct mltcp_rate_job *j, const struct mltcp_flow *f,
				       const struct mltcp_rate_ack *a)
{
	__u32 share = mltcp_between(p->low, MLTCP_ONE, mltcp_rate_progress(j, f));

	return mltcp_scale(mltcp_rate_target(p, j, a), share);
}

/*
 * The round trip without a queue, microseconds: the least, and what hosts take longer than that to
 * answer, for a window that is too small for them leaves the link idle. Hops say what the queues
 * take; the rest is the hosts', up to a bound, lest a queue that no hop tells of feeds itself. To
 * a host that goes by round trips all is queue.
 */
static inline __u32 mltcp_rate_base(struct mltcp_rate *r, const struct mltcp_rate_params *p,
				    const struct mltcp_rate_path *path,
				    const struct mltcp_rate_job *j, const struct mltcp_rate_ack *a)
{
	__u32 most = mltcp_rate_target(p, j, a), late_us;

	if (p->host)
		return a->min_rtt_us;
	late_us = mltcp_queue_us(a->rtt_us, a->min_rtt_us);
	late_us -= path->queue_us < late_us ? path->queue_us : late_us;
	r->late_us = mltcp_between(r->late_us, late_us < most ? late_us : most, MLTCP_RATE_LATE);
	return a->min_rtt_us + r->late_us;
}

/* The smallest window, bytes, 1 at least: from none there would be no way back. */
static inline __u64 mltcp_rate_least(const struct mltcp_rate_job *j, __u32 mss, __u32 rtt_us)
{
	__u64 least = mltcp_div64((__u64)mss * rtt_us,
				  MLTCP_RATE_PAUSE_US * (__u64)(j->flows ? j->flows : 1));

	if (least > (__u64)MLTCP_CWND_MIN * mss)
		least = (__u64)MLTCP_CWND_MIN * mss;
	return least ? least : 1;
}

/* So many bytes were delivered within so many microseconds. */
static inline void mltcp_rate_note(struct mltcp_rate_job *j, __u64 delivered, __u64 interval_us)
{
	__u64 kib_ns = mltcp_div64(interval_us * 1000 << 10, delivered);

	if (!j->kib_ns || kib_ns < j->kib_ns)
		j->kib_ns = kib_ns;
}

/*
 * The window after so many bytes that the job delivered within so many microseconds, bytes.
 * base_us: the round trip without a queue.
 */
static inline __u64 mltcp_rate_step(const struct mltcp_rate *r, const struct mltcp_rate_params *p,
				    const struct mltcp_rate_path *path,
				    const struct mltcp_rate_job *j, const struct mltcp_flow *f,
				    const struct mltcp_rate_ack *a, __u32 base_us, __u64 delivered,
				    __u64 interval_us)
{
	__u32 accepts = mltcp_rate_accepts(p, j, f, a);
	__u32 busy = path->busy > MLTCP_RATE_BUSY_MIN ? path->busy : MLTCP_RATE_BUSY_MIN;
	__u64 window, least;

	if (path->queue_us > MLTCP_RATE_SURELY * accepts)
		busy = MLTCP_ONE;
	window = mltcp_div64(delivered * (base_us + accepts), interval_us);
	window = mltcp_div64(window * mltcp_rate_share(j, f), busy);
	window += mltcp_scale(p->add_bytes, f->gain);
	/* ACKs wait behind what the peer sends, so that what they tell is late, and comes in heaps. */
	if (f->flags & MLTCP_BIDIRECTIONAL)
		window = (window + (MLTCP_RATE_CAUTION - 1) * r->window) / MLTCP_RATE_CAUTION;
	if (window > r->window * MLTCP_RATE_STEP)
		window = r->window * MLTCP_RATE_STEP;
	if (window < r->window / MLTCP_RATE_STEP)
		window = r->window / MLTCP_RATE_STEP;
	least = mltcp_rate_least(j, a->mss, mltcp_rate_rtt(path, base_us));
	return window > least ? window : least;
}

/*
 * An ACK: step if a round trip has passed since the last step. f: the flow's MLTCP state. Returns
 * the window in segments, one more than the law asks for: it is pacing that keeps to it
 * (mltcp_rate_pacing()), so that less than two segments can be sent in a round trip.
 */
static inline __u32 mltcp_rate_window(struct mltcp_rate *r, const struct mltcp_rate_params *p,
				      const struct mltcp_rate_path *path, struct mltcp_rate_job *j,
				      const struct mltcp_flow *f, const struct mltcp_rate_ack *a)
{
	__u64 passed_ns = a->now - r->stepped_ns, passed_us, delivered;
	__u32 base_us = mltcp_rate_base(r, p, path, j, a);
	__u32 rtt_us = mltcp_rate_rtt(path, base_us);

	/*
	 * After a pause the path may be another one, and what was delivered says nothing; nor does it
	 * where the job's slot, or the job, is another one since.
	 */
	if (!r->follows || r->bursts != j->bursts || passed_ns > MLTCP_RATE_KEPT_NS ||
	    j->acked < r->stepped_bytes) {
		r->follows = 1;
		r->bursts = j->bursts;
		r->window = (__u64)a->cwnd * a->mss;
		r->cwnd = a->cwnd;
		r->rtt_us = rtt_us;
		r->stepped_ns = a->now;
		r->stepped_bytes = j->acked;
		return a->cwnd;
	}
	/*
	 * The application had nothing to send: what was delivered meanwhile says nothing of the path.
	 * A window of two segments or less has pauses of its own, and a queue that is too long in spite
	 * of a pause must shrink.
	 */
	if (f->send_ns > r->stepped_ns && r->window > 2ULL * a->mss &&
	    path->queue_us <= MLTCP_RATE_SURELY * mltcp_rate_accepts(p, j, f, a)) {
		r->stepped_ns = a->now;
		r->stepped_bytes = j->acked;
		return r->cwnd;
	}
	if (a->cwnd < r->cwnd) /* a loss has left less */
		r->window = mltcp_div64(r->window * a->cwnd, r->cwnd);
	passed_us = mltcp_div64(passed_ns, 1000);
	delivered = j->acked - r->stepped_bytes;
	if (passed_us >= rtt_us && delivered >= a->mss) {
		mltcp_rate_note(j, delivered, passed_us);
		r->window = mltcp_rate_step(r, p, path, j, f, a, base_us, delivered, passed_us);
		r->rtt_us = rtt_us;
		r->stepped_ns = a->now;
		r->stepped_bytes = j->acked;
		r->steps++;
	}
	r->cwnd = (__u32)mltcp_div64(r->window + a->mss - 1, a->mss) + 1;
	return r->cwnd;
}

/*
 * Bytes per second at which to send; 0: as the kernel does, for the base has the window. A window of
 * some segments is kept to by the ACKs that come back, and timers that fire late would leave the
 * link idle, so sending is twice as fast then. What is less than two segments pacing alone keeps to.
 */
static inline __u64 mltcp_rate_pacing(const struct mltcp_rate *r, __u32 mss)
{
	__u64 window = r->window, more = window > mss ? window - mss : 0;

	if (!r->follows || !r->rtt_us)
		return 0;
	/* As continuous as the window is: all of it twice from two segments on. */
	window += window < 2ULL * mss ? mltcp_div64(window * more, mss) : window;
	return mltcp_div64(window * 1000000, r->rtt_us);
}

/* There is no feedback: the base goes on from the window that the law has left it. */
static inline void mltcp_rate_lose(struct mltcp_rate *r)
{
	if (!r->follows)
		return;
	r->follows = 0;
	r->fallbacks++;
}

#endif
