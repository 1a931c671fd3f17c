/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What mltcp_step() asks of its surroundings, in eBPF: tags and jobs, reports, what the flows of a path
 * share, and what the host has received. The includer defines MLTCP_MECHANISMS, see mltcp.bpf.h.
 */
#ifndef MLTCP_ENV_BPF_H
#define MLTCP_ENV_BPF_H

#include "mltcp_maps.bpf.h"
#include "../kmod/mltcp_step.h"

#ifndef barrier_var
#define barrier_var(var) asm volatile("" : "+r"(var))
#endif

/*
 * Parameters of flows without a job. Alone in its section, so that the loader can replace it
 * before the kernel sees it. burst_bytes and gap_ns 0: each flow learns them.
 */
const volatile struct mltcp_params mltcp_defaults SEC(".rodata.defaults") = {
	MLTCP_DEFAULTS,
	.mechanisms = MLTCP_MECHANISMS_DEFAULT,
};

/*
 * Which version of the sources this is, as the loader knows it, terminated by 0: for whoever wants
 * to know what runs. No program reads it; the kernel keeps it for as long as them.
 */
const volatile char mltcp_build[MLTCP_BUILD_BYTES] SEC(".rodata.build") = {};

static __always_inline struct tcp_sock *tcp_sk(struct sock *sk)
{
	return (struct tcp_sock *)sk;
}

/* Report the iteration that has ended. */
static __always_inline void mltcp_bpf_report(struct sock *sk, const struct mltcp_flow *flow)
{
	const struct sock_common *common = &sk->__sk_common;
	const struct inet_sock *inet = (struct inet_sock *)sk;
	struct mltcp_event *event;
	struct mltcp_tag *tag;
	__u64 *dropped;
	__u32 zero = 0;

	if (!mltcp_is_reported(flow, mltcp_defaults.gap_ns))
		return;
	event = bpf_ringbuf_reserve(&mltcp_events, sizeof(*event), 0);
	if (!event) {
		dropped = bpf_map_lookup_elem(&mltcp_dropped, &zero);
		if (dropped)
			__sync_fetch_and_add(dropped, 1);
		return;
	}
	event->cookie = common->skc_cookie.counter;
	event->first_ack_ns = flow->start_ns;
	event->last_ack_ns = flow->last_ns;
	event->bytes = mltcp_sent(flow);
	event->job = flow->job;
	event->iteration = flow->iteration;
	event->retransmits = flow->retransmits - flow->start_retransmits;
	event->srtt_us = flow->srtt_us;
	event->cwnd = flow->cwnd;
	event->ratio = flow->ratio;
	copy_address(event->local_addr, common->skc_family, common->skc_rcv_saddr,
		     &common->skc_v6_rcv_saddr);
	copy_address(event->remote_addr, common->skc_family, common->skc_daddr,
		     &common->skc_v6_daddr);
	/* skc_num is 0 already when a closed socket is released */
	event->local_port = __builtin_bswap16(inet->inet_sport);
	event->remote_port = __builtin_bswap16(common->skc_dport);
	event->netns = common->skc_net.net->ns.inum;
	barrier_var(event); /* else the two are one load, from pointers the verifier keeps apart */
	tag = flow->job ? bpf_sk_storage_get(&mltcp_tags, sk, 0, 0) : NULL;
	if (tag)
		event->netns = tag->netns;
	bpf_ringbuf_submit(event, 0);
}

/* FNV-1a over a namespace's cookie, which never returns, the words of a path's addresses, and a job. */
static __always_inline __u32 mltcp_bpf_hash(struct sock *sk, __u32 job)
{
	const struct sock_common *common = &sk->__sk_common;
	__u64 cookie = common->skc_net.net->net_cookie;
	__u32 addresses[8], hash = (__u32)cookie ^ (__u32)(cookie >> 32), i;

	copy_address((__u8 *)addresses, common->skc_family, common->skc_rcv_saddr,
		     &common->skc_v6_rcv_saddr);
	copy_address((__u8 *)(addresses + 4), common->skc_family, common->skc_daddr,
		     &common->skc_v6_daddr);
	for (i = 0; i < 8; i++)
		hash = (hash ^ addresses[i]) * 16777619;
	return (hash ^ job) * 16777619;
}

/*
 * Where the host keeps what the flows of a path share, and the path's key. Never NULL, but the verifier
 * can't tell.
 */
static __always_inline __u64 *mltcp_bpf_path(struct sock *sk, __u32 job, __u32 *key)
{
	__u32 hash = mltcp_bpf_hash(sk, job);

	*key = hash;
	hash >>= 32 - MLTCP_PATHS_BITS; /* the low bits of FNV know little of the words */
	return bpf_map_lookup_elem(&mltcp_paths, &hash);
}

/* Where the connection is now, for reports. */
static __always_inline void mltcp_bpf_note(const struct tcp_sock *tp, struct mltcp_flow *flow)
{
	mltcp_note(flow, tp->snd_cwnd, tp->srtt_us >> 3, tp->total_retrans);
}

/* What mltcp_step() asks of the programs. */
struct mltcp_env {
	struct sock *sk;
	const struct ack_sample *sample;
	struct mltcp_params params;
};

static __always_inline __s32 mltcp_env_rtt(const struct mltcp_env *env, __u32 *min_us)
{
	*min_us = tcp_sk(env->sk)->rtt_min.s[0].v;
	return env->sample->rtt_us;
}

static __always_inline void mltcp_env_note(const struct mltcp_env *env, struct mltcp_flow *flow)
{
	mltcp_bpf_note(tcp_sk(env->sk), flow);
}

static __always_inline void mltcp_env_report(struct mltcp_env *env, const struct mltcp_flow *flow)
{
	mltcp_bpf_report(env->sk, flow);
}

/* User space may have changed the tag, or deleted the job. */
static __always_inline const struct mltcp_params *
mltcp_env_params(struct mltcp_env *env, struct mltcp_flow *flow, __u32 *mechanisms)
{
	const struct mltcp_params *defaults = (const struct mltcp_params *)&mltcp_defaults;
	struct mltcp_tag *tag = bpf_sk_storage_get(&mltcp_tags, env->sk, 0, 0);
	struct mltcp_job *job = NULL;
	__u32 id = 0;

	/* clang may take the initial values for the loaded ones when a whole struct is copied. */
	barrier_var(defaults);
	if (tag) {
		struct mltcp_job_key key = {.home = tag->home, .id = tag->job};

		id = tag->job;
		job = bpf_map_lookup_elem(&mltcp_jobs, &key);
	}
	if (job) {
		env->params = job->params;
	} else {
		id = 0;
		env->params = *defaults;
	}
	*mechanisms = env->params.mechanisms;
	if (*mechanisms == MLTCP_MECHANISMS_DEFAULT) {
		*mechanisms = MLTCP_MECHANISMS;
	}
	if (job) /* which nobody but the host's administrator can set */
		*mechanisms |= MLTCP_TRUSTED;
	if (flow->job == id)
		return &env->params;
	mltcp_env_note(env, flow);
	/* Of a job that was deleted nobody is told any more. */
	if (job || !tag || tag->job != flow->job)
		mltcp_env_report(env, flow);
	mltcp_reset(flow, id, flow->acked_bytes, flow->retransmits);
	return &env->params;
}

static __always_inline __u64 mltcp_env_received(const struct mltcp_env *env)
{
	return tcp_sk(env->sk)->bytes_received;
}

static __always_inline struct mltcp_host mltcp_env_host(const struct mltcp_env *env, __u64 now)
{
	__u64 cookie = env->sk->__sk_common.skc_net.net->net_cookie;
	const struct mltcp_traffic *traffic = bpf_map_lookup_elem(&mltcp_hosts, &cookie);
	struct mltcp_host host = {};

	if (traffic) {
		host.rx_kib = mltcp_kib(traffic->rx_bytes);
		host.tx_kib = mltcp_kib(traffic->tx_bytes);
	}
	return host;
}

static __always_inline __u64 *mltcp_env_path(const struct mltcp_env *env, __u32 job, __u32 *key)
{
	return mltcp_bpf_path(env->sk, job, key);
}

/* Was unloading forced? Then every flow is its base, from its next decision on. */
static __always_inline __u8 mltcp_bpf_is_off(void)
{
	__u32 zero = 0, *off = bpf_map_lookup_elem(&mltcp_off, &zero);

	return off && *off;
}

static __always_inline __u8 mltcp_env_is_off(const struct mltcp_env *env)
{
	return mltcp_bpf_is_off();
}

#endif
