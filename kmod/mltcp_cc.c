// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the congestion controls do. Each wraps one of the kernel's own, see mltcp_variants.c: what
 * isn't MLTCP's business goes straight to the base, so that at F = 1 a flow is the base itself.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include "mltcp.h"
#include "mltcp_loss.h"
#include "mltcp_step.h"
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

static void mltcp_release(struct sock *sk)
{
	const struct tcp_congestion_ops *base = mltcp_variant_of_socket(sk)->base;
	struct mltcp_sock *ms = mltcp_state(sk);
	bool started = mltcp_is_started(sk);

	if (ms) {
		note(ms);
		mltcp_report(ms);
	}
	if ((started || mltcp_has_begun_bare(sk)) && base->release)
		base->release(sk);
	if (started)
		memset(mltcp_private(sk), 0, sizeof(struct mltcp_private));
	if (ms)
		mltcp_flow_free(ms);
}

static u32 mltcp_ssthresh(struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	struct mltcp_sock *ms;
	const struct tcp_congestion_ops *base = mltcp_need(sk, &ms);
	u64 *path;
	u32 key;

	if (ms) {
		path = mltcp_path(sk, 0, &key);
		mltcp_on_loss(&ms->flow, tp->srtt_us >> 3, tcp_min_rtt(tp), path, key);
	}
	return base ? base->ssthresh(sk) : tcp_reno_ssthresh(sk);
}

/* What the queue makes of the window. Says whether the increase is left out. */
static bool step_aside(struct tcp_sock *tp, struct mltcp_sock *ms)
{
	u32 cwnd = tcp_snd_cwnd(tp), ssthresh = tp->snd_ssthresh;
	bool yields = mltcp_yield_or_resume(&ms->flow, tp->srtt_us >> 3, tcp_min_rtt(tp), &cwnd,
					    &ssthresh);

	tcp_snd_cwnd_set(tp, cwnd);
	tp->snd_ssthresh = ssthresh;
	return yields && mltcp_variant_at(ms->variant)->yield_holds;
}

/* Of a flow that isn't its base. */
static void grow(struct sock *sk, u32 ack, u32 acked, struct mltcp_sock *ms)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 scaled = acked, before;

	/* A flow that sees no queue, and has nothing to take back, neither yields nor resumes. */
	if (ms->flow.delay.watched | ms->flow.resume_ssthresh && step_aside(tp, ms))
		return;
	/* Slow start stays the base's own. */
	if (!tcp_in_slow_start(tp))
		scaled = mltcp_scaled_acked(&ms->flow, acked);
	before = tcp_snd_cwnd(tp);
	ms->base->cong_avoid(sk, ack, scaled);
	if (scaled > acked)
		tcp_snd_cwnd_set(tp, mltcp_bounded_cwnd(before, tcp_snd_cwnd(tp), acked));
}

/* Of a flow that isn't its base, or has no state. */
static noinline void cong_avoid_otherwise(struct sock *sk, u32 ack, u32 acked)
{
	struct mltcp_sock *ms;
	const struct tcp_congestion_ops *base = mltcp_need(sk, &ms);

	if (ms)
		grow(sk, ack, acked, ms);
	else if (base)
		base->cong_avoid(sk, ack, acked);
	else
		tcp_reno_cong_avoid(sk, ack, acked);
}

/* Every ACK comes here: what few need is apart, so that the others save no registers. */
static void mltcp_cong_avoid(struct sock *sk, u32 ack, u32 acked)
{
	const struct mltcp_sock *ms = mltcp_state(sk);

	if (likely(ms && mltcp_is_base(&ms->flow)))
		ms->base->cong_avoid(sk, ack, acked);
	else
		cong_avoid_otherwise(sk, ack, acked);
}

static u32 mltcp_undo_cwnd(struct sock *sk)
{
	struct mltcp_sock *ms;
	const struct tcp_congestion_ops *base = mltcp_need(sk, &ms);
	u64 *path;
	u32 key;

	if (ms) {
		path = mltcp_path(sk, 0, &key);
		mltcp_on_undo(&ms->flow, path, key);
	}
	return base ? base->undo_cwnd(sk) : tcp_reno_undo_cwnd(sk);
}

/* What mltcp_step() asks of the module. */
struct mltcp_env {
	struct mltcp_sock *ms;
	const struct ack_sample *sample;
	struct mltcp_params params; /* a copy, for the job's may be replaced */
};

static s32 mltcp_env_rtt(const struct mltcp_env *env, u32 *min_us)
{
	*min_us = tcp_min_rtt(tcp_sk(env->ms->sk));
	return env->sample->rtt_us;
}

/* The job may have been deleted; a tag that changes is seen to in mltcp_cc_retag(). */
static const struct mltcp_params *mltcp_env_params(struct mltcp_env *env, struct mltcp_flow *flow,
						   u32 *mechanisms)
{
	const struct mltcp_job_data *data = NULL;
	const struct mltcp_job_ref *job;
	bool trusted;
	u32 id;

	rcu_read_lock();
	job = rcu_dereference(env->ms->job);
	if (job)
		data = rcu_dereference(job->data);
	env->params = data ? data->job.params : mltcp_defaults;
	id = data ? job->id : 0;
	trusted = data && data->trusted;
	rcu_read_unlock();

	if (unlikely(flow->job != id)) {
		note(env->ms);
		mltcp_reset(flow, id, flow->acked_bytes, flow->retransmits);
	}
	*mechanisms = env->params.mechanisms;
	if (*mechanisms == MLTCP_MECHANISMS_DEFAULT)
		*mechanisms = mltcp_variant_at(env->ms->variant)->mechanisms;
	if (trusted)
		*mechanisms |= MLTCP_TRUSTED;
	return &env->params;
}

static void mltcp_env_report(struct mltcp_env *env, const struct mltcp_flow *flow)
{
	mltcp_report(env->ms);
}

static u64 mltcp_env_received(const struct mltcp_env *env)
{
	return tcp_sk(env->ms->sk)->bytes_received;
}

static struct mltcp_host mltcp_env_host(const struct mltcp_env *env, u64 now)
{
	struct mltcp_host host;

	rcu_read_lock();
	host = mltcp_net_host(sock_net(env->ms->sk), now);
	rcu_read_unlock();
	return host;
}

static u64 *mltcp_env_path(const struct mltcp_env *env, u32 job, u32 *key)
{
	return mltcp_path(env->ms->sk, job, key);
}

static void mltcp_env_note(const struct mltcp_env *env, struct mltcp_flow *flow)
{
	note(env->ms);
}

static u8 mltcp_env_is_off(const struct mltcp_env *env)
{
	return !READ_ONCE(mltcp_enabled);
}

/* The ACK of a SYN or a FIN alone says nothing of a burst. */
static bool says_nothing(const struct sock *sk, u64 bytes, const struct mltcp_sock *ms)
{
	return (bytes != tcp_sk(sk)->bytes_acked || sk->sk_state == TCP_SYN_SENT) &&
	       bytes == ms->flow.acked_bytes;
}

static noinline void pkts_acked_in_full(struct sock *sk, const struct ack_sample *sample)
{
	struct mltcp_env env;
	const struct tcp_congestion_ops *base = mltcp_need(sk, &env.ms);
	u64 bytes = acked_bytes(sk);

	if (env.ms && !says_nothing(sk, bytes, env.ms)) {
		env.sample = sample;
		mltcp_step(&env, &env.ms->flow, tcp_sk(sk)->tcp_clock_cache, bytes);
	}
	if (base && base->pkts_acked)
		base->pkts_acked(sk, sample);
}

/*
 * Every ACK while something is under way, whatever it acknowledges, in every state. Of most of them
 * mltcp_step() is these few lines, which need no stack frame.
 */
static void mltcp_pkts_acked(struct sock *sk, const struct ack_sample *sample)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	struct mltcp_sock *ms = mltcp_state(sk);
	u64 now = tp->tcp_clock_cache, bytes = tp->bytes_acked;

	if (unlikely(!ms || sk->sk_state != TCP_ESTABLISHED ||
		     mltcp_is_due(&ms->flow, now, bytes))) {
		pkts_acked_in_full(sk, sample);
		return;
	}
	if (ms->flow.delay.watched)
		mltcp_delay_sample(&ms->flow.delay, sample->rtt_us, tcp_min_rtt(tp));
	mltcp_count(&ms->flow, now, bytes);
	if (ms->base->pkts_acked)
		ms->base->pkts_acked(sk, sample);
}

static void mltcp_set_state(struct sock *sk, u8 new_state)
{
	struct mltcp_sock *ms;
	const struct tcp_congestion_ops *base = mltcp_need(sk, &ms);

	if (base && base->set_state)
		base->set_state(sk, new_state);
	if (ms && new_state == TCP_CA_Loss)
		mltcp_on_time_out(&ms->flow, tcp_sk(sk)->tcp_clock_cache);
}

/* What follows goes to the base as it is; only what a base has is registered. */

/* Give the flow to a job (NULL: to none), and take over the reference to it. */
static void give(struct mltcp_sock *ms, struct mltcp_job_ref *job)
{
	struct mltcp_job_ref *old =
		rcu_dereference_protected(ms->job, lockdep_sock_is_held(ms->sk));

	if (old != job) {
		note(ms);
		mltcp_report(ms);
		rcu_assign_pointer(ms->job, job);
		/* What the next ACK acknowledges already belongs to the new job. */
		mltcp_reset(&ms->flow, job ? job->id : 0, ms->flow.acked_bytes,
			    ms->flow.retransmits);
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
static void on_tx_start(struct sock *sk, struct mltcp_sock *ms)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 cwnd = tcp_snd_cwnd(tp);

	if (!ms || tp->packets_out)
		return;
	if (unlikely(ms->rules_seen != READ_ONCE(mltcp_rules_changes)))
		follow_rules(ms);
	/* The clock was read where sending began. */
	mltcp_on_send(&ms->flow, tp->tcp_clock_cache, tp->total_retrans);
	mltcp_begin_small(&ms->flow, tp->srtt_us >> 3, tcp_min_rtt(tp), &cwnd, &tp->snd_ssthresh);
	tcp_snd_cwnd_set(tp, cwnd);
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

static void mltcp_in_ack_event(struct sock *sk, u32 flags)
{
	struct mltcp_sock *ms;
	const struct tcp_congestion_ops *base = mltcp_need(sk, &ms);

	if (base && base->in_ack_event)
		base->in_ack_event(sk, flags);
}

/*
 * For `ss -i`. Called without the socket's lock, while the socket may be taking another
 * congestion control, so the private area isn't ours to trust here.
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
		mltcp_need(sk, &ms);
	/* A connection that was reset keeps its state until the descriptor is closed. */
	if (!ms || (job && sk->sk_state == TCP_CLOSE))
		return -ENOTCONN;
	ms->by_hand = true;
	give(ms, job);
	return 0;
}

/*
 * A variant has no optional ones but those of its base. No base sizes its bursts (min_tso_segs,
 * which kernels with BBRv3's patch lack) or its buffer (sndbuf_expand).
 */
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
	.get_info = mltcp_get_info,
	.owner = THIS_MODULE,
};
