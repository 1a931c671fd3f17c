// SPDX-License-Identifier: GPL-2.0-only
/*
 * `mltcp_int`: rates that follow what the network says of itself (kmod/mltcp_rate.h), and the
 * kernel's own Reno, its increase scaled by F, where it says nothing. feedback.bpf.c hears it.
 * Needs kernel 6.0, for a congestion control in BPF that sets the pacing rate.
 */
#include <linux/types.h>
#include "../kmod/mltcp_uapi.h"

#define MLTCP_MECHANISMS MLTCP_SCALE_INCREASE
#define MLTCP_YIELD_HOLDS 0
#include "mltcp.bpf.h"
#include "mltcp_feedback.bpf.h"

/* The kernel's own least count of segments to send at once (tcp_min_tso_segs). */
#define TSO_SEGS_MIN 2

/* Spreads the ids of jobs over keys (Knuth: 2^32 over the golden ratio). */
#define MLTCP_JOB_SPREAD 2654435761U

/* No window is larger: the kernel's buffers hold less. Segments. */
#define CWND_MAX (1U << 20)

/* include/net/sock.h: enum sk_pacing */
#define SK_PACING_NONE 0
#define SK_PACING_NEEDED 1

char _license[] SEC("license") = "GPL";

extern __u32 tcp_reno_ssthresh(struct sock *sk) __ksym;
extern void tcp_reno_cong_avoid(struct sock *sk, __u32 ack, __u32 acked) __ksym;

static const struct mltcp_rate_params standard = {
	.target_us = MLTCP_RATE_DEFAULT_TARGET_US,
	.low = MLTCP_RATE_DEFAULT_LOW,
	.add_bytes = MLTCP_RATE_DEFAULT_ADD_BYTES,
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
	struct mltcp_rate_flow *rate;

	mltcp_bpf_init(sk);
	rate = bpf_sk_storage_get(&mltcp_rates, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	/* Where the qdisc paces it says so itself. */
	if (!rate || sk->sk_pacing_status != SK_PACING_NONE)
		return;
	sk->sk_pacing_status = SK_PACING_NEEDED;
	rate->paces = 1;
}

SEC("struct_ops")
void BPF_PROG(release, struct sock *sk)
{
	const struct mltcp_rate_flow *rate = bpf_sk_storage_get(&mltcp_rates, sk, 0, 0);

	if (rate && rate->paces && sk->sk_pacing_status == SK_PACING_NEEDED &&
	    sk->sk_max_pacing_rate == ~0UL) /* else the application asked for it */
		sk->sk_pacing_status = SK_PACING_NONE;
	mltcp_bpf_release(sk);
	bpf_sk_storage_delete(&mltcp_rates, sk);
}

SEC("struct_ops")
__u32 BPF_PROG(ssthresh, struct sock *sk)
{
	mltcp_bpf_loss(sk);
	return tcp_reno_ssthresh(sk);
}

/* Which slots are the flow's: of its path, and of its job there. Untagged, it is its own job. */
static __always_inline void find_keys(struct sock *sk, struct mltcp_rate_flow *rate, __u32 job)
{
	__u32 key;

	if (!rate->path_key) {
		mltcp_bpf_path(sk, 0, &key);
		rate->path_key = key ? key : 1;
	}
	if (rate->job == job)
		return;
	rate->job = job;
	key = rate->path_key + job * MLTCP_JOB_SPREAD;
	rate->job_key = job ? key ? key : 1 : 0;
}

static __always_inline struct mltcp_rate_job *job_of(struct mltcp_rate_flow *rate, __u64 now)
{
	__u32 slot = rate->job_key & (MLTCP_RATE_SLOTS - 1);
	struct mltcp_rate_job *shared = bpf_map_lookup_elem(&mltcp_rate_jobs, &slot);

	if (shared && rate->job_key && mltcp_rate_job_is(shared, rate->job_key, now))
		return shared;
	return &rate->sent;
}

static __always_inline struct mltcp_rate_ack ack_of(const struct tcp_sock *tp)
{
	struct mltcp_rate_ack ack = {
		.now = tp->tcp_clock_cache,
		.cwnd = tp->snd_cwnd,
		.mss = tp->mss_cache ? tp->mss_cache : 1,
		.rtt_us = tp->srtt_us >> 3,
		.min_rtt_us = tp->rtt_min.s[0].v,
	};

	return ack;
}

/* Set the window by the feedback; 0 where there is none. */
static __always_inline int follow(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct mltcp_rate_params params = rate_params();
	struct mltcp_rate_ack ack = ack_of(tp);
	struct mltcp_rate_path *path;
	struct mltcp_rate_flow *rate;
	struct mltcp_flow *flow;
	__u32 window;

	flow = bpf_sk_storage_get(&mltcp_flows, sk, 0, 0);
	rate = bpf_sk_storage_get(&mltcp_rates, sk, 0, 0);
	if (!flow || !rate)
		return 0;
	path = mltcp_feedback_path(rate, ack.now);
	if (!mltcp_rate_fresh(path, ack.now, ack.min_rtt_us) || mltcp_bpf_is_off()) {
		if (rate->rate.follows)
			mltcp_feedback_count(MLTCP_FEEDBACK_LOST);
		mltcp_rate_lose(&rate->rate);
		return 0;
	}
	window = mltcp_rate_window(&rate->rate, &params, path, job_of(rate, ack.now), flow, &ack);
	if (window > CWND_MAX)
		window = CWND_MAX;
	tp->snd_cwnd = window < tp->snd_cwnd_clamp ? window : tp->snd_cwnd_clamp;
	return 1;
}

SEC("struct_ops")
void BPF_PROG(cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	__u32 scaled = acked, before;

	if (follow(sk) || !mltcp_bpf_avoid(sk, &scaled))
		return;
	before = tcp_sk(sk)->snd_cwnd;
	tcp_reno_cong_avoid(sk, ack, scaled);
	if (scaled > acked)
		mltcp_bpf_avoided(sk, before, acked);
}

SEC("struct_ops")
void BPF_PROG(pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct mltcp_rate_ack ack = ack_of(tcp_sk(sk));
	struct mltcp_rate_params params = rate_params();
	struct mltcp_rate_job *job;
	__u64 acked_bytes;
	__u32 iteration;
	struct mltcp_rate_flow *rate;
	struct mltcp_flow *flow;

	flow = bpf_sk_storage_get(&mltcp_flows, sk, 0, 0);
	rate = bpf_sk_storage_get(&mltcp_rates, sk, 0, 0);
	if (!flow || !rate)
		return;
	acked_bytes = flow->acked_bytes;
	iteration = flow->iteration;
	mltcp_bpf_acked(sk, sample);
	find_keys(sk, rate, flow->job);
	job = job_of(rate, ack.now);
	mltcp_rate_job_ack(job, ack.now, flow->acked_bytes - acked_bytes,
			   flow->iteration != iteration ? flow->iteration : 0,
			   1000ULL * flow->gap_us);
	if (!params.host || sample->rtt_us <= 0)
		return;
	ack.rtt_us = sample->rtt_us;
	mltcp_feedback_hear(rate, mltcp_rate_guess(job, &ack), ack.min_rtt_us);
}

/*
 * The kernel asks before it sends, after it has computed a rate of its own from the window: here is
 * the law's, which may be less than two segments in a round trip, one at a time.
 */
SEC("struct_ops")
__u32 BPF_PROG(min_tso_segs, struct sock *sk)
{
	struct mltcp_rate_flow *rate = bpf_sk_storage_get(&mltcp_rates, sk, 0, 0);
	__u32 mss = tcp_sk(sk)->mss_cache ? tcp_sk(sk)->mss_cache : 1;
	__u64 pace = rate ? mltcp_rate_pacing(&rate->rate, mss) : 0;

	if (!pace)
		return TSO_SEGS_MIN;
	sk->sk_pacing_rate = pace < sk->sk_max_pacing_rate ? pace : sk->sk_max_pacing_rate;
	return 1;
}

#include "callbacks.bpf.h"

SEC(".struct_ops")
struct tcp_congestion_ops mltcp_int = {
	MLTCP_COMMON_OPS,
	MLTCP_WINDOW_OPS(),
	.min_tso_segs = (void *)min_tso_segs,
	.name = "mltcp_int",
};
