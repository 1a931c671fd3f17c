// SPDX-License-Identifier: GPL-2.0-only
/*
 * `mltcp_int`: windows that follow what the network says of itself (kmod/mltcp_rate.h), and the
 * kernel's own Reno, its increase scaled by F, where it says nothing. feedback.bpf.c hears it.
 * Needs kernel 6.0, for a congestion control in BPF that asks for pacing.
 */
#include <linux/types.h>
#include "../kmod/mltcp_uapi.h"

#define MLTCP_MECHANISMS MLTCP_SCALE_INCREASE
#define MLTCP_YIELD_HOLDS 0
#include "mltcp.bpf.h"
#include "mltcp_feedback.bpf.h"

/* include/net/sock.h: enum sk_pacing */
#define SK_PACING_NONE 0
#define SK_PACING_NEEDED 1

/* No window is larger: the kernel's buffers hold less. Segments. */
#define CWND_MAX (1U << 20)

char _license[] SEC("license") = "GPL";

extern __u32 tcp_reno_ssthresh(struct sock *sk) __ksym;
extern void tcp_reno_cong_avoid(struct sock *sk, __u32 ack, __u32 acked) __ksym;
extern __u32 tcp_reno_undo_cwnd(struct sock *sk) __ksym;

/* What applies where user space has said nothing. */
static const struct mltcp_rate_params standard = {
	.target_us = 200,
	.low = MLTCP_ONE / 10 * 4,
	.add_bytes = 1448,
};

static __always_inline struct mltcp_rate_params rate_params(void)
{
	const struct mltcp_rate_params *said;
	__u32 zero = 0;

	said = bpf_map_lookup_elem(&mltcp_feedback, &zero);
	return said && said->target_us ? *said : standard;
}

SEC("struct_ops")
void BPF_PROG(init, struct sock *sk)
{
	mltcp_bpf_init(sk);
	bpf_sk_storage_get(&mltcp_rates, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	/* Where the qdisc paces it says so itself. */
	if (sk->sk_pacing_status == SK_PACING_NONE)
		sk->sk_pacing_status = SK_PACING_NEEDED;
}

SEC("struct_ops")
void BPF_PROG(release, struct sock *sk)
{
	mltcp_bpf_release(sk);
	bpf_sk_storage_delete(&mltcp_rates, sk);
	if (sk->sk_pacing_status == SK_PACING_NEEDED)
		sk->sk_pacing_status = SK_PACING_NONE;
}

SEC("struct_ops")
__u32 BPF_PROG(ssthresh, struct sock *sk)
{
	return mltcp_bpf_loss(sk, tcp_reno_ssthresh(sk));
}

/* Set the window by the feedback; 0 where there is none, or slow start goes on. */
static __always_inline int follow(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct mltcp_rate_params params = rate_params();
	struct mltcp_flow *flow;
	struct mltcp_rate *rate;
	__u64 now = bpf_ktime_get_ns();
	__u32 srtt_us = tp->srtt_us >> 3, window;

	flow = bpf_sk_storage_get(&mltcp_flows, sk, 0, 0);
	rate = bpf_sk_storage_get(&mltcp_rates, sk, 0, 0);
	if (!flow || !rate)
		return 0;
	if (!mltcp_rate_fresh(rate, now, srtt_us)) {
		if (rate->follows)
			mltcp_feedback_count(MLTCP_FEEDBACK_LOST);
		mltcp_rate_lose(rate);
		return 0;
	}
	window = mltcp_rate_window(rate, &params, now, tp->bytes_acked, tp->snd_cwnd,
				   tp->snd_ssthresh, tp->mss_cache ? tp->mss_cache : 1, srtt_us,
				   tp->rtt_min.s[0].v, flow->gain, flow->ratio);
	if (window)
		tp->snd_cwnd = window < CWND_MAX ? window : CWND_MAX;
	return window > 0;
}

SEC("struct_ops")
void BPF_PROG(cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	if (!follow(sk) && mltcp_bpf_avoid(sk, &acked))
		tcp_reno_cong_avoid(sk, ack, acked);
}

#ifdef HAVE_CWND_EVENT_TX_START
SEC("struct_ops")
void BPF_PROG(cwnd_event_tx_start, struct sock *sk)
{
	mltcp_bpf_send(sk);
}
#else
SEC("struct_ops")
void BPF_PROG(cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	if (event == CA_EVENT_TX_START)
		mltcp_bpf_send(sk);
}
#endif

SEC("struct_ops")
void BPF_PROG(pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct mltcp_rate_params params = rate_params();
	struct mltcp_flow *flow;
	struct mltcp_rate *rate;

	mltcp_bpf_acked(sk, sample);
	if (!params.host || sample->rtt_us <= 0)
		return;
	flow = bpf_sk_storage_get(&mltcp_flows, sk, 0, 0);
	rate = bpf_sk_storage_get(&mltcp_rates, sk, 0, 0);
	if (flow && rate)
		mltcp_feedback_hear(rate, mltcp_rate_guess(flow->delay.queue_us),
				    tcp_sk(sk)->srtt_us >> 3);
}

SEC("struct_ops")
__u32 BPF_PROG(undo_cwnd, struct sock *sk)
{
	return tcp_reno_undo_cwnd(sk);
}

SEC(".struct_ops")
struct tcp_congestion_ops mltcp_int = {
	.init = (void *)init,
	.release = (void *)release,
	.ssthresh = (void *)ssthresh,
	.cong_avoid = (void *)cong_avoid,
#ifdef HAVE_CWND_EVENT_TX_START
	.cwnd_event_tx_start = (void *)cwnd_event_tx_start,
#else
	.cwnd_event = (void *)cwnd_event,
#endif
	.pkts_acked = (void *)pkts_acked,
	.undo_cwnd = (void *)undo_cwnd,
	.flags = TCP_CONG_NON_RESTRICTED,
	.name = "mltcp_int",
};
