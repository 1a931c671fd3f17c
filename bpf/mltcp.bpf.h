/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the congestion controls share: the calls into the core around a base algorithm's own
 * functions.
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

#include "mltcp_env.bpf.h"
#include "../kmod/mltcp_yield.h"

/* No peer's window is longer than 1 GiB (RFC 7323, 2.3); slow start may pass it by a factor of 2. */
#define MLTCP_USEFUL_BYTES (1ULL << 31)

/* Of a connection that has lost nothing yet, segments. */
#define TCP_INFINITE_SSTHRESH 0x7fffffff

/* RFC 6928, segments */
#define TCP_INIT_CWND 10

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
