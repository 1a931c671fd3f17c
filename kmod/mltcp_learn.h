/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What an iteration looks like, learned from the flow itself. In the paper flows learn their total
 * bytes in the first iterations (MLTCP, arXiv 2402.09589); this file says how flows do it here.
 *
 * A training job sends the same bytes in each iteration, however long the iteration takes, and then
 * computes. A burst may have gaps, too, between the chunks of a collective or the buckets of a backward
 * pass, but shorter ones. So where a gap ends, the flow looks back at the gaps that are about as long
 * or longer: if what it sent between them has come back, that is an iteration. From then on a boundary is
 * a gap after so many bytes.
 *
 * Of the gaps it remembers those that are longest for the bytes that have been sent since: chunks of a
 * burst don't displace the gaps between iterations, and what is long past fades.
 *
 * Called once per gap, not per ACK. Sizes are KiB: acknowledged bytes >> MLTCP_KIB_SHIFT.
 */
#ifndef MLTCP_LEARN_H
#define MLTCP_LEARN_H

#include "mltcp_uapi.h"

#ifndef mltcp_div64
#define mltcp_div64(n, d) ((n) / (d))
#endif

#define MLTCP_KIB_SHIFT 10

/* Shorter gaps are the network's or the scheduler's, not a job's computing, whatever a job says. */
#define MLTCP_GAP_MIN_NS 1000000ULL

/* A gap this many times as long as another is of another kind. */
#define MLTCP_LONGER 3

/* What is less than this is a greeting, a heartbeat, or the sum of a loss, and no piece of a burst. KiB. */
#define MLTCP_PIECE_MIN 2

/* Smaller bursts are sent within a few windows: nothing to share out. KiB. */
#define MLTCP_TOTAL_MIN 32

/* Two sizes are the same if they differ by no more than this share (and a rounding of KiB). */
#define MLTCP_SIZE_TOLERANCE 32

/* What was just learned has so much confidence. An unexpected iteration costs as much, an expected one gains 1. */
#define MLTCP_DOUBT 3

static inline __u32 mltcp_kib(__u64 bytes)
{
	return (__u32)(bytes >> MLTCP_KIB_SHIFT);
}

/* Gaps longer than any that a job may state are all the same. Microseconds. */
static inline __u32 mltcp_gap_us(__u64 gap_ns)
{
	return mltcp_div64(gap_ns < MLTCP_GAP_MAX_NS ? gap_ns : MLTCP_GAP_MAX_NS, 1000);
}

static inline __u8 mltcp_same_size(__u64 a, __u64 b)
{
	__u64 larger = a > b ? a : b, smaller = a > b ? b : a;

	return larger - smaller <= larger / MLTCP_SIZE_TOLERANCE + MLTCP_PIECE_MIN;
}

/* Does the flow know what an iteration is? */
static inline __u8 mltcp_is_sure(const struct mltcp_flow *f)
{
	return f->confidence != 0;
}

/*
 * Bytes of one iteration of the flow, as given or as learned; 0: unknown, or unreliable. What the job
 * says isn't raised within an iteration: raised with each byte sent it would keep F at its largest.
 */
static inline __u64 mltcp_total(const struct mltcp_flow *f)
{
	if (f->told_bytes)
		return f->told_bytes;
	return mltcp_is_sure(f) ? (__u64)f->total_kib << MLTCP_KIB_SHIFT : 0;
}

/* Remember a gap, in place of the one that is shortest for the bytes since then. */
static inline void mltcp_add_gap(struct mltcp_flow *f, __u32 kib, __u32 gap_us)
{
	__u32 i, out = 1;

	for (i = 2; i < MLTCP_GAPS; i++)
		if ((__u64)f->gaps[i].us * (kib - f->gaps[out].kib) <=
		    (__u64)f->gaps[out].us * (kib - f->gaps[i].kib))
			out = i;
	for (i = MLTCP_GAPS - 1; i > 0; i--)
		if (i <= out)
			f->gaps[i] = f->gaps[i - 1];
	f->gaps[0].kib = kib;
	f->gaps[0].us = gap_us;
}

/*
 * Have the latest `count` of these sizes come twice in a row? They begin after the longest of their gaps;
 * gap_us is the present one.
 */
static inline __u8 mltcp_come_back(const struct mltcp_gap *sizes, __u32 count, __u32 gap_us)
{
	__u32 i;

	for (i = 0; i < count; i++)
		if (!sizes[i + count].us || !mltcp_same_size(sizes[i].kib, sizes[i + count].kib) ||
		    (i + 1 < count && sizes[i].us > gap_us))
			return 0;
	return 1;
}

/*
 * KiB of an iteration that ends with the present gap, for one, two or three pieces between gaps of its
 * kind, or longer ones, have come back; 0: none.
 */
static inline __u32 mltcp_repeated(const struct mltcp_flow *f, __u32 kib, __u32 gap_us)
{
	struct mltcp_gap sizes[MLTCP_GAPS / 2] = {}; /* between gaps, and the gap before each */
	__u32 i, n = 0, end = kib, total = 0;

	for (i = 0; i < MLTCP_GAPS; i++) {
		if (f->gaps[i].us < gap_us / MLTCP_LONGER || n == MLTCP_GAPS / 2)
			continue;
		sizes[n].us = f->gaps[i].us;
		sizes[n++].kib = end - f->gaps[i].kib;
		end = f->gaps[i].kib;
	}
	for (i = 1; i <= MLTCP_GAPS / 4; i++) {
		total += sizes[i - 1].kib;
		if (mltcp_come_back(sizes, i, gap_us))
			return total < MLTCP_TOTAL_MIN ? 0 : total;
	}
	return 0;
}

static inline void mltcp_doubt(struct mltcp_flow *f)
{
	f->confidence -= f->confidence < MLTCP_DOUBT ? f->confidence : MLTCP_DOUBT;
}

/* The usual gap follows this one, which counts as MLTCP_LONGER times the usual at most. */
static inline void mltcp_follow_gap(struct mltcp_flow *f, __u32 gap_us)
{
	if (!f->gap_us)
		f->gap_us = gap_us;
	else if (gap_us / MLTCP_LONGER > f->gap_us)
		f->gap_us += (MLTCP_LONGER - 1) * (f->gap_us / 4);
	else
		f->gap_us = f->gap_us - f->gap_us / 4 + gap_us / 4;
}

/*
 * Nothing was known of iterations, or they end at far longer gaps than it seemed; not at those that take
 * little of the time, such as of a job that saves its state now and then. A stated size is found again
 * where it ends at such a gap, too.
 */
static inline __u8 mltcp_is_news(const struct mltcp_flow *f, __u32 gap_us, __u32 again, __u64 total,
				 __u8 complete)
{
	__u8 other = !mltcp_same_size(again, total) || (f->told_bytes && !complete);

	return again &&
	       (!total || (other && gap_us / MLTCP_LONGER > f->gap_us &&
			   (__u64)gap_us * MLTCP_LONGER * total >= (__u64)f->gap_us * again));
}

/*
 * A gap has ended, and so many KiB have come back. True when an iteration ends there, too; while nothing is
 * known, every gap ends one that isn't far shorter than usual.
 */
static inline __u8 mltcp_gap_ended(struct mltcp_flow *f, __u32 gap_us, __u32 again)
{
	__u64 sent = (f->acked_bytes - f->start_bytes) >> MLTCP_KIB_SHIFT;
	__u64 total = mltcp_total(f) >> MLTCP_KIB_SHIFT;
	__u8 counts = gap_us >= f->gap_us / MLTCP_LONGER;
	__u8 complete = sent >= total || mltcp_same_size(sent, total);

	if (f->told_bytes && !mltcp_same_size(again, total))
		again = 0;
	if (mltcp_is_news(f, gap_us, again, total, complete)) {
		f->total_kib = again;
		f->confidence = MLTCP_DOUBT;
		f->gap_us = gap_us;
		return sent >= MLTCP_PIECE_MIN;
	}
	if (total && !counts) {
		if (sent / 2 > total) { /* gaps have become shorter */
			f->confidence = 0;
			if (f->told_bytes)
				f->gap_us = gap_us;
		}
		return 0;
	}
	if (total && ((again && gap_us > f->gap_us / 2 && !mltcp_same_size(again, total)) ||
		      (complete && !mltcp_same_size(sent, total))))
		mltcp_doubt(f);
	else if (complete && total && f->confidence < MLTCP_CONFIDENCE_MAX)
		f->confidence++;
	if (!complete)
		return 0;
	mltcp_follow_gap(f, gap_us);
	return counts && sent >= MLTCP_PIECE_MIN;
}

/*
 * Sending began at send_ns, after nothing had been outstanding since last_ns, and the data is now
 * acknowledged. True when the gap between the two begins a new iteration.
 *
 * The time after send_ns doesn't count: a flow whose packets wait for their ACK isn't computing but
 * stuck, however long that lasts, so a retransmission time-out is never a boundary.
 */
static inline __u8 mltcp_after_gap(struct mltcp_flow *f, const struct mltcp_params *p)
{
	__u64 gap_ns = f->send_ns - f->last_ns;
	__u32 kib = mltcp_kib(f->acked_bytes), gap_us = mltcp_gap_us(gap_ns), again;
	__u8 few = !p->gap_ns && kib - f->gaps[0].kib < MLTCP_PIECE_MIN;

	if (gap_ns < MLTCP_GAP_MIN_NS || gap_ns < p->gap_ns)
		return 0;
	/* A few bytes don't end a silence: of the gaps before and after them the longer one counts. */
	if (few && gap_us <= f->gaps[0].us)
		return 0;
	if (few)
		f->gaps[0].us = 0;
	again = mltcp_repeated(f, kib, gap_us);
	if (few)
		f->gaps[0].us = gap_us;
	else
		mltcp_add_gap(f, kib, gap_us);
	return mltcp_gap_ended(f, gap_us, again) || p->gap_ns;
}

#endif
