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
 *   mltcp_bpf_release(sk), mltcp_bpf_undo(sk), mltcp_bpf_state(sk, state) after the base's own, and
 *   mltcp_bpf_loss(sk) before the base's ssthresh;
 *   mltcp_bpf_avoid(sk, &acked), which says whether to call the base's cong_avoid, and with which
 *   count of segments, and mltcp_bpf_avoided() after it.
 * The kernel calls them with the socket locked, so a flow's state needs no lock of its own.
 */
#ifndef MLTCP_BPF_H
#define MLTCP_BPF_H

#include "mltcp_maps.bpf.h"
#include "../kmod/mltcp_core.h"
#include "../kmod/mltcp_event.h"
#include "../kmod/mltcp_loss.h"
#include "../kmod/mltcp_step.h"
#include "../kmod/mltcp_yield.h"

/*
 * Parameters of flows without a job. Alone in its section, so that the loader can replace it
 * before the kernel sees it. burst_bytes and gap_ns 0: each flow learns them.
 */
const volatile struct mltcp_params mltcp_defaults SEC(".rodata.defaults") = {
	MLTCP_DEFAULTS,
	.mechanisms = MLTCP_MECHANISMS_DEFAULT,
};

/* No peer's window is longer than 1 GiB (RFC 7323, 2.3); slow start may pass it by a factor of 2. */
#define MLTCP_USEFUL_BYTES (1ULL << 31)

/* Of a connection that has lost nothing yet, segments. */
#define TCP_INFINITE_SSTHRESH 0x7fffffff

/* RFC 6928, segments */
#define TCP_INIT_CWND 10

/* Spreads the ids of jobs over keys (Knuth: 2^32 over the golden ratio). */
#define MLTCP_JOB_SPREAD 2654435761U

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

/* bytes_acked will have one more once our SYN is acknowledged, which is no data either. */
static __always_inline void mltcp_bpf_init(struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	__u64 acked_bytes = tp->bytes_acked + (sk->__sk_common.skc_state == TCP_SYN_SENT);
	struct mltcp_flow *flow;

	flow = bpf_sk_storage_get(&mltcp_flows, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (flow)
		mltcp_reset(flow, 0, acked_bytes, tp->total_retrans);
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

/* FNV-1a over a namespace's cookie, which never returns, the words of a path's addresses, and a job. */
static __always_inline __u32 mltcp_bpf_hash(struct sock *sk, __u32 job)
{
	const struct sock_common *common = &sk->__sk_common;
	__u64 cookie = common->skc_net.net->net_cookie;
	__u32 addresses[8], hash = (__u32)cookie ^ (__u32)(cookie >> 32), i;

	copy_address((__u8 *)addresses, common->skc_family, common->skc_rcv_saddr,
		     &common->skc_v6_rcv_saddr);
	copy_address((__u8 *)(addresses + 4), common->skc_family, common->skc_daddr,
		     &common->skc_v6_daddr);
	for (i = 0; i < 8; i++)
		hash = (hash ^ addresses[i]) * 16777619;
	return (hash ^ job) * 16777619;
}

/*
 * Where the host keeps what the flows of a path share, and the path's key. Never NULL, but the verifier
 * can't tell.
 */
static __always_inline __u64 *mltcp_bpf_path(struct sock *sk, __u32 job, __u32 *key)
{
	__u32 hash = mltcp_bpf_hash(sk, job);

	*key = hash;
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

/* Is that more segments than a connection can use? */
static __always_inline __u8 mltcp_bpf_is_useless(const struct tcp_sock *tp, __u32 segments)
{
	return (__u64)segments * tp->mss_cache > MLTCP_USEFUL_BYTES;
}

/*
 * A kernel may skip the program for the threshold or for undoing, and take what lies on the stack for
 * its result (README.md says which do). A threshold or window that nobody can use, too large or 0, is
 * such a one, unless the kernel has set no threshold yet. The threshold is then Reno's at the window at
 * which the latest cut began, and the window at most that one. Where programs were skipped for several
 * ACKs, the cut may have begun at such a window itself; the one at the latest step takes its place. A
 * burst may have gone out by then, so it's counted.
 */
static __always_inline void mltcp_bpf_mend_window(struct tcp_sock *tp,
						  const struct mltcp_flow *flow)
{
	__u8 bad_ssthresh =
		tp->snd_ssthresh < MLTCP_CWND_MIN || (tp->snd_ssthresh != TCP_INFINITE_SSTHRESH &&
						      mltcp_bpf_is_useless(tp, tp->snd_ssthresh));
	__u32 window = tp->prior_cwnd, zero = 0;
	__u64 *skipped;

	if (!bad_ssthresh && tp->snd_cwnd && !mltcp_bpf_is_useless(tp, tp->snd_cwnd))
		return;
	if (mltcp_bpf_is_useless(tp, window))
		window = flow && flow->cwnd ? flow->cwnd : TCP_INIT_CWND;
	if (window < MLTCP_CWND_MIN)
		window = MLTCP_CWND_MIN;
	if (bad_ssthresh)
		tp->snd_ssthresh = window / 2 > MLTCP_CWND_MIN ? window / 2 : MLTCP_CWND_MIN;
	if (!tp->snd_cwnd)
		tp->snd_cwnd = tp->snd_ssthresh < window ? tp->snd_ssthresh : window;
	if (tp->snd_cwnd > window)
		tp->snd_cwnd = window;
	skipped = bpf_map_lookup_elem(&mltcp_skipped, &zero);
	if (skipped)
		__sync_fetch_and_add(skipped, 1);
}

/* What mltcp_step() asks of the programs. */
struct mltcp_env {
	struct sock *sk;
	const struct ack_sample *sample;
	struct mltcp_params params;
};

static __always_inline __s32 mltcp_env_rtt(const struct mltcp_env *env, __u32 *min_us)
{
	*min_us = tcp_sk(env->sk)->rtt_min.s[0].v;
	return env->sample->rtt_us;
}

static __always_inline void mltcp_env_note(const struct mltcp_env *env, struct mltcp_flow *flow)
{
	mltcp_bpf_note(tcp_sk(env->sk), flow);
}

static __always_inline void mltcp_env_report(struct mltcp_env *env, const struct mltcp_flow *flow)
{
	mltcp_bpf_report(env->sk, flow);
}

/* User space may have changed the tag, or deleted the job. */
static __always_inline const struct mltcp_params *
mltcp_env_params(struct mltcp_env *env, struct mltcp_flow *flow, __u32 *mechanisms)
{
	const struct mltcp_params *defaults = (const struct mltcp_params *)&mltcp_defaults;
	struct mltcp_tag *tag = bpf_sk_storage_get(&mltcp_tags, env->sk, 0, 0);
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
		env->params = job->params;
	} else {
		id = 0;
		env->params = *defaults;
	}
	*mechanisms = env->params.mechanisms;
	if (*mechanisms == MLTCP_MECHANISMS_DEFAULT) {
		*mechanisms = MLTCP_MECHANISMS;
	}
	if (job) /* which nobody but the host's administrator can set */
		*mechanisms |= MLTCP_TRUSTED;
	if (flow->job == id)
		return &env->params;
	mltcp_env_note(env, flow);
	/* Of a job that was deleted nobody is told any more. */
	if (job || !tag || tag->job != flow->job)
		mltcp_env_report(env, flow);
	mltcp_reset(flow, id, flow->acked_bytes, flow->retransmits);
	return &env->params;
}

static __always_inline __u64 mltcp_env_received(const struct mltcp_env *env)
{
	return tcp_sk(env->sk)->bytes_received;
}

static __always_inline struct mltcp_host mltcp_env_host(const struct mltcp_env *env, __u64 now)
{
	__u64 cookie = env->sk->__sk_common.skc_net.net->net_cookie;
	const struct mltcp_traffic *traffic = bpf_map_lookup_elem(&mltcp_hosts, &cookie);
	struct mltcp_host host = {};

	if (traffic) {
		host.rx_kib = mltcp_kib(traffic->rx_bytes);
		host.tx_kib = mltcp_kib(traffic->tx_bytes);
	}
	return host;
}

static __always_inline __u64 *mltcp_env_path(const struct mltcp_env *env, __u32 job, __u32 *key)
{
	return mltcp_bpf_path(env->sk, job, key);
}

/* Was unloading forced? Then every flow is its base, from its next decision on. */
static __always_inline __u8 mltcp_env_is_off(const struct mltcp_env *env)
{
	return mltcp_bpf_is_off();
}

/* Every ACK while something is under way, whatever it acknowledges, in every state. */
static __always_inline void mltcp_bpf_acked(struct sock *sk, const struct ack_sample *sample)
{
	struct tcp_sock *tp = tcp_sk(sk);
	__u64 now = tp->tcp_clock_cache; /* when the ACK came, CLOCK_MONOTONIC */
	__u64 acked_bytes = mltcp_bpf_acked_bytes(sk);
	struct mltcp_env env = {.sk = sk, .sample = sample};
	struct mltcp_flow *flow;

	flow = bpf_sk_storage_get(&mltcp_flows, sk, 0, 0);
	mltcp_bpf_mend_window(tp, flow);
	/* The ACK of a SYN or a FIN alone says nothing of a burst. */
	if (!flow ||
	    ((acked_bytes < tp->bytes_acked || sk->__sk_common.skc_state == TCP_SYN_SENT) &&
	     acked_bytes == flow->acked_bytes))
		return;
	mltcp_step(&env, flow, now, acked_bytes);
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
	yields =
		mltcp_yield_or_resume(flow, tp->srtt_us >> 3, tp->rtt_min.s[0].v, &cwnd, &ssthresh);
	tp->snd_cwnd = cwnd;
	tp->snd_ssthresh = ssthresh;
	if (yields && MLTCP_YIELD_HOLDS)
		return 0;
	/* Slow start stays the base's own. */
	if (tp->snd_cwnd >= tp->snd_ssthresh)
		*acked = mltcp_scaled_acked(flow, *acked);
	return 1;
}

/* The base has increased the window from `before`; so many segments were acknowledged. */
static __always_inline void mltcp_bpf_avoided(struct sock *sk, __u32 before, __u32 acked)
{
	struct tcp_sock *tp = tcp_sk(sk);

	tp->snd_cwnd = mltcp_bounded_cwnd(before, tp->snd_cwnd, acked);
}

/* A loss, or a mark; the threshold is the base's. */
static __always_inline void mltcp_bpf_loss(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct mltcp_flow *flow;
	__u64 *path;
	__u32 key;

	flow = bpf_sk_storage_get(&mltcp_flows, sk, 0, 0);
	path = mltcp_bpf_path(sk, 0, &key);
	if (flow && path)
		mltcp_on_loss(flow, tp->srtt_us >> 3, tp->rtt_min.s[0].v, path, key);
}

/* Nothing was lost after all. To be called before the base's own. */
static __always_inline void mltcp_bpf_undo(struct sock *sk)
{
	struct mltcp_flow *flow = bpf_sk_storage_get(&mltcp_flows, sk, 0, 0);
	__u32 key;
	__u64 *path = mltcp_bpf_path(sk, 0, &key);

	if (flow && path)
		mltcp_on_undo(flow, path, key);
}

static __always_inline void mltcp_bpf_state(struct sock *sk, __u8 new_state)
{
	struct mltcp_flow *flow;

	if (new_state != TCP_CA_Loss)
		return;
	flow = bpf_sk_storage_get(&mltcp_flows, sk, 0, 0);
	if (flow)
		mltcp_on_time_out(flow, tcp_sk(sk)->tcp_clock_cache);
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

/* Callbacks that are alike on every base. */
#define MLTCP_CALLBACKS(base_ssthresh, base_cong_avoid)                    \
	SEC("struct_ops")                                                  \
	void BPF_PROG(release, struct sock *sk)                            \
	{                                                                  \
		mltcp_bpf_release(sk);                                     \
	}                                                                  \
                                                                           \
	SEC("struct_ops")                                                  \
	__u32 BPF_PROG(ssthresh, struct sock *sk)                          \
	{                                                                  \
		mltcp_bpf_loss(sk);                                        \
		return base_ssthresh(sk);                                  \
	}                                                                  \
                                                                           \
	SEC("struct_ops")                                                  \
	void BPF_PROG(cong_avoid, struct sock *sk, __u32 ack, __u32 acked) \
	{                                                                  \
		__u32 scaled = acked, before;                              \
                                                                           \
		if (!mltcp_bpf_avoid(sk, &scaled))                         \
			return;                                            \
		before = tcp_sk(sk)->snd_cwnd;                             \
		base_cong_avoid(sk, ack, scaled);                          \
		if (scaled > acked)                                        \
			mltcp_bpf_avoided(sk, before, acked);              \
	}

#endif
