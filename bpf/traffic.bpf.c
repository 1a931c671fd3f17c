// SPDX-License-Identifier: GPL-2.0-only
/*
 * Counts what hosts receive and send on their TCP connections, where a flow that may yield looks: ACKs
 * wait behind what comes on other connections, too. On the root of the cgroups, so for all sockets.
 */
#include "mltcp_maps.bpf.h"
#include "../kmod/mltcp_core.h"

/* linux/if.h: the loopback device of each network namespace has this index. */
#define LOOPBACK_IFINDEX 1

char _license[] SEC("license") = "GPL";

/* Where the host of a packet's socket counts; NULL: the packet doesn't count. */
static __always_inline struct mltcp_traffic *traffic_of(struct __sk_buff *skb)
{
	struct mltcp_traffic none = {}, *found;
	struct bpf_sock *sk = skb->sk;
	struct tcp_sock *tp;
	__u64 cookie;

	/* Nearly all packets as short as an ACK are ACKs. */
	if (skb->len <= MLTCP_ACK_BYTES || skb->ifindex == LOOPBACK_IFINDEX || !sk)
		return NULL;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return NULL;
	cookie = ((struct sock *)tp)->__sk_common.skc_net.net->net_cookie;
	found = bpf_map_lookup_elem(&mltcp_hosts, &cookie);
	if (found)
		return found;
	bpf_map_update_elem(&mltcp_hosts, &cookie, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&mltcp_hosts, &cookie);
}

/* 1 lets the packet pass. */
SEC("cgroup_skb/ingress")
int count_received(struct __sk_buff *skb)
{
	struct mltcp_traffic *traffic = traffic_of(skb);

	if (traffic)
		__sync_fetch_and_add(&traffic->rx_bytes, skb->len);
	return 1;
}

SEC("cgroup_skb/egress")
int count_sent(struct __sk_buff *skb)
{
	struct mltcp_traffic *traffic = traffic_of(skb);

	if (traffic)
		__sync_fetch_and_add(&traffic->tx_bytes, skb->len);
	return 1;
}
