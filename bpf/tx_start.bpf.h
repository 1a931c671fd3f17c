/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The callback for a connection that begins to send after a pause, and the operations that all of
 * our congestion controls have. A base that looks at such events has MLTCP_BASE_TX_START(sk) and
 * MLTCP_BASE_EVENT(sk, event) defined before.
 *
 * 7.1 (commit d1e59a469737) gave this one event an operation of its own.
 */
#ifndef MLTCP_BASE_EVENT
#define MLTCP_BASE_TX_START(sk)
#define MLTCP_BASE_EVENT(sk, event)
#endif

#ifdef HAVE_CWND_EVENT_TX_START
SEC("struct_ops")
void BPF_PROG(cwnd_event_tx_start, struct sock *sk)
{
	MLTCP_BASE_TX_START(sk);
	mltcp_bpf_send(sk);
}
#define MLTCP_TX_START .cwnd_event_tx_start = (void *)cwnd_event_tx_start
#else
SEC("struct_ops")
void BPF_PROG(cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	MLTCP_BASE_EVENT(sk, event);
	if (event == CA_EVENT_TX_START)
		mltcp_bpf_send(sk);
}
#define MLTCP_TX_START .cwnd_event = (void *)cwnd_event
#endif

#define MLTCP_COMMON_OPS                                                  \
	.init = (void *)init, .release = (void *)release, MLTCP_TX_START, \
	.pkts_acked = (void *)pkts_acked, .flags = TCP_CONG_NON_RESTRICTED
