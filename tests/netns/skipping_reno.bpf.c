// SPDX-License-Identifier: GPL-2.0-only
/* mltcp_reno on a kernel that skips its ssthresh at times: the caller gets an address' low half. */
#include "../../bpf/mltcp_reno.bpf.c"

#define LEFT_ON_THE_STACK 0x81104110U

__u32 calls;

SEC("struct_ops")
__u32 BPF_PROG(skipped_ssthresh, struct sock *sk)
{
	if (calls++ % 3 == 1)
		return LEFT_ON_THE_STACK;
	return mltcp_bpf_loss(sk, tcp_reno_ssthresh(sk));
}

SEC(".struct_ops")
struct tcp_congestion_ops skipping_reno = {
	MLTCP_RENO_OPS,
	.ssthresh = (void *)skipped_ssthresh,
	.cong_avoid = (void *)cong_avoid,
	.undo_cwnd = (void *)undo_cwnd,
	.name = "skipping_reno",
};
