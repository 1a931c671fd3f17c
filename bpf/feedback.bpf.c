// SPDX-License-Identifier: GPL-2.0-only
/*
 * The hosts' part of the network's feedback, for a cgroup's sockets: some packets get an option for
 * hops to write into, receivers return what hops wrote, and senders hear it (mltcp_feedback.bpf.h).
 * Without the option on the other side a connection works as ever.
 */
#include "mltcp_feedback.bpf.h"

char _license[] SEC("license") = "GPL";

/* include/uapi/linux/bpf.h: no packet is about to be written, only its size is asked for */
#define CURRENT_MSS BPF_WRITE_HDR_TCP_CURRENT_MSS

/* What hops wrote into a packet that isn't returned yet; 0: nothing. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u32);
} mltcp_echoes SEC(".maps");

static __always_inline __u32 *latest_stamp(struct bpf_sock_ops *ops, __u64 flags)
{
	struct bpf_sock *sk = ops->sk;

	return sk ? bpf_sk_storage_get(&mltcp_echoes, sk, 0, flags) : NULL;
}

/* Is the packet that is about to be sent one that asks? Only a sender's are. */
static __always_inline __u8 asks(struct bpf_sock_ops *ops)
{
	struct bpf_sock *sk = ops->sk;
	struct mltcp_rate_flow *flow = sk ? bpf_sk_storage_get(&mltcp_rates, sk, 0, 0) : NULL;
	__u64 now = bpf_ktime_get_ns();

	if (!flow || !mltcp_rate_asks(now, flow->asked_ns, flow->rate.rtt_us))
		return 0;
	flow->asked_ns = now;
	return 1;
}

/* Every packet has room for the option, as the size of segments is the same for all. */
static __always_inline void reserve_option(struct bpf_sock_ops *ops)
{
	const __u32 *latest;

	if (ops->args[0] != CURRENT_MSS) {
		latest = latest_stamp(ops, 0);
		if (!(latest && *latest) && !asks(ops))
			return;
	}
	bpf_reserve_hdr_opt(ops, MLTCP_OPTION_BYTES, 0);
}

static __always_inline void write_option(struct bpf_sock_ops *ops)
{
	struct mltcp_option option = {
		.kind = MLTCP_OPTION_KIND,
		.length = MLTCP_OPTION_BYTES,
		.id_high = MLTCP_OPTION_ID_HIGH,
		.id_low = MLTCP_OPTION_ID_LOW,
	};
	struct bpf_sock *sk = ops->sk;
	__u32 *latest = latest_stamp(ops, 0);

	if (latest) {
		option.echo = __builtin_bswap16(*latest);
		*latest = 0;
	}
	if (sk && bpf_sk_storage_get(&mltcp_rates, sk, 0, 0))
		option.stamp = __builtin_bswap16(MLTCP_HOP_ASKS);
	bpf_store_hdr_opt(ops, &option, sizeof(option), 0);
}

static __always_inline void read_option(struct bpf_sock_ops *ops)
{
	/* The helper looks for this kind with these two bytes behind the length. */
	struct mltcp_option option = {
		.kind = MLTCP_OPTION_KIND,
		.length = 4,
		.id_high = MLTCP_OPTION_ID_HIGH,
		.id_low = MLTCP_OPTION_ID_LOW,
	};
	struct mltcp_rate_flow *flow;
	struct bpf_sock *sk;
	__u32 *latest, stamp;

	if (bpf_load_hdr_opt(ops, &option, sizeof(option), 0) != MLTCP_OPTION_BYTES)
		return;
	stamp = __builtin_bswap16(option.stamp);
	if (stamp > MLTCP_HOP_ASKS) {
		latest = latest_stamp(ops, BPF_SK_STORAGE_GET_F_CREATE);
		if (latest)
			*latest = stamp;
	}
	sk = ops->sk;
	if (!option.echo || !sk)
		return;
	flow = bpf_sk_storage_get(&mltcp_rates, sk, 0, 0);
	if (flow)
		mltcp_feedback_hear(flow, __builtin_bswap16(option.echo), ops->rtt_min);
}

SEC("sockops")
int feedback(struct bpf_sock_ops *ops)
{
	switch (ops->op) {
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		bpf_sock_ops_cb_flags_set(ops, ops->bpf_sock_ops_cb_flags |
						       BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG |
						       BPF_SOCK_OPS_PARSE_UNKNOWN_HDR_OPT_CB_FLAG);
		break;
	case BPF_SOCK_OPS_HDR_OPT_LEN_CB:
		reserve_option(ops);
		break;
	case BPF_SOCK_OPS_WRITE_HDR_OPT_CB:
		write_option(ops);
		break;
	case BPF_SOCK_OPS_PARSE_HDR_OPT_CB:
		read_option(ops);
		break;
	}
	return 1;
}
