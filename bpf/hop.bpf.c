// SPDX-License-Identifier: GPL-2.0-only
/*
 * A hop's part of the network's feedback: on the egress (clsact) of a bottleneck, in front of its
 * qdisc, count the queue as it would be and write it into packets that ask.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/in.h>
#include <linux/pkt_cls.h>
#include <linux/types.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "../kmod/mltcp_uapi.h"
#include "../kmod/mltcp_hop.h"

/* As in mltcp_feedback.bpf.h, whose kernel types clash with these headers'. */
#define MLTCP_OPTION_KIND 254
#define MLTCP_OPTION_ID 0x4d46
#define MLTCP_OPTION_BYTES 8
#define OPTIONS_MAX 40

/* Of the field that has an IPv4 packet's fragment. */
#define FRAGMENT_OFFSET 0x1fff

char _license[] SEC("license") = "GPL";

/* What the link is like. Set when loading. */
const volatile struct mltcp_hop_link hop_link SEC(".rodata.link") = {};

struct locked_hop {
	struct bpf_spin_lock lock;
	struct mltcp_hop hop;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct locked_hop);
} hops SEC(".maps");

/* Where the option's stamp is in the packet; 0 where there is none. */
static __always_inline __u32 find_stamp(struct __sk_buff *skb, __u32 tcp_at, __u32 length)
{
	__u32 same = length, at, i;
	__u8 option[4];

	/* The verifier must not know where options start, or it follows every sequence of them. */
	asm volatile("" : "+r"(same));
	at = sizeof(struct tcphdr) + length - same;

	/* At most 40 bytes of options; each but NOP has two at least. */
	for (i = 0; i < OPTIONS_MAX; i++) {
		at &= 63;
		if (at + MLTCP_OPTION_BYTES > length ||
		    bpf_skb_load_bytes(skb, tcp_at + at, option, sizeof(option)))
			return 0;
		if (option[0] == MLTCP_OPTION_KIND && option[1] == MLTCP_OPTION_BYTES &&
		    option[2] == MLTCP_OPTION_ID >> 8 && option[3] == (MLTCP_OPTION_ID & 0xff))
			return tcp_at + at + 4;
		if (option[0] == 0)
			return 0;
		at += option[0] == 1 ? 1 : option[1] < 2 ? 2 : option[1];
	}
	return 0;
}

/* Where the TCP header is in the packet; 0: it has none that can be found. */
static __always_inline __u32 find_tcp(struct __sk_buff *skb)
{
	struct ipv6hdr six;
	struct iphdr four;

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes(skb, ETH_HLEN, &four, sizeof(four)) ||
		    four.protocol != IPPROTO_TCP ||
		    four.frag_off & bpf_htons(FRAGMENT_OFFSET)) /* the header is in the first */
			return 0;
		return ETH_HLEN + four.ihl * 4;
	}
	/* With extension headers in between it isn't looked for. */
	if (skb->protocol != bpf_htons(ETH_P_IPV6) ||
	    bpf_skb_load_bytes(skb, ETH_HLEN, &six, sizeof(six)) || six.nexthdr != IPPROTO_TCP)
		return 0;
	return ETH_HLEN + sizeof(six);
}

static __always_inline void stamp(struct __sk_buff *skb, __u32 value)
{
	__be16 old, new = bpf_htons(value);
	__u32 tcp_at = find_tcp(skb), at;
	struct tcphdr tcp;

	if (!tcp_at || bpf_skb_load_bytes(skb, tcp_at, &tcp, sizeof(tcp)))
		return;
	at = find_stamp(skb, tcp_at, tcp.doff * 4);
	if (!at || bpf_skb_load_bytes(skb, at, &old, sizeof(old)) || !old ||
	    bpf_ntohs(old) >= value)
		return;
	bpf_l4_csum_replace(skb, tcp_at + offsetof(struct tcphdr, check), old, new, sizeof(new));
	bpf_skb_store_bytes(skb, at, &new, sizeof(new), 0);
}

SEC("tc")
int hop(struct __sk_buff *skb)
{
	const struct mltcp_hop_link link = {
		.ns_per_kib = hop_link.ns_per_kib,
		.queue_ns = hop_link.queue_ns,
		.bucket_ns = hop_link.bucket_ns,
	};
	__u64 now = bpf_ktime_get_ns();
	struct locked_hop *locked;
	__u32 zero = 0, value;

	locked = bpf_map_lookup_elem(&hops, &zero);
	if (!locked)
		return TC_ACT_UNSPEC;
	bpf_spin_lock(&locked->lock);
	value = mltcp_hop_pass(&locked->hop, &link, now, skb->len);
	bpf_spin_unlock(&locked->lock);
	stamp(skb, value);
	return TC_ACT_UNSPEC; /* others there see the packet, too */
}
