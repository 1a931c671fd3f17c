/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the congestion controls share: per-flow state, tags, reports, and the calls into the
 * core around a base algorithm's own functions.
 *
 * A base algorithm includes this file after defining
 *   MLTCP_MECHANISMS   the mechanisms it uses where a job doesn't say;
 *   MLTCP_YIELD_HOLDS  1: its window must not grow while the flow yields; CUBIC's makes for where it
 *                      was before, by half a window per RTT;
 * and calls, from its callbacks,
 *   mltcp_bpf_init(sk), mltcp_bpf_send(sk) where sending begins, mltcp_bpf_acked(sk, sample),
 *   mltcp_bpf_release(sk) and
 *   mltcp_bpf_loss(sk, base's ssthresh), or mltcp_bpf_mark() where that follows from marks;
 *   mltcp_bpf_avoid(sk, &acked), which says whether to call the base's cong_avoid, and with which
 *   count of segments; that may be 0.
 * The kernel calls them with the socket locked, so a flow's state needs no lock of its own.
 */
#ifndef MLTCP_BPF_H
#define MLTCP_BPF_H

#include "mltcp_maps.bpf.h"
#include "../kmod/mltcp_core.h"
#include "../kmod/mltcp_event.h"

/*
 * Parameters of flows without a job. Alone in its section, so that the loader can replace it
 * before the kernel sees it. total_bytes and gap_ns 0: each flow learns them.
 */
const volatile struct mltcp_params mltcp_defaults SEC(".rodata.defaults") = {
	MLTCP_DEFAULTS,
	.mechanisms = MLTCP_MECHANISMS_DEFAULT,
};

/* No peer's window is longer than 1 GiB (RFC 7323, 2.3); slow start may pass it by a factor of 2. */
#define MLTCP_USEFUL_BYTES (1ULL << 31)

/* Of a connection that has lost nothing yet, segments. */
#define TCP_INFINITE_SSTHRESH 0x7fffffff

#ifndef barrier_var
#define barrier_var(var) asm volatile("" : "+r"(var))
#endif

/*
 * Which version of the sources this is, as the loader knows it, terminated by 0: for whoever wants
 * to know what runs. No program reads it; the kernel keeps it for as long as them.
 */
const volatile char mltcp_build[MLTCP_BUILD_BYTES] SEC(".rodata.build") = {};

static __always_inline struct tcp_sock *tcp_sk(struct sock *sk)
{
	return (struct tcp_sock *)sk;
}

static __always_inline void mltcp_bpf_init(struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	struct mltcp_flow *flow;

	flow = bpf_sk_storage_get(&mltcp_flows, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (flow)
		mltcp_reset(flow, 0, tp->bytes_acked, tp->total_retrans);
}

/* Report the iteration that has ended. */
static __always_inline void mltcp_bpf_report(struct sock *sk, const struct mltcp_flow *flow)
{
	const struct sock_common *common = &sk->__sk_common;
	const struct inet_sock *inet = (struct inet_sock *)sk;
	struct mltcp_event *event;
	struct mltcp_tag *tag;
	__u64 *dropped;
	__u32 zero = 0;

	if (!mltcp_is_reported(flow, mltcp_defaults.gap_ns))
		return;
	event = bpf_ringbuf_reserve(&mltcp_events, sizeof(*event), 0);
	if (!event) {
		dropped = bpf_map_lookup_elem(&mltcp_dropped, &zero);
		if (dropped)
			__sync_fetch_and_add(dropped, 1);
		return;
	}
	event->cookie = common->skc_cookie.counter;
	mltcp_describe_iteration(event, flow);
	copy_address(event->local_addr, common->skc_family, common->skc_rcv_saddr,
		     &common->skc_v6_rcv_saddr);
	copy_address(event->remote_addr, common->skc_family, common->skc_daddr,
		     &common->skc_v6_daddr);
	/* skc_num is 0 already when a closed socket is released */
	event->local_port = __builtin_bswap16(inet->inet_sport);
	event->remote_port = __builtin_bswap16(common->skc_dport);
	event->netns = common->skc_net.net->ns.inum;
	barrier_var(event); /* else the two are one load, from pointers the verifier keeps apart */
	tag = flow->job ? bpf_sk_storage_get(&mltcp_tags, sk, 0, 0) : NULL;
	if (tag)
		event->netns = tag->netns;
	bpf_ringbuf_submit(event, 0);
}

/*
 * Sending begins. The kernel says so also for a retransmission when all is taken for lost; then
 * packets are outstanding, which new data is not counted among before it has left.
 */
static __always_inline void mltcp_bpf_send(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	__u32 cwnd = tp->snd_cwnd, ssthresh = tp->snd_ssthresh;
	struct mltcp_flow *flow;

	if (tp->packets_out)
		return;
	flow = bpf_sk_storage_get(&mltcp_flows, sk, 0, 0);
	if (!flow)
		return;
	mltcp_on_send(flow, bpf_ktime_get_ns(), tp->total_retrans);
	mltcp_begin_small(flow, tp->srtt_us >> 3, tp->rtt_min.s[0].v, &cwnd, &ssthresh);
	tp->snd_cwnd = cwnd;
	tp->snd_ssthresh = ssthresh;
}

/* Bytes of data acknowledged so far. bytes_acked has one more once our FIN is acknowledged. */
static __always_inline __u64 mltcp_bpf_acked_bytes(struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	__u8 state = sk->__sk_common.skc_state;

	if ((state == TCP_FIN_WAIT1 || state == TCP_CLOSING || state == TCP_LAST_ACK) &&
	    tp->snd_una == tp->write_seq)
		return tp->bytes_acked - 1;
	return tp->bytes_acked;
}

/*
 * Where the host keeps what is known of the flow's path, and the path's key: FNV-1a over the
 * words of its addresses. Never NULL, but the verifier can't tell.
 */
static __always_inline __u64 *mltcp_bpf_path(struct sock *sk, __u32 *key)
{
	const struct sock_common *common = &sk->__sk_common;
	__u32 addresses[8], hash = common->skc_net.net->ns.inum, i;

	copy_address((__u8 *)addresses, common->skc_family, common->skc_rcv_saddr,
		     &common->skc_v6_rcv_saddr);
	copy_address((__u8 *)(addresses + 4), common->skc_family, common->skc_daddr,
		     &common->skc_v6_daddr);
	for (i = 0; i < 8; i++)
		hash = (hash ^ addresses[i]) * 16777619;
	*key = hash; /* of which the low bits count */
	hash >>= 32 - MLTCP_PATHS_BITS; /* the low bits of FNV know little of the words */
	return bpf_map_lookup_elem(&mltcp_paths, &hash);
}

/* Was unloading forced? Then every flow is its base, from its next decision on. */
static __always_inline __u8 mltcp_bpf_is_off(void)
{
	__u32 zero = 0, *off = bpf_map_lookup_elem(&mltcp_off, &zero);

	return off && *off;
}

/* Where the connection is now, for reports. */
static __always_inline void mltcp_bpf_note(const struct tcp_sock *tp, struct mltcp_flow *flow)
{
	mltcp_note(flow, tp->snd_cwnd, tp->srtt_us >> 3, tp->total_retrans);
}

/*
 * What only some ACKs need: the parameters of the flow's job, or of flows without one. User space
 * may have changed the tag, or deleted the job.
 */
static __always_inline void mltcp_bpf_params(struct sock *sk, struct mltcp_flow *flow,
					     struct mltcp_params *params)
{
	const struct mltcp_params *defaults = (const struct mltcp_params *)&mltcp_defaults;
	struct mltcp_tag *tag = bpf_sk_storage_get(&mltcp_tags, sk, 0, 0);
	struct mltcp_job *job = NULL;
	__u32 id = 0;

	/* clang may take the initial values for the loaded ones when a whole struct is copied. */
	barrier_var(defaults);
	if (tag) {
		struct mltcp_job_key key = {.home = tag->home, .id = tag->job};

		id = tag->job;
		job = bpf_map_lookup_elem(&mltcp_jobs, &key);
	}
	if (job) {
		*params = job->params;
	} else {
		id = 0;
		*params = *defaults;
	}
	if (params->mechanisms == MLTCP_MECHANISMS_DEFAULT)
		params->mechanisms = MLTCP_MECHANISMS;
	if (flow->job == id)
		return;
	mltcp_bpf_note(tcp_sk(sk), flow);
	/* Of a job that was deleted nobody is told any more. */
	if (job || !tag || tag->job != flow->job)
		mltcp_bpf_report(sk, flow);
	/* The bytes of this ACK already belong to the new job. */
	mltcp_reset(flow, id, flow->acked_bytes, flow->retransmits);
}

/* Do this end's time stamps count microseconds? Before kernel 6.7 none did. */
static __always_inline __u8 mltcp_bpf_is_fine(struct tcp_sock *tp)
{
	return bpf_core_field_exists(tp->tcp_usec_ts) && BPF_CORE_READ_BITFIELD(tp, tcp_usec_ts);
}

/*
 * A kernel may skip the program for the threshold or for undoing, and take what lies on the stack for
 * its result (README.md says which do). A threshold or window that nobody can use is such a one,
 * unless the kernel has set no threshold yet. The threshold is then Reno's at the window at which
 * the latest cut began, and the window that one.
 */
static __always_inline void mltcp_bpf_mend_window(struct tcp_sock *tp)
{
	__u32 prior = tp->prior_cwnd, ssthresh = tp->snd_ssthresh;

	if (ssthresh != TCP_INFINITE_SSTHRESH &&
	    (__u64)ssthresh * tp->mss_cache > MLTCP_USEFUL_BYTES)
		tp->snd_ssthresh = prior / 2 > MLTCP_CWND_MIN ? prior / 2 : MLTCP_CWND_MIN;
	if ((__u64)tp->snd_cwnd * tp->mss_cache > MLTCP_USEFUL_BYTES)
		tp->snd_cwnd = prior > MLTCP_CWND_MIN ? prior : MLTCP_CWND_MIN;
}

/* Every ACK that acknowledges data, in every state of the connection. */
static __always_inline void mltcp_bpf_acked(struct sock *sk, const struct ack_sample *sample)
{
	struct tcp_sock *tp = tcp_sk(sk);
	__u64 now = tp->tcp_clock_cache; /* when the ACK came, CLOCK_MONOTONIC */
	__u64 acked_bytes = mltcp_bpf_acked_bytes(sk);
	struct mltcp_params params;
	struct mltcp_flow *flow;
	struct mltcp_rtt rtt;
	__u64 *path;
	__u32 key;

	mltcp_bpf_mend_window(tp);
	flow = bpf_sk_storage_get(&mltcp_flows, sk, 0, 0);
	/* The ACK of a FIN alone says nothing of a burst. */
	if (!flow || (acked_bytes < tp->bytes_acked && acked_bytes == flow->acked_bytes))
		return;
	rtt.now_us = tp->tcp_mstamp;
	rtt.rtt_us = sample->rtt_us;
	rtt.min_us = tp->rtt_min.s[0].v;
	rtt.segments = sample->pkts_acked;
	rtt.bytes = acked_bytes - flow->acked_bytes;
	rtt.outstanding = tp->packets_out;
	rtt.retransmitted = tp->total_retrans;
	rtt.stamp = mltcp_bpf_is_fine(tp) ? tp->rx_opt.rcv_tsval : 0;
	mltcp_delay_rtt(&flow->delay, &rtt);
	if (!mltcp_was_idle(flow) && !mltcp_on_ack(flow, now, acked_bytes))
		return;

	mltcp_bpf_params(sk, flow, &params);
	if (mltcp_was_idle(flow)) {
		if (mltcp_is_boundary(flow, &params, now)) {
			mltcp_bpf_report(sk, flow);
			mltcp_begin(flow, &params, now, tp->bytes_received);
		}
		mltcp_on_ack(flow, now, acked_bytes);
	}
	path = params.mechanisms & MLTCP_YIELD ? mltcp_bpf_path(sk, &key) : NULL;
	if (path)
		mltcp_delay_ask(&flow->delay, now, path, key);
	mltcp_bpf_note(tp, flow);
	mltcp_decide(flow, &params, params.mechanisms, now);
	if (mltcp_bpf_is_off())
		mltcp_be_base(flow);
}

/* Sets *acked to the count to hand to the base's cong_avoid; 0: that isn't to be called. */
static __always_inline __u8 mltcp_bpf_avoid(struct sock *sk, __u32 *acked)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct mltcp_flow *flow;
	__u32 cwnd, ssthresh;
	__u8 yields;

	flow = bpf_sk_storage_get(&mltcp_flows, sk, 0, 0);
	if (!flow || mltcp_is_base(flow))
		return 1;
	cwnd = tp->snd_cwnd;
	ssthresh = tp->snd_ssthresh;
	yields = mltcp_yield_or_resume(flow, tp->srtt_us >> 3, &cwnd, &ssthresh);
	tp->snd_cwnd = cwnd;
	tp->snd_ssthresh = ssthresh;
	if (yields && MLTCP_YIELD_HOLDS)
		return 0;
	/* Slow start stays the base's own. */
	if (tp->snd_cwnd >= tp->snd_ssthresh)
		*acked = mltcp_scaled_acked(flow, *acked);
	return 1;
}

static __always_inline __u32 mltcp_bpf_reduce(struct sock *sk, __u32 base, __u8 by_marks)
{
	struct tcp_sock *tp = tcp_sk(sk);
	__u32 cwnd = tp->snd_cwnd, srtt_us = tp->srtt_us >> 3, min_us = tp->rtt_min.s[0].v;
	struct mltcp_flow *flow;
	__u32 key, ssthresh;
	__u64 *path;

	flow = bpf_sk_storage_get(&mltcp_flows, sk, 0, 0);
	path = mltcp_bpf_path(sk, &key);
	if (!flow || !path)
		return base;
	mltcp_delay_ask(&flow->delay, tp->tcp_clock_cache, path, key);
	if (by_marks)
		ssthresh = mltcp_on_mark(flow, cwnd, base, srtt_us, min_us);
	else
		ssthresh = mltcp_on_loss(flow, cwnd, base, srtt_us, min_us);
	mltcp_delay_tell(&flow->delay, path, key);
	return ssthresh;
}

/* Slow-start threshold after a loss or a mark, where the base's would be `base`; segments. */
static __always_inline __u32 mltcp_bpf_loss(struct sock *sk, __u32 base)
{
	return mltcp_bpf_reduce(sk, base, 0);
}

/* Likewise, of a base that cuts its window by the share of marks. */
static __always_inline __u32 mltcp_bpf_mark(struct sock *sk, __u32 base)
{
	return mltcp_bpf_reduce(sk, base, 1);
}

/* The flow closes, or takes another congestion control: nothing of ours stays with it. */
static __always_inline void mltcp_bpf_release(struct sock *sk)
{
	struct mltcp_flow *flow;

	flow = bpf_sk_storage_get(&mltcp_flows, sk, 0, 0);
	if (!flow)
		return;
	mltcp_bpf_note(tcp_sk(sk), flow);
	mltcp_bpf_report(sk, flow);
	bpf_sk_storage_delete(&mltcp_flows, sk);
	bpf_sk_storage_delete(&mltcp_tags, sk);
}

/* Callbacks that are alike on every base. reduce: mltcp_bpf_loss, or mltcp_bpf_mark. */
#define MLTCP_CALLBACKS(reduce, base_ssthresh, base_cong_avoid)            \
	SEC("struct_ops")                                                  \
	void BPF_PROG(release, struct sock *sk)                            \
	{                                                                  \
		mltcp_bpf_release(sk);                                     \
	}                                                                  \
                                                                           \
	SEC("struct_ops")                                                  \
	__u32 BPF_PROG(ssthresh, struct sock *sk)                          \
	{                                                                  \
		return reduce(sk, base_ssthresh(sk));                      \
	}                                                                  \
                                                                           \
	SEC("struct_ops")                                                  \
	void BPF_PROG(cong_avoid, struct sock *sk, __u32 ack, __u32 acked) \
	{                                                                  \
		if (mltcp_bpf_avoid(sk, &acked))                           \
			base_cong_avoid(sk, ack, acked);                   \
	}

#endif
