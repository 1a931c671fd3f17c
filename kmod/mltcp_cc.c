// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the congestion controls do. Each wraps one of the kernel's own, see mltcp_variants.c: what
 * isn't MLTCP's business goes straight to the base, so that at F = 1 a flow is the base itself.
 *
 * The base keeps its state at the start of the socket's private area (cubic 60 of 104 bytes,
 * dctcp 40 in 6.12, reno none), ours is behind a pointer at the end, 16 bytes.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include "mltcp.h"

/*
 * What is ours of the private area. It may hold what another congestion control left there, see
 * need_state(), or be a copy of another socket's: the second word tells.
 */
struct private_end {
	struct mltcp_sock *ms;
	unsigned long check; /* ms ^ socket */
};

static struct private_end *private_end(const struct sock *sk)
{
	return inet_csk_ca(sk) + ICSK_CA_PRIV_SIZE - sizeof(struct private_end);
}

/* NULL while connecting, after release, and where memory was short: the flow is plain Reno then. */
static struct mltcp_sock *get_state(const struct sock *sk)
{
	const struct private_end *end = private_end(sk);

	return end->check == ((unsigned long)end->ms ^ (unsigned long)sk) ? end->ms : NULL;
}

static void set_state_pointer(struct sock *sk, struct mltcp_sock *ms)
{
	struct private_end *end = private_end(sk);

	end->ms = ms;
	end->check = ms ? (unsigned long)ms ^ (unsigned long)sk : 0;
}

static void start(struct sock *sk)
{
	struct inet_connection_sock *icsk = inet_csk(sk);
	struct mltcp_variant *variant = mltcp_variant_of(icsk->icsk_ca_ops);
	const struct tcp_congestion_ops *base = variant->base;
	struct mltcp_sock *ms;

	BUILD_BUG_ON(ICSK_CA_PRIV_SIZE % sizeof(struct private_end *));

	/* A socket that connects again: this connection may have ECN. */
	icsk->icsk_ca_ops = &variant->ops;
	memset(inet_csk_ca(sk), 0, ICSK_CA_PRIV_SIZE);
	if (base->init)
		base->init(sk);
	/*
	 * dctcp without ECN puts other operations in its place, which its own module owns. Ours
	 * must stay, for the modules' reference counts, and must not ask for ECN then.
	 */
	if (icsk->icsk_ca_ops != &variant->ops) {
		base = icsk->icsk_ca_ops;
		icsk->icsk_ca_ops = &variant->ops_without_ecn;
		INET_ECN_dontxmit(sk);
	}

	ms = mltcp_flow_new(sk);
	if (!ms) {
		pr_warn_ratelimited("out of memory: a flow runs as plain Reno\n");
		return;
	}
	ms->variant = variant;
	ms->base = base;
	set_state_pointer(sk, ms);
}

/*
 * The state of a locked socket, made now if it has none yet. Not while it connects: a socket
 * whose connect() waits for its first data (TCP_FASTOPEN_CONNECT) may then be given another
 * congestion control by its route, and the kernel calls neither the old one's release nor the
 * new one's init.
 */
static struct mltcp_sock *need_state(struct sock *sk)
{
	const int without = TCPF_CLOSE | TCPF_LISTEN | TCPF_SYN_SENT;
	struct mltcp_sock *ms = get_state(sk);

	if (likely(ms))
		return ms;
	if (!(1 << sk->sk_state & without))
		start(sk);
	return get_state(sk);
}

static void mltcp_init(struct sock *sk)
{
	need_state(sk);
}

/* The iteration that has ended. */
static void report(const struct mltcp_sock *ms)
{
	const struct mltcp_job_ref *job;

	if (!mltcp_is_reported(&ms->flow, READ_ONCE(mltcp_defaults.gap_ns)))
		return;
	rcu_read_lock();
	job = rcu_dereference(ms->job);
	/* A job without data may have lost its namespace, too. */
	if (!job)
		mltcp_netlink_report(sock_net(ms->sk), ms);
	else if (rcu_access_pointer(job->data))
		mltcp_netlink_report(job->net, ms);
	rcu_read_unlock();
}

/* Where the connection is now, for reports. */
static void note(struct mltcp_sock *ms)
{
	const struct tcp_sock *tp = tcp_sk(ms->sk);

	mltcp_note(&ms->flow, tcp_snd_cwnd(tp), tp->srtt_us >> 3, tp->total_retrans);
}

static void mltcp_release(struct sock *sk)
{
	struct mltcp_sock *ms = get_state(sk);

	if (!ms)
		return;
	note(ms);
	report(ms);
	if (ms->base->release)
		ms->base->release(sk);
	set_state_pointer(sk, NULL);
	mltcp_flow_free(ms);
}

static u32 mltcp_ssthresh(struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	struct mltcp_sock *ms = get_state(sk);
	u32 key, ssthresh;
	u64 *path;

	if (!ms)
		return tcp_reno_ssthresh(sk);
	path = mltcp_path(sk, &key);
	mltcp_delay_ask(&ms->flow.delay, tp->tcp_clock_cache, path, key);
	ssthresh = mltcp_on_loss(&ms->flow, tcp_snd_cwnd(tp), ms->base->ssthresh(sk),
				 tp->srtt_us >> 3, tcp_min_rtt(tp));
	mltcp_delay_tell(&ms->flow.delay, path, key);
	return ssthresh;
}

static void mltcp_cong_avoid(struct sock *sk, u32 ack, u32 acked)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct mltcp_sock *ms = get_state(sk);
	u32 cwnd, ssthresh;
	bool yields;

	if (!ms) {
		tcp_reno_cong_avoid(sk, ack, acked);
		return;
	}
	if (likely(mltcp_is_base(&ms->flow))) {
		ms->base->cong_avoid(sk, ack, acked);
		return;
	}
	cwnd = tcp_snd_cwnd(tp);
	ssthresh = tp->snd_ssthresh;
	yields = mltcp_yield_or_resume(&ms->flow, tp->srtt_us >> 3, &cwnd, &ssthresh);
	tcp_snd_cwnd_set(tp, cwnd);
	tp->snd_ssthresh = ssthresh;
	if (yields && ms->variant->yield_holds)
		return;
	/* Slow start stays the base's own. */
	if (!tcp_in_slow_start(tp))
		acked = mltcp_scaled_acked(&ms->flow, acked);
	ms->base->cong_avoid(sk, ack, acked);
}

static u32 mltcp_undo_cwnd(struct sock *sk)
{
	struct mltcp_sock *ms = get_state(sk);

	return ms ? ms->base->undo_cwnd(sk) : tcp_reno_undo_cwnd(sk);
}

/* Bytes of data acknowledged so far. bytes_acked has one more once our FIN is acknowledged. */
static u64 acked_bytes(const struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	if (likely(sk->sk_state == TCP_ESTABLISHED))
		return tp->bytes_acked;
	if ((1 << sk->sk_state) & (TCPF_FIN_WAIT1 | TCPF_CLOSING | TCPF_LAST_ACK) &&
	    tp->snd_una == tp->write_seq)
		return tp->bytes_acked - 1;
	return tp->bytes_acked;
}

/*
 * The parameters of the flow's job, or of flows without one. Under RCU, for they may be replaced.
 * The job may also have been deleted; a tag that changes is seen to in mltcp_cc_retag().
 */
static const struct mltcp_params *params_of(struct mltcp_sock *ms)
{
	const struct mltcp_job_ref *job = rcu_dereference(ms->job);
	const struct mltcp_job_data *data = job ? rcu_dereference(job->data) : NULL;
	u32 id = data ? job->id : 0;

	if (unlikely(ms->flow.job != id))
		mltcp_reset(&ms->flow, id, ms->flow.acked_bytes, ms->flow.retransmits);
	return data ? &data->job.params : &mltcp_defaults;
}

/*
 * Sending began anew, or the flow got a step further: once a gap and MLTCP_STEPS times an
 * iteration. Out of line, so that what every ACK passes stays short.
 */
static noinline void decide(struct mltcp_sock *ms, u64 now, u64 bytes)
{
	struct mltcp_flow *flow = &ms->flow;
	const struct mltcp_params *params;
	u32 mechanisms, key;
	const u64 *path;

	rcu_read_lock();
	params = params_of(ms);
	if (mltcp_was_idle(flow)) {
		if (mltcp_is_boundary(flow, params, now)) {
			report(ms);
			mltcp_begin(flow, params, now, tcp_sk(ms->sk)->bytes_received);
		}
		mltcp_on_ack(flow, now, bytes);
	}
	mechanisms = READ_ONCE(params->mechanisms);
	if (mechanisms == MLTCP_MECHANISMS_DEFAULT)
		mechanisms = ms->variant->mechanisms;
	ms->watches_queue = mechanisms & MLTCP_YIELD;
	if (ms->watches_queue) {
		path = mltcp_path(ms->sk, &key);
		mltcp_delay_ask(&flow->delay, now, path, key);
	}
	note(ms);
	mltcp_decide(flow, params, mechanisms, now);
	rcu_read_unlock();
}

/* Every ACK that acknowledges data, in every state of the connection. */
static void mltcp_pkts_acked(struct sock *sk, const struct ack_sample *sample)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	struct mltcp_sock *ms = need_state(sk);
	u64 now = tp->tcp_clock_cache; /* when the ACK came, CLOCK_MONOTONIC */
	struct mltcp_flow *flow;
	u64 bytes;

	if (!ms)
		return;
	if (ms->base->pkts_acked)
		ms->base->pkts_acked(sk, sample);
	flow = &ms->flow;
	bytes = acked_bytes(sk);
	/* The ACK of a FIN alone says nothing of a burst. */
	if (unlikely(bytes < tp->bytes_acked) && bytes == flow->acked_bytes)
		return;
	if (ms->watches_queue) {
		const struct mltcp_rtt rtt = {
			.now_us = (u32)tp->tcp_mstamp,
			.rtt_us = sample->rtt_us,
			.min_us = tcp_min_rtt(tp),
			.segments = sample->pkts_acked,
			.bytes = bytes - flow->acked_bytes,
			.outstanding = tp->packets_out,
			.retransmitted = tp->total_retrans,
		};

		mltcp_delay_rtt(&flow->delay, &rtt);
	}
	if (unlikely(mltcp_was_idle(flow) || mltcp_on_ack(flow, now, bytes)))
		decide(ms, now, bytes);
}

/* What follows goes to the base as it is; only what a base has is registered. */

static void mltcp_set_state(struct sock *sk, u8 new_state)
{
	struct mltcp_sock *ms = get_state(sk);

	if (ms && ms->base->set_state)
		ms->base->set_state(sk, new_state);
}

/*
 * Sending begins. The kernel says so also for a retransmission when all is taken for lost; then
 * packets are outstanding, which new data is not counted among before it has left.
 */
static void note_send(const struct sock *sk, struct mltcp_sock *ms)
{
	if (!tcp_sk(sk)->packets_out)
		mltcp_on_send(&ms->flow, ktime_get_ns(), tcp_sk(sk)->total_retrans);
}

#ifdef HAVE_CWND_EVENT_TX_START
static void mltcp_cwnd_event_tx_start(struct sock *sk)
{
	struct mltcp_sock *ms = get_state(sk);

	if (!ms)
		return;
	note_send(sk, ms);
	if (ms->base->cwnd_event_tx_start)
		ms->base->cwnd_event_tx_start(sk);
}
#endif

static void mltcp_cwnd_event(struct sock *sk, enum tcp_ca_event event)
{
	struct mltcp_sock *ms = get_state(sk);

	if (!ms)
		return;
#ifndef HAVE_CWND_EVENT_TX_START
	if (event == CA_EVENT_TX_START)
		note_send(sk, ms);
#endif
	if (ms->base->cwnd_event)
		ms->base->cwnd_event(sk, event);
}

static void mltcp_in_ack_event(struct sock *sk, u32 flags)
{
	struct mltcp_sock *ms = get_state(sk);

	if (ms && ms->base->in_ack_event)
		ms->base->in_ack_event(sk, flags);
}

static u32 mltcp_min_tso_segs(struct sock *sk)
{
	struct mltcp_sock *ms = get_state(sk);

	if (ms && ms->base->min_tso_segs)
		return ms->base->min_tso_segs(sk);
	return READ_ONCE(sock_net(sk)->ipv4.sysctl_tcp_min_tso_segs);
}

static u32 mltcp_sndbuf_expand(struct sock *sk)
{
	struct mltcp_sock *ms = get_state(sk);

	if (ms && ms->base->sndbuf_expand)
		return ms->base->sndbuf_expand(sk);
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
	struct mltcp_sock *ms = mltcp_variant_of(inet_csk(sk)->icsk_ca_ops) ? need_state(sk) : NULL;
	struct mltcp_job_ref *old;

	/* A connection that was reset keeps its state until the descriptor is closed. */
	if (!ms || (job && sk->sk_state == TCP_CLOSE))
		return -ENOTCONN;
	old = rcu_dereference_protected(ms->job, lockdep_sock_is_held(sk));
	if (old != job) {
		note(ms);
		report(ms);
		rcu_assign_pointer(ms->job, job);
		/* What the next ACK acknowledges already belongs to the new job. */
		mltcp_reset(&ms->flow, job ? job->id : 0, ms->flow.acked_bytes,
			    ms->flow.retransmits);
	}
	mltcp_job_put(old);
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
