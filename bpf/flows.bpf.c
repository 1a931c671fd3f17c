// SPDX-License-Identifier: GPL-2.0-only
/* Reads every flow's state in one pass, across network namespaces, as mltcp_flow_records. */
#include "mltcp_maps.bpf.h"

char _license[] SEC("license") = "GPL";

SEC("iter/bpf_sk_storage_map")
int dump_flows(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct sock *sk = ctx->sk;
	struct mltcp_flow *flow = ctx->value;
	struct mltcp_flow_record record = {};
	const struct sock_common *common;
	struct mltcp_tag *tag;
	struct tcp_sock *tp;
	__u32 i;

	if (!sk || !flow)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	common = &sk->__sk_common;
	tag = bpf_sk_storage_get(&mltcp_tags, sk, 0, 0);
	record.cookie = bpf_get_socket_cookie(sk);
	record.netns = common->skc_net.net->ns.inum;
	record.tagged_job = tag ? tag->job : 0;
	record.snd_cwnd = tp->snd_cwnd;
	record.snd_ssthresh = tp->snd_ssthresh;
	copy_address(record.local_addr, common->skc_family, common->skc_rcv_saddr,
		     &common->skc_v6_rcv_saddr);
	copy_address(record.remote_addr, common->skc_family, common->skc_daddr,
		     &common->skc_v6_daddr);
	record.local_port = common->skc_num;
	record.remote_port = __builtin_bswap16(common->skc_dport);
	record.state = common->skc_state;
	for (i = 0; i < sizeof(record.ca_name); i++)
		record.ca_name[i] = tp->inet_conn.icsk_ca_ops->name[i];
	record.flow = *flow;
	record.flow.cwnd = tp->snd_cwnd;
	record.flow.srtt_us = tp->srtt_us >> 3;
	record.flow.retransmits = tp->total_retrans;
	bpf_seq_write(ctx->meta->seq, &record, sizeof(record));
	return 0;
}
