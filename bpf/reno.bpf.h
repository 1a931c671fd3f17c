/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A congestion control on the kernel's own Reno (net/ipv4/tcp_cong.c). The includer defines
 * MLTCP_NAME, a string, and MLTCP_OPS, the name of the struct_ops map, and MLTCP_MECHANISMS.
 */
#define MLTCP_YIELD_HOLDS 0
#include "mltcp.bpf.h"

char _license[] SEC("license") = "GPL";

extern __u32 tcp_reno_ssthresh(struct sock *sk) __ksym;
extern void tcp_reno_cong_avoid(struct sock *sk, __u32 ack, __u32 acked) __ksym;

SEC("struct_ops")
void BPF_PROG(init, struct sock *sk)
{
	mltcp_bpf_init(sk);
}

MLTCP_CALLBACKS(tcp_reno_ssthresh, tcp_reno_cong_avoid)

SEC("struct_ops")
void BPF_PROG(pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	mltcp_bpf_acked(sk, sample);
}

#include "callbacks.bpf.h"

SEC(".struct_ops")
struct tcp_congestion_ops MLTCP_OPS = {
	MLTCP_COMMON_OPS,
	MLTCP_WINDOW_OPS(),
	.name = MLTCP_NAME,
};
