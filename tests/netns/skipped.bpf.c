// SPDX-License-Identifier: BSD-2-Clause
/*
 * mltcp_reno where the kernel never runs two of the programs, and takes garbage for their results.
 * LEFT: a window that earlier skipped programs left where a loss is about to be found, segments; 0: none.
 */
#include "../../bpf/mltcp_reno.bpf.c"

#ifndef SKIPPED
#define SKIPPED skipped
#define SKIPPED_NAME "skipped"
#define LEFT 0
#endif

/* The end of a kernel function's address, which was seen in place of a threshold. */
#ifndef GARBAGE
#define GARBAGE 0x822034e5
#endif

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

SEC("struct_ops")
void BPF_PROG(skipped_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct tcp_sock *tp = tcp_sk(sk);
	const struct inet_connection_sock *icsk = &tp->inet_conn;

	mltcp_bpf_acked(sk, sample);
	if (LEFT && BPF_CORE_READ_BITFIELD(icsk, icsk_ca_state) == TCP_CA_Disorder)
		tp->snd_cwnd = LEFT;
}

SEC(".struct_ops")
struct tcp_congestion_ops SKIPPED = {
	.init = (void *)init,
	.release = (void *)release,
	MLTCP_TX_START,
	.pkts_acked = (void *)skipped_pkts_acked,
	.flags = TCP_CONG_NON_RESTRICTED,
	.ssthresh = (void *)skipped_ssthresh,
	.cong_avoid = (void *)cong_avoid,
	.undo_cwnd = (void *)skipped_undo_cwnd,
	.name = SKIPPED_NAME,
};
