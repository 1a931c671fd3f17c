/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The callbacks that our congestion controls on Reno and CUBIC share, and the tables' common lines.
 * The includer has defined init, MLTCP_CALLBACKS and pkts_acked, and, where its base looks at
 * events or states, MLTCP_BASE_TX_START(sk), MLTCP_BASE_EVENT(sk, event), MLTCP_BASE_STATE(sk, state).
 */
extern __u32 tcp_reno_undo_cwnd(struct sock *sk) __ksym;

SEC("struct_ops")
__u32 BPF_PROG(undo_cwnd, struct sock *sk)
{
	mltcp_bpf_undo(sk);
	return tcp_reno_undo_cwnd(sk);
}

#ifndef MLTCP_BASE_STATE
#define MLTCP_BASE_STATE(sk, new_state)
#endif

SEC("struct_ops")
void BPF_PROG(set_state, struct sock *sk, __u8 new_state)
{
	MLTCP_BASE_STATE(sk, new_state);
	mltcp_bpf_state(sk, new_state);
}

#ifndef MLTCP_BASE_EVENT
#define MLTCP_BASE_TX_START(sk)
#define MLTCP_BASE_EVENT(sk, event)
#endif

/* A connection begins to send. 7.1 (commit d1e59a469737) gave this event an operation of its own. */
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
	.pkts_acked = (void *)pkts_acked, .set_state = (void *)set_state, \
	.flags = TCP_CONG_NON_RESTRICTED

/* prefix: of callbacks that stand in place of ours, in tests. */
#define MLTCP_WINDOW_OPS(prefix)                                                        \
	.ssthresh = (void *)prefix##ssthresh, .cong_avoid = (void *)prefix##cong_avoid, \
	.undo_cwnd = (void *)prefix##undo_cwnd
