// SPDX-License-Identifier: GPL-2.0-only
/*
 * The hosts' part of the network's feedback, for a cgroup's sockets: packets get an option for hops
 * to write into, receivers return what hops wrote, and senders hear it (mltcp_feedback.bpf.h).
 * Without the option on the other side a connection works as ever.
 */
#include "mltcp_feedback.bpf.h"

char _license[] SEC("license") = "GPL";

/* What hops wrote into the latest packet that came. */
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

static __always_inline void write_option(struct bpf_sock_ops *ops)
{
	struct mltcp_option option = {
		.kind = MLTCP_OPTION_KIND,
		.length = MLTCP_OPTION_BYTES,
		.id_high = MLTCP_OPTION_ID_HIGH,
		.id_low = MLTCP_OPTION_ID_LOW,
	};
	const __u32 *latest = latest_stamp(ops, 0);

	if (latest)
		option.echo = __builtin_bswap16(*latest);
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
	struct mltcp_rate *rate;
	struct bpf_sock *sk;
	__u32 *latest;

	if (bpf_load_hdr_opt(ops, &option, sizeof(option), 0) != MLTCP_OPTION_BYTES)
		return;
	if (option.stamp) {
		latest = latest_stamp(ops, BPF_SK_STORAGE_GET_F_CREATE);
		if (latest)
			*latest = __builtin_bswap16(option.stamp);
	}
	sk = ops->sk;
	if (!option.echo || !sk)
		return;
	rate = bpf_sk_storage_get(&mltcp_rates, sk, 0, 0);
	if (rate)
		mltcp_feedback_hear(rate, __builtin_bswap16(option.echo), ops->srtt_us >> 3);
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
		bpf_reserve_hdr_opt(ops, MLTCP_OPTION_BYTES, 0);
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
