// SPDX-License-Identifier: GPL-2.0-only
/* mltcp_reno where the kernel never runs two of the programs, and takes garbage for their results. */
#include "../../bpf/mltcp_reno.bpf.c"

/* The end of a kernel function's address, which was seen in place of a threshold. */
#define GARBAGE 0x822034e5

SEC("struct_ops")
__u32 BPF_PROG(skipped_ssthresh, struct sock *sk)
{
	return GARBAGE;
}

SEC("struct_ops")
__u32 BPF_PROG(skipped_undo_cwnd, struct sock *sk)
{
	return GARBAGE;
}

SEC(".struct_ops")
struct tcp_congestion_ops skipped = {
	.init = (void *)init,
	.release = (void *)release,
	MLTCP_TX_START,
	.pkts_acked = (void *)pkts_acked,
	.flags = TCP_CONG_NON_RESTRICTED,
	.ssthresh = (void *)skipped_ssthresh,
	.cong_avoid = (void *)cong_avoid,
	.undo_cwnd = (void *)skipped_undo_cwnd,
	.name = "skipped",
};
