// SPDX-License-Identifier: GPL-2.0-only
/*
 * `mltcp_dctcp`: both mechanisms on the kernel's own DCTCP (net/ipv4/tcp_dctcp.c, RFC 8257). For
 * kernels that have dctcp; its estimate of the share of marked segments stays in icsk_ca_priv, and its
 * own.
 *
 * Restricted, as dctcp is: it pushes others aside where queues don't mark (RFC 8257, 5).
 */
#include <linux/types.h>
#include "../kmod/mltcp_uapi.h"

#define MLTCP_MECHANISMS (MLTCP_SCALE_INCREASE | MLTCP_YIELD)
#define MLTCP_YIELD_HOLDS 0

#include "mltcp.bpf.h"

/* linux/socket.h, linux/tcp.h */
#define SOL_TCP 6
#define TCP_CONGESTION 13

char _license[] SEC("license") = "GPL";

extern void dctcp_init(struct sock *sk) __ksym;
extern __u32 dctcp_ssthresh(struct sock *sk) __ksym;
extern void dctcp_update_alpha(struct sock *sk, __u32 flags) __ksym;
extern void dctcp_state(struct sock *sk, __u8 new_state) __ksym;
extern void dctcp_cwnd_event(struct sock *sk, enum tcp_ca_event event) __ksym;
extern __u32 dctcp_cwnd_undo(struct sock *sk) __ksym;
extern void tcp_reno_cong_avoid(struct sock *sk, __u32 ack, __u32 acked) __ksym;

/*
 * On a connection without ECN dctcp puts operations of its own in place of these, which the kernel
 * would then count as ours; and packets would claim ECN. Such a connection takes another congestion
 * control: the default one of ours, which is on Reno, as dctcp's is, or else Reno. So does one that
 * waits for its peer's answer: until then the kernel notes that both ends have agreed.
 */
static __always_inline void take_another(struct sock *sk)
{
	char ours[] = "mltcp", reno[] = "reno";

	if (bpf_setsockopt(sk, SOL_TCP, TCP_CONGESTION, ours, sizeof(ours) - 1))
		bpf_setsockopt(sk, SOL_TCP, TCP_CONGESTION, reno, sizeof(reno) - 1);
}

SEC("struct_ops")
void BPF_PROG(init, struct sock *sk)
{
	if (!(tcp_sk(sk)->ecn_flags & TCP_ECN_OK) || sk->__sk_common.skc_state == TCP_SYN_SENT) {
		take_another(sk);
		return;
	}
	dctcp_init(sk);
	mltcp_bpf_init(sk);
}

/* The threshold is that of marks. After a loss dctcp sets it when it enters the state. */
MLTCP_CALLBACKS(dctcp_ssthresh, tcp_reno_cong_avoid)

SEC("struct_ops")
void BPF_PROG(set_state, struct sock *sk, __u8 new_state)
{
	dctcp_state(sk, new_state);
	mltcp_bpf_state(sk, new_state);
}

SEC("struct_ops")
void BPF_PROG(in_ack_event, struct sock *sk, __u32 flags)
{
	dctcp_update_alpha(sk, flags);
}

/* 7.1 (commit d1e59a469737) gave one event an operation of its own, which dctcp doesn't look at. */
#ifdef HAVE_CWND_EVENT_TX_START
SEC("struct_ops")
void BPF_PROG(cwnd_event_tx_start, struct sock *sk)
{
	mltcp_bpf_send(sk);
}
#endif

SEC("struct_ops")
void BPF_PROG(cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	dctcp_cwnd_event(sk, event);
#ifndef HAVE_CWND_EVENT_TX_START
	if (event == CA_EVENT_TX_START)
		mltcp_bpf_send(sk);
#endif
}

SEC("struct_ops")
void BPF_PROG(pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	mltcp_bpf_acked(sk, sample);
}

SEC("struct_ops")
__u32 BPF_PROG(undo_cwnd, struct sock *sk)
{
	mltcp_bpf_undo(sk);
	return dctcp_cwnd_undo(sk);
}

SEC(".struct_ops")
struct tcp_congestion_ops mltcp_dctcp = {
	.init = (void *)init,
	.release = (void *)release,
	.ssthresh = (void *)ssthresh,
	.cong_avoid = (void *)cong_avoid,
	.set_state = (void *)set_state,
	.in_ack_event = (void *)in_ack_event,
#ifdef HAVE_CWND_EVENT_TX_START
	.cwnd_event_tx_start = (void *)cwnd_event_tx_start,
#endif
	.cwnd_event = (void *)cwnd_event,
	.pkts_acked = (void *)pkts_acked,
	.undo_cwnd = (void *)undo_cwnd,
	.flags = TCP_CONG_NEEDS_ECN,
	.name = "mltcp_dctcp",
};
