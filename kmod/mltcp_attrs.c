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

/* Both ends of a connection. The attributes have the same numbers in all that has them. */
static int put_ends(struct sk_buff *skb, const u8 local[16], u16 local_port, const u8 remote[16],
		    u16 remote_port)
{
	return nla_put(skb, MLTCP_F_LOCAL_ADDR, 16, local) ||
	       nla_put(skb, MLTCP_F_REMOTE_ADDR, 16, remote) ||
	       nla_put_u16(skb, MLTCP_F_LOCAL_PORT, local_port) ||
	       nla_put_u16(skb, MLTCP_F_REMOTE_PORT, remote_port);
}

int mltcp_put_flow(struct sk_buff *skb, const struct mltcp_flow_record *record)
{
	const struct mltcp_flow *flow = &record->flow;
	struct nlattr *nest = nla_nest_start(skb, MLTCP_A_FLOW);

	if (!nest || put_u64(skb, MLTCP_F_COOKIE, record->cookie) ||
	    put_ends(skb, record->local_addr, record->local_port, record->remote_addr,
		     record->remote_port) ||
	    nla_put_u32(skb, MLTCP_F_NETNS, record->netns) ||
	    nla_put_u32(skb, MLTCP_F_JOB, record->tagged_job) ||
	    nla_put_u32(skb, MLTCP_F_CWND, record->snd_cwnd) ||
	    nla_put_u32(skb, MLTCP_F_SSTHRESH, record->snd_ssthresh) ||
	    nla_put_u8(skb, MLTCP_F_STATE, record->state) ||
	    nla_put_string(skb, MLTCP_F_CA_NAME, record->ca_name) ||
	    nla_put_u32(skb, MLTCP_F_ITERATION, flow->iteration) ||
	    put_u64(skb, MLTCP_F_SENT_BYTES, mltcp_sent(flow)) ||
	    nla_put_u32(skb, MLTCP_F_RATIO, flow->ratio) ||
	    put_u64(skb, MLTCP_F_LEARNED_BYTES, (u64)flow->total_kib << MLTCP_KIB_SHIFT) ||
	    nla_put_u32(skb, MLTCP_F_LEARNED_GAP_US, flow->gap_us) ||
	    nla_put_u32(skb, MLTCP_F_CONFIDENCE,
			flow->confidence * MLTCP_ONE / MLTCP_CONFIDENCE_MAX) ||
	    nla_put_u32(skb, MLTCP_F_GAIN, flow->gain) ||
	    nla_put_u8(skb, MLTCP_F_ACTIVE, flow->active) ||
	    nla_put_u32(skb, MLTCP_F_SRTT_US, flow->srtt_us) ||
	    nla_put_u32(skb, MLTCP_F_RETRANSMITS,
			flow->iteration ? flow->retransmits - flow->start_retransmits : 0) ||
	    nla_put_u32(skb, MLTCP_F_QUEUE_US, flow->delay.queue_us) ||
	    nla_put_u32(skb, MLTCP_F_FULL_QUEUE_US, flow->delay.full_us) ||
	    nla_put_u32(skb, MLTCP_F_ACKS, flow->acks) ||
	    nla_put_u32(skb, MLTCP_F_LOSSES, flow->losses) ||
	    nla_put_u32(skb, MLTCP_F_YIELDS, flow->yields) ||
	    nla_put_u8(skb, MLTCP_F_BIDIRECTIONAL, !!(flow->flags & MLTCP_ANY_BIDIRECTIONAL)))
		return -EMSGSIZE;
	nla_nest_end(skb, nest);
	return 0;
}

int mltcp_put_event(struct sk_buff *skb, const struct mltcp_event *event)
{
	struct nlattr *nest = nla_nest_start(skb, MLTCP_A_ITERATION);

	if (!nest || put_u64(skb, MLTCP_I_COOKIE, event->cookie) ||
	    put_ends(skb, event->local_addr, event->local_port, event->remote_addr,
		     event->remote_port) ||
	    put_u64(skb, MLTCP_I_FIRST_ACK_NS, event->first_ack_ns) ||
	    put_u64(skb, MLTCP_I_LAST_ACK_NS, event->last_ack_ns) ||
	    put_u64(skb, MLTCP_I_BYTES, event->bytes) ||
	    nla_put_u32(skb, MLTCP_I_JOB, event->job) ||
	    nla_put_u32(skb, MLTCP_I_ITERATION, event->iteration) ||
	    nla_put_u32(skb, MLTCP_I_RETRANSMITS, event->retransmits) ||
	    nla_put_u32(skb, MLTCP_I_SRTT_US, event->srtt_us) ||
	    nla_put_u32(skb, MLTCP_I_CWND, event->cwnd) ||
	    nla_put_u32(skb, MLTCP_I_RATIO, event->ratio))
		return -EMSGSIZE;
	nla_nest_end(skb, nest);
	return 0;
}
