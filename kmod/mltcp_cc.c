// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the congestion controls do. Each wraps one of the kernel's own, see mltcp_variants.c: what
 * isn't MLTCP's business goes straight to the base, so that at F = 1 a flow is the base itself.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include "mltcp.h"
#include "mltcp_loss.h"
#include "mltcp_step.h"
#include "mltcp_wait.h"
#include "mltcp_yield.h"

static void mltcp_init(struct sock *sk)
{
	mltcp_start(sk);
}

/*
 * Whose operations act on a locked socket, begun with now if they weren't; NULL: nobody's yet. *ms:
 * our part, NULL without. Inline, for each ACK comes here more than once.
 */
static __always_inline const struct tcp_congestion_ops *mltcp_need(struct sock *sk,
								   struct mltcp_sock **ms)
{
	const struct tcp_congestion_ops *base;

	*ms = mltcp_state(sk);
	if (likely(*ms))
		return (*ms)->base;
	base = mltcp_need_anew(sk);
	*ms = mltcp_state(sk);
	return base;
}

/* Likewise, where there is something to be known of the flow: one that was fresh gets its state. */
static const struct tcp_congestion_ops *need_state(struct sock *sk, struct mltcp_sock **ms)
{
	const struct tcp_congestion_ops *base = mltcp_need(sk, ms);

	if (!*ms && mltcp_is_fresh(sk))
		*ms = mltcp_end_fresh(sk);
	return base;
}

/* Where the connection is now, for reports. */
static void note(struct mltcp_sock *ms)
{
	const struct tcp_sock *tp = tcp_sk(ms->sk);

	mltcp_note(&ms->flow, tcp_snd_cwnd(tp), tp->srtt_us >> 3, tp->total_retrans);
}

#define FIN_SENT (TCPF_FIN_WAIT1 | TCPF_FIN_WAIT2 | TCPF_CLOSING | TCPF_LAST_ACK)

/* Bytes of data acknowledged so far. bytes_acked has one more once our FIN is acknowledged. */
static u64 acked_bytes(const struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	if ((1 << sk->sk_state) & FIN_SENT && tp->snd_una == tp->write_seq)
		return tp->bytes_acked - 1;
	return tp->bytes_acked;
}

void mltcp_catch_up(struct mltcp_flow *flow, const struct sock *sk)
{
	u64 bytes = acked_bytes(sk);

	/* Of a closed connection it can't be told whether its FIN is among them. */
	if (bytes > flow->acked_bytes && sk->sk_state != TCP_CLOSE)
		mltcp_count(flow, mltcp_delivered_ns(sk), bytes);
}

/*
 * A flow without a job of which no iteration is known is its base, and learns from nothing but gaps.
 * Until one has passed its ACKs are its base's alone. Its operations then aren't those that are
 * registered, so whoever chooses the same congestion control once more makes it begin anew.
 */
static bool may_be_quiet(const struct mltcp_sock *ms)
{
	return inet_csk(ms->sk)->icsk_ca_ops == &mltcp_variant_at(ms->variant)->ops &&
	       ms->growth == MLTCP_AS_BASE && !ms->watches_queue && !ms->flow.delay.held &&
	       !rcu_access_pointer(ms->job) && !READ_ONCE(mltcp_defaults.gap_ns) &&
	       !mltcp_total(&ms->flow);
}

static void hush(struct mltcp_sock *ms)
{
	WRITE_ONCE(ms->quiet, true);
	WRITE_ONCE(inet_csk(ms->sk)->icsk_ca_ops, &mltcp_variant_at(ms->variant)->ops_quiet);
}

/* What the first ACK would do, which most connections then need not hear of. */
void mltcp_begin_quiet(struct mltcp_sock *ms, u64 now, u32 piece_kib)
{
	if (!may_be_quiet(ms))
		return;
	ms->flow.piece_kib = piece_kib;
	mltcp_begin(&ms->flow, &mltcp_defaults, now, tcp_sk(ms->sk)->bytes_received, NULL);
	mltcp_decide(&ms->flow, &mltcp_defaults, 0, now);
	hush(ms);
}

static void count_missed(struct mltcp_sock *ms);

/* Have the flow know of what has been acknowledged so far. */
static void bring_up_to_date(struct mltcp_sock *ms)
{
	if (ms->quiet)
		mltcp_catch_up(&ms->flow, ms->sk);
	else if (ms->counts_late && ms->sk->sk_state != TCP_CLOSE)
		count_missed(ms);
}

/* From now on the flow hears of ACKs again. */
static void rouse(struct mltcp_sock *ms)
{
	bring_up_to_date(ms);
	if (!ms->quiet)
		return;
	WRITE_ONCE(ms->quiet, false);
	WRITE_ONCE(inet_csk(ms->sk)->icsk_ca_ops, &mltcp_variant_at(ms->variant)->ops);
}

/*
 * May the flow be held, and is there something to hold back? Not where pacing is somebody else's: fq
 * would hold back ACKs, too, and a limit of the process's has a time of its own. Nor in a recovery.
 * Most flows find room for all, and need not look who leads.
 */
static bool may_wait(const struct mltcp_sock *ms)
{
	const struct sock *sk = ms->sk;
	const struct tcp_sock *tp = tcp_sk(sk);

	if (!ms->flow.tight)
		return false;
	if (READ_ONCE(sk->sk_pacing_status) != (ms->flow.paces ? SK_PACING_NEEDED : SK_PACING_NONE))
		return false;
	return READ_ONCE(sk->sk_max_pacing_rate) == ~0UL && tp->write_seq != tp->snd_nxt &&
	       inet_csk(sk)->icsk_ca_state < TCP_CA_CWR;
}

/* Have TCP send nothing for a while, by its own pacing, whose timer wakes the connection. */
static void hold(struct mltcp_sock *ms, u32 wait_ns)
{
	struct tcp_sock *tp = tcp_sk(ms->sk);
	u64 until = tp->tcp_clock_cache + wait_ns;

	if (cmpxchg(&ms->sk->sk_pacing_status, SK_PACING_NONE, SK_PACING_NEEDED) == SK_PACING_NONE)
		ms->flow.paces = 1;
	if (until > tp->tcp_wstamp_ns)
		tp->tcp_wstamp_ns = until;
}

/*
 * Pace no longer, once nothing is held back at now. From the time at which a packet may leave TCP takes
 * round trips and the time stamps that it sends, so that time can't be set back, and a flow that
 * leaves before it has come stays paced. So does one whose process has asked for it since.
 */
static void let_go(struct mltcp_sock *ms, u64 now)
{
	struct sock *sk = ms->sk;

	if (ms->flow.waits || tcp_sk(sk)->tcp_wstamp_ns > now)
		return;
	ms->flow.delay.held = 0;
	if (ms->flow.paces && READ_ONCE(sk->sk_max_pacing_rate) == ~0UL)
		cmpxchg(&sk->sk_pacing_status, SK_PACING_NEEDED, SK_PACING_NONE);
	ms->flow.paces = 0;
}

static void mltcp_release(struct sock *sk)
{
	const struct mltcp_variant *variant = mltcp_variant_of(inet_csk(sk)->icsk_ca_ops);
	struct mltcp_sock *ms = mltcp_state(sk);
	const struct tcp_congestion_ops *base = ms ? ms->base : mltcp_base_of(sk, variant);
	bool started = mltcp_is_started(sk);

	if (ms) {
		bring_up_to_date(ms);
		ms->flow.waits = 0;
		if (ms->flow.delay.held)
			let_go(ms, tcp_clock_ns());
		note(ms);
		mltcp_report(ms);
	}
	if ((started || mltcp_has_begun_bare(sk)) && base->release)
		base->release(sk);
	if (started)
		memset(mltcp_private(sk), 0, sizeof(struct mltcp_private));
	if (ms)
		mltcp_flow_free(ms);
	/* Should it connect again, it asks for ECN again. */
	WRITE_ONCE(inet_csk(sk)->icsk_ca_ops, &variant->ops);
}

static u32 mltcp_ssthresh(struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	struct mltcp_sock *ms;
	const struct tcp_congestion_ops *base = need_state(sk, &ms);
	const struct mltcp_variant *variant;
	u32 key, ssthresh, cwnd = tcp_snd_cwnd(tp), srtt_us = tp->srtt_us >> 3;
	u64 *path;

	if (!ms)
		return base ? base->ssthresh(sk) : tcp_reno_ssthresh(sk);
	bring_up_to_date(ms);
	path = mltcp_path(sk, &key);
	mltcp_delay_ask(&ms->flow.delay, tp->tcp_clock_cache, path, key);
	ssthresh = base->ssthresh(sk);
	/* Without ECN, dctcp has put Reno in its place. */
	variant = mltcp_variant_at(ms->variant);
	if (variant->cuts_by_marks && base == variant->base)
		ssthresh = mltcp_on_mark(&ms->flow, cwnd, ssthresh, srtt_us, tcp_min_rtt(tp));
	else
		ssthresh = mltcp_on_loss(&ms->flow, cwnd, ssthresh, srtt_us, tcp_min_rtt(tp));
	mltcp_delay_tell(&ms->flow.delay, path, key);
	return ssthresh;
}

/* Until the next decision. Only a flow that yields, or has yielded, looks at the queue as it grows. */
static enum mltcp_growth growth(const struct mltcp_flow *flow)
{
	if (mltcp_is_base(flow) && !flow->delay.held)
		return MLTCP_AS_BASE;
	if (flow->yield_us || flow->resume_ssthresh || flow->delay.crossed || flow->delay.held)
		return MLTCP_MAY_STEP_ASIDE;
	return MLTCP_SCALED;
}

/* The base's increase. The most frequent one is called directly: others are guessed anew. */
static __always_inline void grow(void (*cong_avoid)(struct sock *sk, u32 ack, u32 acked),
				 struct sock *sk, u32 ack, u32 acked)
{
	if (likely(cong_avoid == tcp_reno_cong_avoid))
		tcp_reno_cong_avoid(sk, ack, acked);
	else
		cong_avoid(sk, ack, acked);
}

/* Scaled by F; slow start stays the base's own. */
static __always_inline void grow_scaled(struct sock *sk, u32 ack, u32 acked, struct mltcp_sock *ms)
{
	if (!tcp_in_slow_start(tcp_sk(sk)))
		acked = mltcp_scaled_acked(&ms->flow, acked);
	grow(ms->cong_avoid, sk, ack, acked);
}

/* Of a flow that gives way in the queue, or takes its share back. */
static noinline void grow_aside(struct sock *sk, u32 ack, u32 acked, struct mltcp_sock *ms)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct mltcp_flow *flow = &ms->flow;
	u32 cwnd = tcp_snd_cwnd(tp), ssthresh = tp->snd_ssthresh, srtt_us = tp->srtt_us >> 3,
	    key = 0;
	bool yields = mltcp_yield_or_resume(flow, srtt_us, tcp_min_rtt(tp), &cwnd, &ssthresh);
	u64 *lead;

	tcp_snd_cwnd_set(tp, cwnd);
	tp->snd_ssthresh = ssthresh;
	if (yields) {
		lead = may_wait(ms) ? mltcp_lead_of(sk, flow->job, &key) : NULL;
		if (mltcp_must_wait(flow, cwnd, lead, key)) {
			hold(ms, mltcp_wait_ns(flow, srtt_us, tcp_min_rtt(tp)));
			return;
		}
	}
	if (flow->delay.held)
		let_go(ms, tp->tcp_clock_cache);
	if (!yields || !mltcp_variant_at(ms->variant)->yield_holds)
		grow_scaled(sk, ack, acked, ms);
}

/* Of a flow that had no state. */
static noinline void grow_anew(struct sock *sk, u32 ack, u32 acked)
{
	const struct tcp_congestion_ops *base = mltcp_need_anew(sk);

	grow(base ? base->cong_avoid : tcp_reno_cong_avoid, sk, ack, acked);
}

static __always_inline void grow_as_decided(struct sock *sk, u32 ack, u32 acked,
					    struct mltcp_sock *ms)
{
	if (ms->growth == MLTCP_AS_BASE)
		grow(ms->cong_avoid, sk, ack, acked);
	else if (ms->growth == MLTCP_MAY_STEP_ASIDE && unlikely(mltcp_is_aside(&ms->flow)))
		grow_aside(sk, ack, acked, ms);
	else
		grow_scaled(sk, ack, acked, ms);
}

static void mltcp_cong_avoid(struct sock *sk, u32 ack, u32 acked)
{
	if (likely(mltcp_has_state(sk)))
		grow_as_decided(sk, ack, acked, mltcp_state_of(sk));
	else
		grow_anew(sk, ack, acked);
}

static u32 mltcp_undo_cwnd(struct sock *sk)
{
	struct mltcp_sock *ms;
	const struct tcp_congestion_ops *base = mltcp_need(sk, &ms);
	u32 key;
	u64 *path;

	if (ms) {
		path = mltcp_path(sk, &key);
		mltcp_on_undo(&ms->flow, path, key);
		ms->growth = growth(&ms->flow);
	}
	return base ? base->undo_cwnd(sk) : tcp_reno_undo_cwnd(sk);
}

/* What mltcp_step() asks of the module. */
struct mltcp_env {
	struct mltcp_sock *ms;
	const struct ack_sample *sample; /* NULL for the second part of a step */
};

static __always_inline struct mltcp_rtt mltcp_env_rtt(const struct mltcp_env *env)
{
	const struct tcp_sock *tp = tcp_sk(env->ms->sk);

	return (struct mltcp_rtt){
		.now_us = (u32)tp->tcp_mstamp,
		.rtt_us = env->sample->rtt_us,
		.min_us = tcp_min_rtt(tp),
		/* Milliseconds are too long to tell a queue. */
		.stamp = tcp_is_usec_ts(tp) ? tp->rx_opt.rcv_tsval : 0,
	};
}

static __always_inline void mltcp_env_covered(const struct mltcp_env *env, struct mltcp_rtt *rtt)
{
	const struct tcp_sock *tp = tcp_sk(env->ms->sk);

	rtt->segments = env->sample->pkts_acked;
	rtt->outstanding = tp->packets_out;
	rtt->retransmitted = tp->total_retrans;
}

/*
 * Under RCU, for the parameters may be replaced. The job may also have been deleted; a tag that
 * changes is seen to in mltcp_cc_retag().
 */
static const struct mltcp_params *mltcp_env_params(struct mltcp_env *env, struct mltcp_flow *flow,
						   u32 *mechanisms)
{
	const struct mltcp_job_ref *job = rcu_dereference(env->ms->job);
	const struct mltcp_job_data *data = job ? rcu_dereference(job->data) : NULL;
	const struct mltcp_params *params = data ? &data->job.params : &mltcp_defaults;
	u32 id = data ? job->id : 0;

	if (unlikely(flow->job != id)) {
		note(env->ms);
		mltcp_reset(flow, id, flow->acked_bytes, flow->retransmits);
	}
	*mechanisms = READ_ONCE(params->mechanisms);
	if (*mechanisms == MLTCP_MECHANISMS_DEFAULT) {
		*mechanisms = mltcp_variant_at(env->ms->variant)->mechanisms;
		if (!data || !data->trusted)
			*mechanisms = mltcp_open_mechanisms(*mechanisms);
	}
	if (data && data->trusted)
		*mechanisms |= MLTCP_TRUSTED;
	return params;
}

static void mltcp_env_report(struct mltcp_env *env, const struct mltcp_flow *flow)
{
	mltcp_report(env->ms);
}

/* No law but yielding needs the queue. */
static u8 mltcp_env_watches(const struct mltcp_env *env)
{
	return 0;
}

static u64 mltcp_env_received(const struct mltcp_env *env)
{
	return tcp_sk(env->ms->sk)->bytes_received;
}

static struct mltcp_host mltcp_env_host(const struct mltcp_env *env, u64 now)
{
	return mltcp_net_host(sock_net(env->ms->sk), now);
}

static u64 *mltcp_env_path(const struct mltcp_env *env, u32 *key)
{
	return mltcp_path(env->ms->sk, key);
}

static u64 *mltcp_env_lead(const struct mltcp_env *env, const struct mltcp_flow *flow, u32 *key)
{
	return mltcp_lead_of(env->ms->sk, flow->job, key);
}

static void mltcp_env_note(const struct mltcp_env *env, struct mltcp_flow *flow)
{
	note(env->ms);
}

static u8 mltcp_env_is_off(const struct mltcp_env *env)
{
	return !READ_ONCE(mltcp_enabled);
}

/*
 * The flow begins to watch the queue, or ceases to, which changes where its ACKs are counted. Whoever
 * then chooses the same congestion control once more makes it begin anew.
 */
static noinline void watch(struct mltcp_sock *ms)
{
	const struct mltcp_variant *variant = mltcp_variant_at(ms->variant);

	ms->watches_queue = ms->flow.delay.watched;
	if (!mltcp_counts_late(variant))
		return;
	WRITE_ONCE(ms->counts_late, !ms->watches_queue);
	WRITE_ONCE(inet_csk(ms->sk)->icsk_ca_ops,
		   ms->counts_late ? &variant->ops : &variant->ops_watching);
}

/* Once a gap and MLTCP_STEPS times an iteration. */
static noinline void decide(struct mltcp_sock *ms, u64 now, u64 bytes)
{
	struct mltcp_env env = {.ms = ms};

	rcu_read_lock();
	mltcp_step_decide(&env, &ms->flow, now, bytes);
	rcu_read_unlock();
	if (unlikely(ms->watches_queue != ms->flow.delay.watched))
		watch(ms);
	if (unlikely(ms->flow.delay.held))
		let_go(ms, now);
	/* Only a decision makes a flow another than its base; what makes it its base again may wait. */
	ms->growth = growth(&ms->flow);
	if (may_be_quiet(ms))
		hush(ms);
}

static __always_inline void count_or_decide(struct mltcp_sock *ms, u64 now, u64 bytes)
{
	if (unlikely(mltcp_is_due(&ms->flow, now, bytes)))
		decide(ms, now, bytes);
	else
		mltcp_count(&ms->flow, now, bytes);
}

/*
 * What a flow that counts late missed, as its window didn't grow: in a recovery, say. A decision that
 * is due is made now, also one for a burst of which all has been lost so far but its end.
 */
static noinline void count_missed(struct mltcp_sock *ms)
{
	const struct mltcp_flow *flow = &ms->flow;
	u64 now = mltcp_delivered_ns(ms->sk), bytes = acked_bytes(ms->sk);

	if (bytes > flow->acked_bytes ||
	    (flow->iteration && mltcp_was_idle(flow) && now > flow->last_ns))
		count_or_decide(ms, now, bytes);
}

/* An ACK whose delay is looked at. */
static noinline void acked_watching(const struct ack_sample *sample, u64 now, u64 bytes,
				    struct mltcp_sock *ms)
{
	struct mltcp_env env = {.ms = ms, .sample = sample};

	mltcp_step_sample(&env, &ms->flow, bytes);
	count_or_decide(ms, now, bytes);
}

/*
 * A flow that doesn't watch the queue has no sample to take: what is left of a step takes one cache
 * line.
 */
static __always_inline void acked(struct sock *sk, const struct ack_sample *sample, u64 bytes,
				  struct mltcp_sock *ms)
{
	u64 now = tcp_sk(sk)->tcp_clock_cache; /* when the ACK came, CLOCK_MONOTONIC */

	if (ms->watches_queue)
		acked_watching(sample, now, bytes, ms);
	else
		count_or_decide(ms, now, bytes);
}

/* The ACK of a SYN or a FIN alone says nothing of a burst. */
static bool says_nothing(const struct sock *sk, u64 bytes, const struct mltcp_sock *ms)
{
	return (bytes != tcp_sk(sk)->bytes_acked || sk->sk_state == TCP_SYN_SENT) &&
	       bytes == ms->flow.acked_bytes;
}

/* Of a flow that had no state, or a connection that is no longer simply established. */
static noinline void acked_otherwise(struct sock *sk, const struct ack_sample *sample)
{
	struct mltcp_sock *ms;
	u64 bytes;

	mltcp_need(sk, &ms);
	if (!ms)
		return;
	bytes = acked_bytes(sk);
	if (!says_nothing(sk, bytes, ms))
		acked(sk, sample, bytes, ms);
}

/* Every ACK while something is under way, whatever it acknowledges, in every state. */
static void mltcp_pkts_acked(struct sock *sk, const struct ack_sample *sample)
{
	if (likely(mltcp_has_state(sk) && sk->sk_state == TCP_ESTABLISHED))
		acked(sk, sample, tcp_sk(sk)->bytes_acked, mltcp_state_of(sk));
	else
		acked_otherwise(sk, sample);
}

/* Of a connection that is no longer simply established. */
static noinline void count_otherwise(struct sock *sk, struct mltcp_sock *ms)
{
	u64 bytes = acked_bytes(sk);

	if (!says_nothing(sk, bytes, ms))
		count_or_decide(ms, tcp_sk(sk)->tcp_clock_cache, bytes);
}

/* In the place of mltcp_pkts_acked() and mltcp_cong_avoid() for flows that count late. */
void mltcp_cong_avoid_counting(struct sock *sk, u32 ack, u32 acked)
{
	struct mltcp_sock *ms = mltcp_state_of(sk);

	if (unlikely(!mltcp_has_state(sk))) {
		grow_anew(sk, ack, acked);
		return;
	}
	if (likely(sk->sk_state == TCP_ESTABLISHED))
		count_or_decide(ms, tcp_sk(sk)->tcp_clock_cache, tcp_sk(sk)->bytes_acked);
	else
		count_otherwise(sk, ms);
	grow_as_decided(sk, ack, acked, ms);
}

/*
 * The kernel asks for the threshold before it says whether it is for a loss or for a time-out, and
 * after a loss it doesn't ask again for the time-out that may follow.
 */
static void mltcp_set_state(struct sock *sk, u8 new_state)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct mltcp_sock *ms = mltcp_state(sk);

	if (ms && new_state == TCP_CA_Loss)
		tp->snd_ssthresh =
			mltcp_on_time_out(&ms->flow, tp->tcp_clock_cache, tp->snd_ssthresh);
	else if (ms && new_state < TCP_CA_CWR)
		mltcp_on_repaired(&ms->flow);
}

/* In its place where the base has such an operation, too. */
void mltcp_set_state_both(struct sock *sk, u8 new_state)
{
	struct mltcp_sock *ms;
	const struct tcp_congestion_ops *base = mltcp_need(sk, &ms);

	if (base && base->set_state)
		base->set_state(sk, new_state);
	mltcp_set_state(sk, new_state);
}

/* What follows goes to the base as it is; only what a base has is registered. */

/* Does a pause end now that may be the one between two iterations? */
static bool paused(const struct sock *sk)
{
	return tcp_sk(sk)->tcp_clock_cache - mltcp_delivered_ns(sk) >= MLTCP_GAP_MIN_NS;
}

/* Does a gap of a flow that is quiet tell it nothing, so that it need not hear of it? */
static bool learns_nothing(const struct mltcp_sock *ms)
{
	return mltcp_is_greeting(&ms->flow, tcp_sk(ms->sk)->bytes_acked) &&
	       !READ_ONCE(mltcp_defaults.gap_ns);
}

/* Give the flow to a job (NULL: to none), and take over the reference to it. */
static void give(struct mltcp_sock *ms, struct mltcp_job_ref *job)
{
	struct mltcp_job_ref *old =
		rcu_dereference_protected(ms->job, lockdep_sock_is_held(ms->sk));

	if (old != job) {
		rouse(ms);
		note(ms);
		mltcp_report(ms);
		rcu_assign_pointer(ms->job, job);
		/* What the next ACK acknowledges already belongs to the new job. */
		mltcp_reset(&ms->flow, job ? job->id : 0, ms->flow.acked_bytes,
			    ms->flow.retransmits);
		if (ms->flow.delay.held)
			let_go(ms, tcp_clock_ns());
	}
	mltcp_job_put(old);
}

/* The rules have changed. What was tagged or untagged by hand stays so. */
static noinline void follow_rules(struct mltcp_sock *ms)
{
	ms->rules_seen = smp_load_acquire(&mltcp_rules_changes);
	if (!ms->by_hand)
		give(ms, mltcp_rules_job(ms->sk));
}

/*
 * Sending begins. The kernel says so also for a retransmission when all is taken for lost; then
 * packets are outstanding, which new data is not counted among before it has left.
 */
static __always_inline bool begins_sending(const struct sock *sk, const struct mltcp_sock *ms)
{
	return !tcp_sk(sk)->packets_out &&
	       (!ms->quiet || ms->rules_seen != READ_ONCE(mltcp_rules_changes) ||
		(paused(sk) && !learns_nothing(ms)));
}

/* What the flow makes of it, which for one that is quiet is seldom anything. */
static noinline void note_send(struct sock *sk, struct mltcp_sock *ms)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 cwnd = tcp_snd_cwnd(tp);

	if (unlikely(ms->rules_seen != READ_ONCE(mltcp_rules_changes))) {
		follow_rules(ms);
		if (!begins_sending(sk, ms))
			return;
	}
	rouse(ms);
	/* The clock was read where sending began. */
	mltcp_on_send(&ms->flow, tp->tcp_clock_cache, tp->total_retrans);
	mltcp_begin_small(&ms->flow, tp->srtt_us >> 3, tcp_min_rtt(tp), &cwnd, &tp->snd_ssthresh);
	tcp_snd_cwnd_set(tp, cwnd);
}

static __always_inline void on_tx_start(struct sock *sk, struct mltcp_sock *ms)
{
	if (!ms && mltcp_is_fresh(sk) && !tcp_sk(sk)->packets_out &&
	    mltcp_fresh_is_over(sk, paused(sk)))
		ms = mltcp_end_fresh(sk);
	if (ms && begins_sending(sk, ms))
		note_send(sk, ms);
}

#ifdef HAVE_CWND_EVENT_TX_START
static void mltcp_cwnd_event_tx_start(struct sock *sk)
{
	struct mltcp_sock *ms;
	const struct tcp_congestion_ops *base = mltcp_need(sk, &ms);

	on_tx_start(sk, ms);
	if (base && base->cwnd_event_tx_start)
		base->cwnd_event_tx_start(sk);
}
#endif

/* Also where nothing is ever sent: dctcp hears here of the marks that it is to echo. */
static void mltcp_cwnd_event(struct sock *sk, enum tcp_ca_event event)
{
	struct mltcp_sock *ms;
	const struct tcp_congestion_ops *base = mltcp_need(sk, &ms);

#ifndef HAVE_CWND_EVENT_TX_START
	if (event == CA_EVENT_TX_START)
		on_tx_start(sk, ms);
#endif
	if (base && base->cwnd_event)
		base->cwnd_event(sk, event);
}

/* In the place of mltcp_pkts_acked() where the base has such an operation, too. */
void mltcp_pkts_acked_both(struct sock *sk, const struct ack_sample *sample)
{
	struct mltcp_sock *ms;
	const struct tcp_congestion_ops *base = mltcp_need(sk, &ms);

	if (base && base->pkts_acked)
		base->pkts_acked(sk, sample);
	mltcp_pkts_acked(sk, sample);
}

static void mltcp_in_ack_event(struct sock *sk, u32 flags)
{
	struct mltcp_sock *ms;
	const struct tcp_congestion_ops *base = mltcp_need(sk, &ms);

	if (base && base->in_ack_event)
		base->in_ack_event(sk, flags);
}

static u32 mltcp_min_tso_segs(struct sock *sk)
{
	struct mltcp_sock *ms;
	const struct tcp_congestion_ops *base = mltcp_need(sk, &ms);

	if (base && base->min_tso_segs)
		return base->min_tso_segs(sk);
	return READ_ONCE(sock_net(sk)->ipv4.sysctl_tcp_min_tso_segs);
}

static u32 mltcp_sndbuf_expand(struct sock *sk)
{
	struct mltcp_sock *ms;
	const struct tcp_congestion_ops *base = mltcp_need(sk, &ms);

	if (base && base->sndbuf_expand)
		return base->sndbuf_expand(sk);
	return 2; /* what the kernel takes where there is no such operation */
}

/*
 * For `ss -i`. Called without the socket's lock, while the socket may be taking another
 * congestion control, so the private area isn't ours to trust here. A base that stepped aside
 * for want of ECN would report what doesn't act: ops_without_ecn lacks this operation.
 */
static size_t mltcp_get_info(struct sock *sk, u32 ext, int *attr, union tcp_cc_info *info)
{
	const struct mltcp_variant *variant =
		mltcp_variant_of(READ_ONCE(inet_csk(sk)->icsk_ca_ops));

	/* It may already be another variant than the one whose operation was called. */
	if (!variant || !variant->base->get_info)
		return 0;
	return variant->base->get_info(sk, ext, attr, info);
}

int mltcp_cc_retag(struct sock *sk, struct mltcp_job_ref *job)
{
	struct mltcp_sock *ms = NULL;

	if (mltcp_variant_of(inet_csk(sk)->icsk_ca_ops))
		need_state(sk, &ms);
	/* A connection that was reset keeps its state until the descriptor is closed. */
	if (!ms || (job && sk->sk_state == TCP_CLOSE))
		return -ENOTCONN;
	ms->by_hand = true;
	give(ms, job);
	return 0;
}

/* All there are; a variant has no optional ones but those of its base. */
const struct tcp_congestion_ops mltcp_cc_ops = {
	.init = mltcp_init,
	.release = mltcp_release,
	.ssthresh = mltcp_ssthresh,
	.cong_avoid = mltcp_cong_avoid,
	.undo_cwnd = mltcp_undo_cwnd,
	.pkts_acked = mltcp_pkts_acked,
	.set_state = mltcp_set_state,
	.cwnd_event = mltcp_cwnd_event,
#ifdef HAVE_CWND_EVENT_TX_START
	.cwnd_event_tx_start = mltcp_cwnd_event_tx_start,
#endif
	.in_ack_event = mltcp_in_ack_event,
	.min_tso_segs = mltcp_min_tso_segs,
	.sndbuf_expand = mltcp_sndbuf_expand,
	.get_info = mltcp_get_info,
	.owner = THIS_MODULE,
};
