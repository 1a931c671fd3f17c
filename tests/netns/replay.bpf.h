/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Every callback runs twice on the same socket at the same instant: first the base's function,
 * then, from the same state, ours. What both leave behind is compared, and ours stays.
 */

/* What a congestion control may write, and what its callbacks return. */
struct window {
	__u32 cwnd;
	__u32 cwnd_cnt;
	__u32 ssthresh;
	__u32 result;
	__u64 private[13];
};

struct count {
	__u64 calls;
	__u64 differences;
};

/* Element 0: all callbacks together. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct count);
} replay_count SEC(".maps");

static __always_inline void window_save(struct sock *sk, struct window *to)
{
	struct tcp_sock *tp = tcp_sk(sk);

	to->cwnd = tp->snd_cwnd;
	to->cwnd_cnt = tp->snd_cwnd_cnt;
	to->ssthresh = tp->snd_ssthresh;
	to->result = 0;
#pragma unroll
	for (int i = 0; i < 13; i++)
		to->private[i] = tp->inet_conn.icsk_ca_priv[i];
}

static __always_inline void window_restore(struct sock *sk, const struct window *from)
{
	struct tcp_sock *tp = tcp_sk(sk);

	tp->snd_cwnd = from->cwnd;
	tp->snd_cwnd_cnt = from->cwnd_cnt;
	tp->snd_ssthresh = from->ssthresh;
#pragma unroll
	for (int i = 0; i < 13; i++)
		tp->inet_conn.icsk_ca_priv[i] = from->private[i];
}

/* Kernel 6.18 skips a program at times, and has taken what lay on the stack for its result. */
static __always_inline __u8 was_skipped(const struct window *before, __u32 mss)
{
	return (__u64)before->cwnd * mss > MLTCP_USEFUL_BYTES ||
	       (before->ssthresh != TCP_INFINITE_SSTHRESH &&
		(__u64)before->ssthresh * mss > MLTCP_USEFUL_BYTES);
}

static __always_inline void window_compare(struct sock *sk, const struct window *before,
					   const struct window *base, __u32 result, __u64 jiffies)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct mltcp_flow *flow = bpf_sk_storage_get(&mltcp_flows, sk, 0, 0);
	__u64 different;
	__u32 zero = 0;
	struct count *count = bpf_map_lookup_elem(&replay_count, &zero);

	/* CUBIC reads jiffies: a tick between the two runs makes them incomparable. */
	if (!count || bpf_jiffies64() != jiffies)
		return;
	/* Ours mends that, the base doesn't. */
	if (was_skipped(before, tp->mss_cache))
		return;
	/* Stalls of a busy host may cut pieces that are the same by chance: F is not 1 then. */
	if (!mltcp_defaults.burst_bytes && flow && mltcp_is_sure(flow))
		return;
	different = (tp->snd_cwnd ^ base->cwnd) | (tp->snd_cwnd_cnt ^ base->cwnd_cnt) |
		    (tp->snd_ssthresh ^ base->ssthresh) | (result ^ base->result);
#pragma unroll
	for (int i = 0; i < 13; i++)
		different |= tp->inet_conn.icsk_ca_priv[i] ^ base->private[i];
	__sync_fetch_and_add(&count->calls, 1);
	if (different)
		__sync_fetch_and_add(&count->differences, 1);
}

#define REPLAY_BEGIN                     \
	struct window before, base;      \
	__u64 jiffies = bpf_jiffies64(); \
	window_save(sk, &before);

#define REPLAY_U32(callback, base_function)                                  \
	SEC("struct_ops") __u32 BPF_PROG(replay_##callback, struct sock *sk) \
	{                                                                    \
		__u32 result;                                                \
		REPLAY_BEGIN                                                 \
		result = base_function(sk);                                  \
		window_save(sk, &base);                                      \
		base.result = result;                                        \
		window_restore(sk, &before);                                 \
		result = ____##callback(ctx, sk);                            \
		window_compare(sk, &before, &base, result, jiffies);         \
		return result;                                               \
	}

#define REPLAY_VOID(callback, base_function, type)                                         \
	SEC("struct_ops") void BPF_PROG(replay_##callback, struct sock *sk, type argument) \
	{                                                                                  \
		REPLAY_BEGIN                                                               \
		base_function(sk, argument);                                               \
		window_save(sk, &base);                                                    \
		window_restore(sk, &before);                                               \
		____##callback(ctx, sk, argument);                                         \
		window_compare(sk, &before, &base, 0, jiffies);                            \
	}

#define REPLAY_AVOID(callback, base_function)                                     \
	SEC("struct_ops")                                                         \
	void BPF_PROG(replay_##callback, struct sock *sk, __u32 ack, __u32 acked) \
	{                                                                         \
		REPLAY_BEGIN                                                      \
		base_function(sk, ack, acked);                                    \
		window_save(sk, &base);                                           \
		window_restore(sk, &before);                                      \
		____##callback(ctx, sk, ack, acked);                              \
		window_compare(sk, &before, &base, 0, jiffies);                   \
	}
