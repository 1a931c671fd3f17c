/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What an iteration looks like, learned from the flow itself. In the paper flows learn their total
 * bytes in the first iterations (MLTCP, arXiv 2402.09589); this file says how flows do it here.
 *
 * A training job sends the same bytes in each iteration, however long the iteration takes. So the
 * gaps in which nothing was outstanding are looked at, and the bytes between them: bytes that come
 * back are an iteration, and from then on a boundary is a gap after so many bytes.
 *
 * Not every gap counts. A burst may have gaps, too, between the chunks of a collective or the
 * buckets of a backward pass. The gaps that count are of one kind, at least a third as long as
 * usual. When a kind at least MLTCP_LONGER times as long comes back, iterations end there, and what
 * looked like bursts were pieces of one burst.
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

/* A gap this many times as long as those that count is of another kind. */
#define MLTCP_LONGER 3

/*
 * A longer gap has come back if another follows within this time, or within so many times its own
 * length: large models take minutes for an iteration, and send during little of it. Milliseconds.
 */
#define MLTCP_LONGER_WITHIN_MS 30000
#define MLTCP_LONGER_WITHIN 8

/* A shorter gap is hardly a compute phase. Microseconds. */
#define MLTCP_FINE_US 20000

/* What is sent between two gaps is a greeting or a heartbeat if it is less than this. KiB. */
#define MLTCP_PIECE_MIN 2

/* Smaller bursts are sent within a few windows: nothing to share out. KiB. */
#define MLTCP_TOTAL_MIN 16

/* Two pieces smaller than this may be the same by chance: three must be. KiB. */
#define MLTCP_SMALL 64

/* Two sizes are the same if they differ by no more than this share (and a rounding of KiB). */
#define MLTCP_SIZE_TOLERANCE 32

/* Largest piece: three of them are an iteration that 32 bits hold, 3 TiB. KiB. */
#define MLTCP_PIECE_MAX (1U << 30)

/* The gap after a piece is kept in 1/32 of the usual one, in 8 bits. */
#define MLTCP_PIECE_GAP 32
#define MLTCP_PIECE_GAP_MAX 255

/* A gap between iterations of equal pieces is at least 1.4 times as long as the others. */
#define MLTCP_APART_NUM 7
#define MLTCP_APART_DEN 5

/* An unexpected iteration costs so much confidence; an expected one gains 1. */
#define MLTCP_CONFIDENCE_LOST 4

static inline __u32 mltcp_kib(__u64 bytes)
{
	return (__u32)(bytes >> MLTCP_KIB_SHIFT);
}

/* Gaps longer than any that a job may state are all the same. Microseconds. */
static inline __u32 mltcp_gap_us(__u64 gap_ns)
{
	return mltcp_div64(gap_ns < MLTCP_GAP_MAX_NS ? gap_ns : MLTCP_GAP_MAX_NS, 1000);
}

static inline __u8 mltcp_same_size(__u32 a, __u32 b)
{
	__u32 larger = a > b ? a : b, smaller = a > b ? b : a;

	return larger - smaller <= larger / MLTCP_SIZE_TOLERANCE + 2;
}

/*
 * Is what was sent since the latest gap that counts a greeting or a heartbeat? The gap after it says
 * nothing: the pauses while a job starts would pass for the usual gaps, and the usual ones would then
 * not count.
 */
static inline __u8 mltcp_is_greeting(const struct mltcp_flow *f, __u64 acked_bytes)
{
	return mltcp_kib(acked_bytes) - f->piece_kib < MLTCP_PIECE_MIN;
}

/* Does the flow know what an iteration is? */
static inline __u8 mltcp_is_sure(const struct mltcp_flow *f)
{
	return f->confidence >= MLTCP_CONFIDENT;
}

/* What the flow has learned no longer holds, and gaps of another length count from here on. */
static inline void mltcp_unlearn(struct mltcp_flow *f, __u32 gap_us)
{
	f->gap_us = gap_us;
	f->inner_us = 0;
	f->piece_count = 0;
	f->total_kib = 0;
	f->confidence = 0;
}

/* Keep the size of the piece that the gap ends, the latest first. */
static inline void mltcp_add_piece(struct mltcp_flow *f, __u32 size, __u32 gap_us)
{
	__u64 gap = f->gap_us ? mltcp_div64((__u64)gap_us * MLTCP_PIECE_GAP, f->gap_us) : 0;
	int i;

	for (i = MLTCP_PIECES - 1; i > 0; i--) {
		f->pieces[i] = f->pieces[i - 1];
		f->piece_gaps[i] = f->piece_gaps[i - 1];
	}
	f->pieces[0] = size < MLTCP_PIECE_MAX ? size : MLTCP_PIECE_MAX;
	f->piece_gaps[0] = gap < MLTCP_PIECE_GAP_MAX ? gap : MLTCP_PIECE_GAP_MAX;
	if (f->piece_count < MLTCP_PIECES)
		f->piece_count++;
}

/* Do the latest pieces repeat every `count` pieces? There must be two rounds of them. */
static inline __u8 mltcp_repeats(const struct mltcp_flow *f, __u32 count)
{
	__u32 i;

	if (f->piece_count < 2 * count)
		return 0;
	for (i = 0; i < MLTCP_PIECES / 2; i++)
		if (i < count && !mltcp_same_size(f->pieces[i], f->pieces[i + count]))
			return 0;
	return 1;
}

/* Which of the latest `count` pieces has the longest gap after it; 0 is the latest piece. */
static inline __u32 mltcp_longest_gap(const struct mltcp_flow *f, __u32 count)
{
	__u32 i, longest = 0;

	for (i = 1; i < MLTCP_PIECES / 2; i++)
		if (i < count && f->piece_gaps[i] > f->piece_gaps[longest])
			longest = i;
	return longest;
}

/*
 * Does a longer gap follow every `count` of equal pieces? All of the history must show this, for
 * gaps vary by themselves.
 */
static inline __u8 mltcp_set_apart(const struct mltcp_flow *f, __u32 count)
{
	__u32 longest = mltcp_longest_gap(f, count), i, at;

	if (f->piece_count < MLTCP_PIECES)
		return 0;
	for (i = 0; i < MLTCP_PIECES; i++) {
		if (!mltcp_same_size(f->pieces[0], f->pieces[i]))
			return 0;
		at = i - i % count + longest;
		if (i != at && at < MLTCP_PIECES &&
		    f->piece_gaps[at] * MLTCP_APART_DEN <= f->piece_gaps[i] * MLTCP_APART_NUM)
			return 0;
	}
	return 1;
}

/* How many pieces make up an iteration, judged by the latest ones; 0: unknown. */
static inline __u32 mltcp_pieces_per_iteration(const struct mltcp_flow *f)
{
	if (mltcp_repeats(f, 1)) {
		if (f->pieces[0] < MLTCP_SMALL &&
		    !(f->piece_count > 2 && mltcp_same_size(f->pieces[0], f->pieces[2])))
			return 0;
		if (mltcp_set_apart(f, 2))
			return 2;
		return mltcp_set_apart(f, 3) ? 3 : 1;
	}
	if (mltcp_repeats(f, 2))
		return 2;
	return mltcp_repeats(f, 3) ? 3 : 0;
}

/* The size of the latest `count` pieces together. */
static inline __u32 mltcp_latest(const struct mltcp_flow *f, __u32 count)
{
	__u32 i, size = 0;

	for (i = 0; i < MLTCP_PIECES / 2; i++)
		if (i < count)
			size += f->pieces[i];
	return size;
}

/*
 * The gap is far longer than those that count. True when its kind has come back, so that only its
 * kind counts from here on. A flow that is sure of its iterations gives them up only if the bytes
 * between the longer gaps are the same twice: a job that saves its state now and then pauses, too.
 */
static inline __u8 mltcp_longer_gap(struct mltcp_flow *f, __u32 gap_us, __u64 now)
{
	__u32 now_ms = (__u32)mltcp_div64(now, 1000000), now_kib = mltcp_kib(f->acked_bytes);
	__u32 size = now_kib - f->longer_kib, before = f->longer_size;
	__u32 kind_us = f->longer_us < gap_us ? f->longer_us : gap_us; /* of this and the last */
	__u64 within_ms = mltcp_div64((__u64)MLTCP_LONGER_WITHIN * gap_us, 1000);
	__u8 back = f->longer_us && (now_ms - f->longer_ms < MLTCP_LONGER_WITHIN_MS ||
				     now_ms - f->longer_ms < within_ms);
	__u8 sure = mltcp_is_sure(f) && f->gap_us >= MLTCP_FINE_US;

	f->longer_us = gap_us;
	f->longer_ms = now_ms;
	f->longer_kib = now_kib;
	f->longer_size = back ? size : 0;
	if (!back || (sure && !(before && mltcp_same_size(before, size))))
		return 0;
	mltcp_unlearn(f, kind_us);
	if (before)
		mltcp_add_piece(f, before, kind_us);
	mltcp_add_piece(f, size, gap_us);
	f->piece_kib = now_kib;
	f->longer_us = 0;
	return 1;
}

/* Has it been so long since a gap counted that gaps must have become shorter? */
static inline __u8 mltcp_gaps_missing(const struct mltcp_flow *f, __u64 now)
{
	__u32 size = mltcp_kib(f->acked_bytes) - f->piece_kib, largest = 0, i;

	if (mltcp_is_sure(f))
		return size / 2 > f->total_kib;
	if (!f->piece_count)
		return now - f->start_ns > 8000ULL * f->gap_us;
	for (i = 0; i < MLTCP_PIECES; i++)
		if (i < f->piece_count && f->pieces[i] > largest)
			largest = f->pieces[i];
	return size / 4 > largest;
}

/* Is this where the iteration is expected to end? */
static inline __u8 mltcp_is_expected(const struct mltcp_flow *f)
{
	return mltcp_is_sure(f) &&
	       mltcp_same_size(mltcp_kib(f->acked_bytes - f->start_bytes), f->total_kib);
}

/* Does a gap of this length count? */
static inline __u8 mltcp_gap_counts(struct mltcp_flow *f, __u32 gap_us, __u64 now)
{
	if (gap_us < f->gap_us / (mltcp_is_expected(f) ? 4 : MLTCP_LONGER)) {
		if (gap_us > f->inner_us)
			f->inner_us = gap_us;
		if (mltcp_gaps_missing(f, now)) {
			mltcp_unlearn(f, f->inner_us);
			f->piece_kib = mltcp_kib(f->acked_bytes);
		}
		return 0;
	}
	f->inner_us = 0;
	/* Follow the usual value, but no single outlier. */
	if (!f->gap_us)
		f->gap_us = gap_us;
	else if (gap_us / 2 > f->gap_us)
		f->gap_us += f->gap_us / 4;
	else
		f->gap_us = f->gap_us - f->gap_us / 4 + gap_us / 4;
	return 1;
}

/*
 * The iteration's bytes are now those of the latest pieces. True when the present gap begins an
 * iteration; otherwise the present iteration began at the longest of the pieces' gaps.
 */
static inline __u8 mltcp_learned(struct mltcp_flow *f, __u32 count)
{
	__u32 longest = mltcp_longest_gap(f, count);

	f->total_kib = mltcp_latest(f, count);
	f->confidence = MLTCP_CONFIDENT;
	if (!longest)
		return 1;
	f->start_bytes = f->acked_bytes - ((__u64)mltcp_latest(f, longest) << MLTCP_KIB_SHIFT);
	return 0;
}

static inline void mltcp_lose_confidence(struct mltcp_flow *f)
{
	if (f->confidence > MLTCP_CONFIDENCE_LOST)
		f->confidence -= MLTCP_CONFIDENCE_LOST;
	else
		f->confidence = 0;
}

/*
 * Has the flow sent what the job says an iteration has? In bytes, as that may be more than 4 TiB.
 */
static inline __u8 mltcp_told_is_sent(__u64 sent, __u64 total)
{
	__u64 less = total / MLTCP_SIZE_TOLERANCE + (2 << MLTCP_KIB_SHIFT);

	return sent >= total || total - sent <= less;
}

/*
 * A piece has ended at a gap that counts. True when an iteration ends there, too; while nothing is
 * known, every such gap ends one.
 */
static inline __u8 mltcp_piece_ended(struct mltcp_flow *f, const struct mltcp_params *p)
{
	__u32 sent = mltcp_kib(f->acked_bytes - f->start_bytes), total = f->total_kib, count;

	if (p->burst_bytes)
		return mltcp_told_is_sent(f->acked_bytes - f->start_bytes, p->burst_bytes);
	count = p->gap_ns ? mltcp_repeats(f, 1) : mltcp_pieces_per_iteration(f);
	if (mltcp_is_sure(f)) {
		if (mltcp_same_size(sent, total)) {
			if (count && !mltcp_same_size(mltcp_latest(f, count), total))
				mltcp_lose_confidence(f);
			else if (f->confidence < MLTCP_CONFIDENCE_MAX)
				f->confidence++;
		} else if (sent > total || p->gap_ns) {
			mltcp_lose_confidence(f);
		} else {
			return 0; /* a gap within the iteration */
		}
		if (mltcp_is_sure(f))
			return 1;
	}
	if (!count || mltcp_latest(f, count) < MLTCP_TOTAL_MIN)
		return 1;
	return mltcp_learned(f, count);
}

/*
 * Sending began at send_ns, after nothing had been outstanding since last_ns, and the data is now
 * acknowledged. True when the gap between the two begins a new iteration.
 *
 * The time after send_ns doesn't count: a flow whose packets wait for their ACK isn't computing but
 * stuck, however long that lasts, so a retransmission time-out is never a boundary.
 */
static inline __u8 mltcp_after_gap(struct mltcp_flow *f, const struct mltcp_params *p, __u64 now)
{
	__u64 gap_ns = f->send_ns - f->last_ns;
	__u32 now_kib = mltcp_kib(f->acked_bytes), gap_us;

	if (gap_ns < MLTCP_GAP_MIN_NS || gap_ns < p->gap_ns)
		return 0;
	if (p->gap_ns && p->burst_bytes)
		return 1;
	if (!p->gap_ns && mltcp_is_greeting(f, f->acked_bytes))
		return 0;
	gap_us = mltcp_gap_us(gap_ns);
	if (!p->gap_ns && f->gap_us && gap_us / MLTCP_LONGER > f->gap_us) {
		if (mltcp_longer_gap(f, gap_us, now)) {
			mltcp_piece_ended(f, p);
			return 1;
		}
	} else if (!p->gap_ns && !mltcp_gap_counts(f, gap_us, now)) {
		return 0;
	}
	mltcp_add_piece(f, now_kib - f->piece_kib, gap_us);
	f->piece_kib = now_kib;
	return mltcp_piece_ended(f, p);
}

/*
 * Bytes of one iteration of the flow, as given or as learned; 0: unknown, or unreliable. What the job
 * says holds for an iteration: a total that is raised with each byte sent would keep F at its largest.
 */
static inline __u64 mltcp_total(const struct mltcp_flow *f)
{
	if (f->told_bytes)
		return f->told_bytes;
	return mltcp_is_sure(f) ? (__u64)f->total_kib << MLTCP_KIB_SHIFT : 0;
}

#endif
