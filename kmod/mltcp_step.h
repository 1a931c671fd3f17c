/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * MLTCP: what an ACK goes through, in one order for every host of the algorithm.
 *
 *   sample    what the ACK says of the delay. First, as the data that it acknowledges was sent into
 *             the queue of the iteration, and of the job, that the flow was in then.
 *   due       most ACKs are counted here, and are done.
 *   job       its parameters as they are now. A flow that was given to another job forgets
 *             everything, and what this ACK acknowledges is the new job's.
 *   boundary  after a gap. What the old iteration was is reported before mltcp_begin() forgets it.
 *   count     after that: the ACK's bytes and time are the new iteration's.
 *   decide    after a gap, boundary or not, and at every step: parameters and jobs may have changed
 *             while the flow was silent. The path's other flows may have learned what its full
 *             queue is.
 *
 * The includer defines struct mltcp_env and the functions below.
 */
#ifndef MLTCP_STEP_H
#define MLTCP_STEP_H

#include "mltcp_core.h"
#include "mltcp_loss.h"

/* The surroundings of a flow while it has an ACK: the includer's. */
struct mltcp_env;

/* The ACK's RTT sample, microseconds, 0 or less without one, and the path's minimum. */
static __s32 mltcp_env_rtt(const struct mltcp_env *env, __u32 *min_us);
/*
 * The parameters of the flow's job, or of flows without one, and the mechanisms to use, with
 * MLTCP_TRUSTED where the host's administrator set the job. Where the job
 * isn't the flow's any more, calls mltcp_reset() before.
 */
static const struct mltcp_params *mltcp_env_params(struct mltcp_env *env, struct mltcp_flow *f,
						   __u32 *mechanisms);
/* The iteration that has ended, if mltcp_is_reported(). */
static void mltcp_env_report(struct mltcp_env *env, const struct mltcp_flow *f);
/* Bytes that the connection has received, ever. */
static __u64 mltcp_env_received(const struct mltcp_env *env);
/* What its host has received and sent, without loopback's; as of MLTCP_GAP_MIN_NS ago, mostly. */
static struct mltcp_host mltcp_env_host(const struct mltcp_env *env, __u64 now);
/*
 * Where what flows of the path share is kept, those of a job or, for job 0, all of them, and the key
 * there; NULL: nowhere.
 */
static __u64 *mltcp_env_path(const struct mltcp_env *env, __u32 job, __u32 *key);
/* Where the connection is now: calls mltcp_note(). */
static void mltcp_env_note(const struct mltcp_env *env, struct mltcp_flow *f);
/* Has the operator switched the algorithm off? */
static __u8 mltcp_env_is_off(const struct mltcp_env *env);

/* Must the flow decide with the ACK at now? acked_bytes: the connection's running total. */
static inline __u8 mltcp_is_due(const struct mltcp_flow *f, __u64 now, __u64 acked_bytes)
{
	return acked_bytes >= f->next_bytes || now >= f->next_ns;
}

static inline void mltcp_count(struct mltcp_flow *f, __u64 now, __u64 acked_bytes)
{
	if (acked_bytes > f->acked_bytes)
		f->acked_bytes = acked_bytes;
	if (now > f->last_ns)
		f->last_ns = now;
	f->acks++;
}

/* Two calls: of one pointer that may be NULL clang computes what the verifier refuses. */
static inline void mltcp_step_begin(const struct mltcp_env *env, struct mltcp_flow *f,
				    const struct mltcp_params *p, __u32 mechanisms, __u64 now)
{
	__u64 received_bytes = mltcp_env_received(env);
	struct mltcp_host host;

	if (!(mechanisms & MLTCP_YIELD) || !mltcp_asks_host(f, p)) {
		mltcp_begin(f, p, now, received_bytes, NULL);
		return;
	}
	host = mltcp_env_host(env, now);
	mltcp_begin(f, p, now, received_bytes, &host);
}

/* The part of few ACKs. */
static inline void mltcp_step_decide(struct mltcp_env *env, struct mltcp_flow *f, __u64 now,
				     __u64 acked_bytes)
{
	__u32 mechanisms, key, job_key = 0;
	const struct mltcp_params *p = mltcp_env_params(env, f, &mechanisms);
	const __u64 *slot = mechanisms & MLTCP_YIELD ? mltcp_env_path(env, 0, &key) : NULL;
	__u64 *job_slot = mechanisms & MLTCP_TRUSTED ? mltcp_env_path(env, f->job, &job_key) : NULL;

	if (mltcp_was_idle(f) && mltcp_is_boundary(f, p)) {
		mltcp_env_report(env, f);
		mltcp_step_begin(env, f, p, mechanisms, now);
	}
	mltcp_count(f, now, acked_bytes);
	/* Without an iteration there is nothing to yield in, and no queue to be seen. */
	f->delay.watched = slot && mltcp_total(f);
	if (!f->delay.watched)
		mltcp_delay_forget(&f->delay);
	else
		mltcp_delay_ask(&f->delay, slot, key);
	mltcp_env_note(env, f);
	mltcp_decide(f, p, mechanisms, now, job_slot, job_key);
	if (mltcp_env_is_off(env)) {
		f->active = 0;
		mltcp_be_as_base(f);
	}
}

/* An ACK at now that acknowledges data. acked_bytes: the connection's running total with it. */
static inline void mltcp_step(struct mltcp_env *env, struct mltcp_flow *f, __u64 now,
			      __u64 acked_bytes)
{
	__s32 rtt_us;
	__u32 min_us;

	if (f->delay.watched) {
		rtt_us = mltcp_env_rtt(env, &min_us);
		mltcp_delay_sample(&f->delay, rtt_us, min_us);
	}
	if (mltcp_is_due(f, now, acked_bytes))
		mltcp_step_decide(env, f, now, acked_bytes);
	else
		mltcp_count(f, now, acked_bytes);
}

#endif
