// SPDX-License-Identifier: GPL-2.0-only
/* What crosses to user space and back, as nested attributes; see mltcp.yaml. */
#include "mltcp.h"

const struct nla_policy mltcp_params_policy[MLTCP_P_COUNT] = {
	[MLTCP_P_BURST_BYTES] = {.type = NLA_U64}, [MLTCP_P_GAP_NS] = {.type = NLA_U64},
	[MLTCP_P_SLOPE] = {.type = NLA_U32},	   [MLTCP_P_INTERCEPT] = {.type = NLA_U32},
	[MLTCP_P_YIELD_MIN] = {.type = NLA_U32},   [MLTCP_P_YIELD_MAX] = {.type = NLA_U32},
	[MLTCP_P_MECHANISMS] = {.type = NLA_U32},
};

/* Where the 32-bit ones are. */
static const size_t params_words[MLTCP_P_COUNT] = {
	[MLTCP_P_SLOPE] = offsetof(struct mltcp_params, slope),
	[MLTCP_P_INTERCEPT] = offsetof(struct mltcp_params, intercept),
	[MLTCP_P_YIELD_MIN] = offsetof(struct mltcp_params, yield_min),
	[MLTCP_P_YIELD_MAX] = offsetof(struct mltcp_params, yield_max),
	[MLTCP_P_MECHANISMS] = offsetof(struct mltcp_params, mechanisms),
};

int mltcp_get_params(const struct nlattr *nested, struct mltcp_params *params,
		     struct netlink_ext_ack *extack)
{
	struct nlattr *given[MLTCP_P_COUNT];
	int i, err = nla_parse_nested(given, MLTCP_P_COUNT - 1, nested, mltcp_params_policy,
				      extack);

	if (err)
		return err;
	if (given[MLTCP_P_BURST_BYTES])
		params->burst_bytes = nla_get_u64(given[MLTCP_P_BURST_BYTES]);
	if (given[MLTCP_P_GAP_NS])
		params->gap_ns = nla_get_u64(given[MLTCP_P_GAP_NS]);
	for (i = MLTCP_P_SLOPE; i < MLTCP_P_COUNT; i++)
		if (given[i])
			*(u32 *)((void *)params + params_words[i]) = nla_get_u32(given[i]);
	return 0;
}

static int put_u64(struct sk_buff *skb, int type, u64 value)
{
	return nla_put_u64_64bit(skb, type, value, MLTCP_NESTED_PAD);
}

int mltcp_put_job(struct sk_buff *skb, u32 id, const struct mltcp_job *job)
{
	const struct mltcp_params *params = &job->params;
	struct nlattr *nest;
	int i;

	if (nla_put_u32(skb, MLTCP_A_JOB_ID, id) ||
	    nla_put_string(skb, MLTCP_A_JOB_NAME, job->name))
		return -EMSGSIZE;
	nest = nla_nest_start(skb, MLTCP_A_JOB_PARAMS);
	if (!nest || put_u64(skb, MLTCP_P_BURST_BYTES, params->burst_bytes) ||
	    put_u64(skb, MLTCP_P_GAP_NS, params->gap_ns))
		return -EMSGSIZE;
	for (i = MLTCP_P_SLOPE; i < MLTCP_P_COUNT; i++)
		if (nla_put_u32(skb, i, *(u32 *)((void *)params + params_words[i])))
			return -EMSGSIZE;
	nla_nest_end(skb, nest);
	return 0;
}

int mltcp_put_rule(struct sk_buff *skb, const struct mltcp_rule_record *record)
{
	if (nla_put_u64_64bit(skb, MLTCP_A_CGROUP, record->cgroup, MLTCP_A_PAD) ||
	    nla_put_u32(skb, MLTCP_A_JOB_ID, record->job) ||
	    nla_put_u16(skb, MLTCP_A_LOWEST_PORT, record->ports.lowest) ||
	    nla_put(skb, MLTCP_A_NOT_PORTS, sizeof(record->ports.spared), record->ports.spared))
		return -EMSGSIZE;
	return 0;
}

#if IS_ENABLED(CONFIG_IPV6)
#define local_v6(sk) (&(sk)->sk_v6_rcv_saddr)
#define remote_v6(sk) (&(sk)->sk_v6_daddr)
#else
#define local_v6(sk) NULL
#define remote_v6(sk) NULL
#endif

static int put_address(struct sk_buff *skb, int type, const struct sock *sk, __be32 v4,
		       const struct in6_addr *v6)
{
	struct in6_addr mapped;

	if (IS_ENABLED(CONFIG_IPV6) && sk->sk_family == AF_INET6)
		return nla_put(skb, type, sizeof(*v6), v6);
	ipv6_addr_set_v4mapped(v4, &mapped);
	return nla_put(skb, type, sizeof(mapped), &mapped);
}

/* Which connection it is. The attributes have the same numbers in all that has them. */
static int put_connection(struct sk_buff *skb, const struct sock *sk)
{
	u32 cookie[2];

	sock_diag_save_cookie((struct sock *)sk, cookie);
	return put_u64(skb, MLTCP_F_COOKIE, cookie[0] | (u64)cookie[1] << 32) ||
	       put_address(skb, MLTCP_F_LOCAL_ADDR, sk, sk->sk_rcv_saddr, local_v6(sk)) ||
	       put_address(skb, MLTCP_F_REMOTE_ADDR, sk, sk->sk_daddr, remote_v6(sk)) ||
	       nla_put_u16(skb, MLTCP_F_LOCAL_PORT, ntohs(inet_sk(sk)->inet_sport)) ||
	       nla_put_u16(skb, MLTCP_F_REMOTE_PORT, ntohs(sk->sk_dport));
}

static u32 tagged_job(const struct mltcp_sock *ms)
{
	const struct mltcp_job_ref *job;
	u32 id;

	rcu_read_lock();
	job = rcu_dereference(ms->job);
	id = job ? job->id : 0;
	rcu_read_unlock();
	return id;
}

int mltcp_put_flow(struct sk_buff *skb, const struct mltcp_sock *ms)
{
	const struct mltcp_flow flow = data_race(ms->flow); /* may be a moment of two ACKs */
	struct nlattr *nest = nla_nest_start(skb, MLTCP_A_FLOW);
	const struct sock *sk = ms->sk;
	const struct tcp_sock *tp = tcp_sk(sk);

	if (!nest || put_connection(skb, sk) ||
	    nla_put_u32(skb, MLTCP_F_NETNS, sock_net(sk)->ns.inum) ||
	    nla_put_u32(skb, MLTCP_F_JOB, tagged_job(ms)) ||
	    nla_put_u32(skb, MLTCP_F_CWND, tcp_snd_cwnd(tp)) ||
	    nla_put_u32(skb, MLTCP_F_SSTHRESH, tp->snd_ssthresh) ||
	    nla_put_u8(skb, MLTCP_F_STATE, sk->sk_state) ||
	    nla_put_string(skb, MLTCP_F_CA_NAME, inet_csk(sk)->icsk_ca_ops->name) ||
	    nla_put_u32(skb, MLTCP_F_ITERATION, flow.iteration) ||
	    put_u64(skb, MLTCP_F_SENT_BYTES, mltcp_sent(&flow)) ||
	    nla_put_u32(skb, MLTCP_F_RATIO, flow.ratio) ||
	    put_u64(skb, MLTCP_F_LEARNED_BYTES, (u64)flow.total_kib << MLTCP_KIB_SHIFT) ||
	    nla_put_u32(skb, MLTCP_F_LEARNED_GAP_US, flow.gap_us) ||
	    nla_put_u32(skb, MLTCP_F_CONFIDENCE,
			flow.confidence * MLTCP_ONE / MLTCP_CONFIDENCE_MAX) ||
	    nla_put_u32(skb, MLTCP_F_GAIN, flow.gain) ||
	    nla_put_u8(skb, MLTCP_F_ACTIVE, flow.active) ||
	    nla_put_u32(skb, MLTCP_F_SRTT_US, tp->srtt_us >> 3) ||
	    nla_put_u32(skb, MLTCP_F_RETRANSMITS,
			flow.iteration ? tp->total_retrans - flow.start_retransmits : 0) ||
	    nla_put_u32(skb, MLTCP_F_QUEUE_US, flow.delay.queue_us) ||
	    nla_put_u32(skb, MLTCP_F_FULL_QUEUE_US, flow.delay.full_us) ||
	    nla_put_u32(skb, MLTCP_F_ACKS, flow.acks) ||
	    nla_put_u32(skb, MLTCP_F_LOSSES, flow.losses) ||
	    nla_put_u32(skb, MLTCP_F_YIELDS, flow.yields) ||
	    nla_put_u8(skb, MLTCP_F_BIDIRECTIONAL, !!(flow.flags & MLTCP_ANY_BIDIRECTIONAL)))
		return -EMSGSIZE;
	nla_nest_end(skb, nest);
	return 0;
}

int mltcp_put_iteration(struct sk_buff *skb, const struct mltcp_sock *ms)
{
	struct nlattr *nest = nla_nest_start(skb, MLTCP_A_ITERATION);
	const struct mltcp_flow *flow = &ms->flow;

	if (!nest || put_connection(skb, ms->sk) ||
	    put_u64(skb, MLTCP_I_FIRST_ACK_NS, flow->start_ns) ||
	    put_u64(skb, MLTCP_I_LAST_ACK_NS, flow->last_ns) ||
	    put_u64(skb, MLTCP_I_BYTES, mltcp_sent(flow)) ||
	    nla_put_u32(skb, MLTCP_I_JOB, flow->job) ||
	    nla_put_u32(skb, MLTCP_I_ITERATION, flow->iteration) ||
	    nla_put_u32(skb, MLTCP_I_RETRANSMITS, flow->retransmits - flow->start_retransmits) ||
	    nla_put_u32(skb, MLTCP_I_SRTT_US, flow->srtt_us) ||
	    nla_put_u32(skb, MLTCP_I_CWND, flow->cwnd) ||
	    nla_put_u32(skb, MLTCP_I_RATIO, flow->ratio))
		return -EMSGSIZE;
	nla_nest_end(skb, nest);
	return 0;
}
