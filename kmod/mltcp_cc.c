// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the congestion controls do. Each wraps one of the kernel's own, see mltcp_variants.c: what
 * isn't MLTCP's business goes straight to the base, so that at F = 1 a flow is the base itself.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include "mltcp.h"

static void mltcp_init(struct sock *sk)
{
	mltcp_start(sk);
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
	const struct mltcp_variant *variant = mltcp_variant_of(inet_csk(sk)->icsk_ca_ops);
	const struct tcp_congestion_ops *base = mltcp_bare_base(sk);
	bool begun = mltcp_has_begun(sk);
	struct mltcp_sock *ms = mltcp_state(sk);

	if (ms) {
		note(ms);
		report(ms);
	}
	if (begun && base->release)
		base->release(sk);
	mltcp_stop(sk);
	if (ms)
		mltcp_flow_free(ms);
	/* Should it connect again, it asks for ECN again. */
	WRITE_ONCE(inet_csk(sk)->icsk_ca_ops, &variant->ops);
}

static u32 mltcp_ssthresh(struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	struct mltcp_sock *ms;
	const struct tcp_congestion_ops *base = mltcp_need(sk, &ms);
	const struct mltcp_variant *variant;
	u32 key, ssthresh, cwnd = tcp_snd_cwnd(tp), srtt_us = tp->srtt_us >> 3;
	u64 *path;

	if (!ms)
		return base ? base->ssthresh(sk) : tcp_reno_ssthresh(sk);
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
	grow(ms->base->cong_avoid, sk, ack, acked);
}

/* Of a flow that gives way in the queue, or takes its share back. */
static noinline void grow_aside(struct sock *sk, u32 ack, u32 acked, struct mltcp_sock *ms)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 cwnd = tcp_snd_cwnd(tp), ssthresh = tp->snd_ssthresh;
	bool yields = mltcp_yield_or_resume(&ms->flow, tp->srtt_us >> 3, &cwnd, &ssthresh);

	tcp_snd_cwnd_set(tp, cwnd);
	tp->snd_ssthresh = ssthresh;
	if (!yields || !mltcp_variant_at(ms->variant)->yield_holds)
		grow_scaled(sk, ack, acked, ms);
}

/* Of a flow that isn't its base at present. */
static noinline void grow_otherwise(struct sock *sk, u32 ack, u32 acked, struct mltcp_sock *ms)
{
	if (unlikely(mltcp_is_aside(&ms->flow)))
		grow_aside(sk, ack, acked, ms);
	else
		grow_scaled(sk, ack, acked, ms);
}

/* Of a flow that had no state. */
static noinline void grow_anew(struct sock *sk, u32 ack, u32 acked)
{
	const struct tcp_congestion_ops *base = mltcp_need_anew(sk);

	grow(base ? base->cong_avoid : tcp_reno_cong_avoid, sk, ack, acked);
}

static void mltcp_cong_avoid(struct sock *sk, u32 ack, u32 acked)
{
	struct mltcp_sock *ms = mltcp_state_of(sk);

	if (unlikely(!mltcp_has_state(sk)))
		grow_anew(sk, ack, acked);
	else if (likely(ms->cong_avoid))
		grow(ms->cong_avoid, sk, ack, acked);
	else
		grow_otherwise(sk, ack, acked, ms);
}

static u32 mltcp_undo_cwnd(struct sock *sk)
{
	struct mltcp_sock *ms;
	const struct tcp_congestion_ops *base = mltcp_need(sk, &ms);

	return base ? base->undo_cwnd(sk) : tcp_reno_undo_cwnd(sk);
}

/* Bytes of data acknowledged so far. bytes_acked has one more once our FIN is acknowledged. */
static u64 acked_bytes(const struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);

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

/* For mltcp_begin(): what has come to a network namespace in all, by its counters of IP. */
static u64 host_bytes(const struct net *net)
{
	void __percpu *mibs[] = {
		net->mib.ip_statistics,
#if IS_ENABLED(CONFIG_IPV6)
		net->mib.ipv6_statistics, /* NULL without the module ipv6 */
#endif
	};
	u64 octets = 0, packets = 0;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(mibs); i++) {
		if (!mibs[i])
			continue;
		octets += snmp_fold_field64(mibs[i], IPSTATS_MIB_INOCTETS,
					    offsetof(struct ipstats_mib, syncp));
		packets += snmp_fold_field64(mibs[i], IPSTATS_MIB_INPKTS,
					     offsetof(struct ipstats_mib, syncp));
	}
	return mltcp_host_bytes(octets, packets);
}

/*
 * Sending began anew, or the flow got a step further: once a gap and MLTCP_STEPS times an
 * iteration.
 */
static noinline void decide(struct mltcp_sock *ms, u64 now, u64 bytes)
{
	struct mltcp_flow *flow = &ms->flow;
	const struct mltcp_params *params;
	u32 mechanisms, key;
	u64 *path;

	rcu_read_lock();
	if (!mltcp_was_idle(flow))
		mltcp_on_ack(flow, now, bytes);
	params = params_of(ms);
	if (mltcp_was_idle(flow)) {
		if (mltcp_is_boundary(flow, params, now)) {
			report(ms);
			mltcp_begin(flow, params, now, tcp_sk(ms->sk)->bytes_received,
				    host_bytes(sock_net(ms->sk)));
		}
		mltcp_on_ack(flow, now, bytes);
	}
	mechanisms = READ_ONCE(params->mechanisms);
	if (mechanisms == MLTCP_MECHANISMS_DEFAULT)
		mechanisms = mltcp_variant_at(ms->variant)->mechanisms;
	if (mechanisms & MLTCP_YIELD) {
		path = mltcp_path(ms->sk, &key);
		mltcp_delay_ask(&flow->delay, now, path, key);
	} else {
		/* No sample follows: a loss would take the last one for the queue that it found. */
		flow->delay.queue_us = 0;
		flow->delay.crossed = 0;
	}
	note(ms);
	mltcp_decide(flow, params, mechanisms, now);
	if (unlikely(!READ_ONCE(mltcp_enabled)))
		mltcp_be_base(flow);
	rcu_read_unlock();
	ms->watches_queue = !!(mechanisms & MLTCP_YIELD);
	/* Only a decision makes a flow another than its base; what makes it its base again may wait. */
	ms->cong_avoid = mltcp_is_base(flow) ? ms->base->cong_avoid : NULL;
}

/* What the ACK says of the delay. bytes: acknowledged so far. */
static __always_inline void sample_delay(const struct tcp_sock *tp, struct mltcp_flow *flow,
					 const struct ack_sample *sample, u64 bytes)
{
	/* Milliseconds are too long to tell a queue. */
	u32 stamp = tcp_is_usec_ts(tp) ? tp->rx_opt.rcv_tsval : 0;

	if (stamp || !mltcp_delay_shorter(&flow->delay, (u32)tp->tcp_mstamp, sample->rtt_us,
					  tcp_min_rtt(tp))) {
		const struct mltcp_rtt rtt = {
			.now_us = (u32)tp->tcp_mstamp,
			.rtt_us = sample->rtt_us,
			.min_us = tcp_min_rtt(tp),
			.segments = sample->pkts_acked,
			.bytes = bytes - flow->acked_bytes,
			.outstanding = tp->packets_out,
			.retransmitted = tp->total_retrans,
			.stamp = stamp,
		};

		mltcp_delay_rtt(&flow->delay, &rtt);
	}
}

/* An ACK whose delay is looked at, or with which the flow decides. */
static noinline void acked_watching(struct sock *sk, const struct ack_sample *sample, u64 bytes,
				    struct mltcp_sock *ms)
{
	u64 now = tcp_sk(sk)->tcp_clock_cache; /* when the ACK came, CLOCK_MONOTONIC */

	sample_delay(tcp_sk(sk), &ms->flow, sample, bytes);
	if (unlikely(mltcp_is_due(&ms->flow, now, bytes)))
		decide(ms, now, bytes);
	else
		mltcp_on_ack(&ms->flow, now, bytes);
}

/* A flow that doesn't watch the queue has nothing to decide because time has passed: no next_ns. */
static __always_inline void acked(struct sock *sk, const struct ack_sample *sample, u64 bytes,
				  struct mltcp_sock *ms)
{
	if (ms->watches_queue || unlikely(bytes >= ms->flow.next_bytes))
		acked_watching(sk, sample, bytes, ms);
	else
		mltcp_on_ack(&ms->flow, tcp_sk(sk)->tcp_clock_cache, bytes);
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
	/* The ACK of a FIN alone says nothing of a burst. */
	if (bytes == tcp_sk(sk)->bytes_acked || bytes != ms->flow.acked_bytes)
		acked(sk, sample, bytes, ms);
}

/* Every ACK that acknowledges data, in every state of the connection. */
static void mltcp_pkts_acked(struct sock *sk, const struct ack_sample *sample)
{
	if (likely(mltcp_has_state(sk) && sk->sk_state == TCP_ESTABLISHED))
		acked(sk, sample, tcp_sk(sk)->bytes_acked, mltcp_state_of(sk));
	else
		acked_otherwise(sk, sample);
}

/* What follows goes to the base as it is; only what a base has is registered. */

static void mltcp_set_state(struct sock *sk, u8 new_state)
{
	struct mltcp_sock *ms;
	const struct tcp_congestion_ops *base = mltcp_need(sk, &ms);

	if (base && base->set_state)
		base->set_state(sk, new_state);
}

/*
 * Sending begins. The kernel says so also for a retransmission when all is taken for lost; then
 * packets are outstanding, which new data is not counted among before it has left.
 */
static void note_send(struct sock *sk, struct mltcp_sock *ms)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 cwnd = tcp_snd_cwnd(tp);

	if (!ms || tp->packets_out)
		return;
	mltcp_on_send(&ms->flow, ktime_get_ns(), tp->total_retrans);
	ms->flow.next_bytes = 0; /* to decide, so no ACK need ask whether it came after a gap */
	mltcp_begin_small(&ms->flow, tp->srtt_us >> 3, tcp_min_rtt(tp), &cwnd, &tp->snd_ssthresh);
	tcp_snd_cwnd_set(tp, cwnd);
}

#ifdef HAVE_CWND_EVENT_TX_START
static void mltcp_cwnd_event_tx_start(struct sock *sk)
{
	struct mltcp_sock *ms;
	const struct tcp_congestion_ops *base = mltcp_need(sk, &ms);

	note_send(sk, ms);
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
		note_send(sk, ms);
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
	struct mltcp_job_ref *old;

	if (mltcp_variant_of(inet_csk(sk)->icsk_ca_ops))
		mltcp_need(sk, &ms);
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
