// SPDX-License-Identifier: GPL-2.0-only
/*
 * `mltcp_cubic`: the published algorithm on the kernel's own CUBIC (net/ipv4/tcp_cubic.c), the
 * window's increase scaled by F. The base keeps its state in icsk_ca_priv, ours is in socket
 * storage, so the two don't meet.
 */
#include <linux/types.h>
#include "../kmod/mltcp_uapi.h"

#define MLTCP_MECHANISMS MLTCP_SCALE_INCREASE
#define MLTCP_YIELD_HOLDS 1

#include "mltcp.bpf.h"

char _license[] SEC("license") = "GPL";

extern void cubictcp_init(struct sock *sk) __ksym;
extern __u32 cubictcp_recalc_ssthresh(struct sock *sk) __ksym;
extern void cubictcp_cong_avoid(struct sock *sk, __u32 ack, __u32 acked) __ksym;
extern void cubictcp_state(struct sock *sk, __u8 new_state) __ksym;
#ifdef HAVE_CWND_EVENT_TX_START
extern void cubictcp_cwnd_event_tx_start(struct sock *sk) __ksym;
#else
extern void cubictcp_cwnd_event(struct sock *sk, enum tcp_ca_event event) __ksym;
#endif
extern void cubictcp_acked(struct sock *sk, const struct ack_sample *sample) __ksym;

SEC("struct_ops")
void BPF_PROG(init, struct sock *sk)
{
	cubictcp_init(sk);
	mltcp_bpf_init(sk);
}

MLTCP_CALLBACKS(cubictcp_recalc_ssthresh, cubictcp_cong_avoid)

SEC("struct_ops")
void BPF_PROG(pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	cubictcp_acked(sk, sample);
	mltcp_bpf_acked(sk, sample);
}

#define MLTCP_BASE_STATE(sk, new_state) cubictcp_state(sk, new_state)
#define MLTCP_BASE_TX_START(sk) cubictcp_cwnd_event_tx_start(sk)
#define MLTCP_BASE_EVENT(sk, event) cubictcp_cwnd_event(sk, event)
#include "callbacks.bpf.h"

SEC(".struct_ops")
struct tcp_congestion_ops mltcp_cubic = {
	MLTCP_COMMON_OPS,
	MLTCP_WINDOW_OPS(),
	.name = "mltcp_cubic",
};
