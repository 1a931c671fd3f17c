// SPDX-License-Identifier: GPL-2.0-only
/*
 * Priorities of jobs on real queues, at the egress (clsact) of interfaces. `mark`, on a sender's
 * host, counts what a job sends, says when its bursts begin and end, and writes the job's level
 * into the packets. `classify`, in front of a queue with classes of HTB, picks the class of it.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "priority.bpf.h"
#include "../kmod/mltcp_core.h"

#define JOBS_MAX 4096
#define SOCKETS_MAX 65536
#define ECN_MASK 3

/* IPv6's traffic class, of the first 16 bits of a packet. */
#define TRAFFIC_CLASS_SHIFT 4
#define TRAFFIC_CLASS (0xff << TRAFFIC_CLASS_SHIFT)

char _license[] SEC("license") = "GPL";

/* Class of HTB of the best level; those of the others follow. Set when loading. */
const volatile __u32 first_class SEC(".rodata.classes") = 0;

#define MAP(map, kind, keys, values, entries)        \
	struct {                                     \
		__uint(type, kind);                  \
		__uint(max_entries, entries);        \
		__uint(pinning, LIBBPF_PIN_BY_NAME); \
		__type(key, keys);                   \
		__type(value, values);               \
	} map SEC(".maps")

/* Cookie of a socket -> job; job -> what is known; job -> where it is; job -> level, 0 the best. */
MAP(priority_sockets, BPF_MAP_TYPE_HASH, __u64, __u32, SOCKETS_MAX);
MAP(priority_jobs, BPF_MAP_TYPE_HASH, __u32, struct mltcp_priority_job, JOBS_MAX);
MAP(priority_bursts, BPF_MAP_TYPE_HASH, __u32, struct mltcp_priority_burst, JOBS_MAX);
MAP(priority_levels, BPF_MAP_TYPE_HASH, __u32, __u32, JOBS_MAX);
/* Element 0: when the controller last said that it lives. */
MAP(priority_alive, BPF_MAP_TYPE_ARRAY, __u32, __u64, 1);

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} priority_events SEC(".maps");

static __always_inline void tell(__u32 job, __u32 begins, __u64 now)
{
	struct mltcp_priority_event event = {.at_ns = now, .job = job, .begins = begins};

	/* Events are lost where nobody reads them, which does no harm. */
	bpf_ringbuf_output(&priority_events, &event, sizeof(event), 0);
}

/* Nanoseconds since then, which is later than now where another processor has written it since. */
static __always_inline __u64 since(__u64 now, __u64 then)
{
	return now > then ? now - then : 0;
}

/* Count a packet, and tell where a burst begins or ends with it. */
static __always_inline void count(__u32 job, const struct mltcp_priority_job *known, __u32 bytes,
				  __u64 now)
{
	struct mltcp_priority_burst none = {}, *burst;
	__u64 all, sent;

	burst = bpf_map_lookup_elem(&priority_bursts, &job);
	if (!burst) {
		bpf_map_update_elem(&priority_bursts, &job, &none, BPF_NOEXIST);
		burst = bpf_map_lookup_elem(&priority_bursts, &job);
		if (!burst)
			return;
	}
	if (!burst->number || since(now, burst->last_ns) > known->gap_ns) {
		burst->before = burst->sent;
		burst->sent = 0;
		burst->began_ns = now;
		burst->number++;
		burst->active = 1;
		tell(job, 1, now);
	}
	if (now > burst->last_ns)
		burst->last_ns = now;
	all = known->bytes ? known->bytes : burst->before;
	sent = __sync_fetch_and_add(&burst->sent, bytes);
	/* Bytes that were sent again count, too: by them alone a burst isn't over. */
	if (burst->active && all && mltcp_overruns(sent + bytes, all)) {
		burst->active = 0;
		tell(job, 0, now);
	}
}

/* The level of a job, or that of all where no controller lives. */
static __always_inline __u32 level_of(__u32 job, __u64 now)
{
	const __u32 *level = bpf_map_lookup_elem(&priority_levels, &job);
	__u32 zero = 0;
	const __u64 *alive = bpf_map_lookup_elem(&priority_alive, &zero);

	if (!level || !alive || since(now, *alive) > MLTCP_PRIORITY_ALIVE_NS ||
	    *level >= MLTCP_PRIORITY_LEVELS)
		return MLTCP_PRIORITY_LEVELS - 1;
	return *level;
}

/* What the programs look at in a packet. */
struct packet {
	__u32 tcp_at; /* where its TCP header is */
	__u8 version; /* of IP: 4 or 6 */
	__u8 tos; /* IPv4's type of service or IPv6's traffic class: DSCP and ECN */
};

/* The IP header of a packet; 0 where it has none. */
static __always_inline int find_ip(struct __sk_buff *skb, struct packet *found, __u8 *carries)
{
	struct ipv6hdr six;
	struct iphdr four;

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes(skb, ETH_HLEN, &four, sizeof(four)))
			return 0;
		found->version = 4;
		found->tos = four.tos;
		found->tcp_at = ETH_HLEN + four.ihl * 4;
		*carries = four.protocol;
		return 1;
	}
	if (skb->protocol != bpf_htons(ETH_P_IPV6) ||
	    bpf_skb_load_bytes(skb, ETH_HLEN, &six, sizeof(six)))
		return 0;
	found->version = 6;
	found->tos = six.priority << 4 | six.flow_lbl[0] >> 4;
	found->tcp_at = ETH_HLEN + sizeof(six); /* extension headers aren't looked through */
	*carries = six.nexthdr;
	return 1;
}

static __always_inline void write_tos(struct __sk_buff *skb, const struct packet *found, __u8 tos)
{
	__be16 old = bpf_htons(found->tos), new = bpf_htons(tos), first;

	if (found->version == 4) {
		bpf_l3_csum_replace(skb, ETH_HLEN + offsetof(struct iphdr, check), old, new,
				    sizeof(new));
		bpf_skb_store_bytes(skb, ETH_HLEN + offsetof(struct iphdr, tos), &tos, sizeof(tos),
				    0);
		return;
	}
	/* IPv6 has no checksum, and that of TCP doesn't cover the traffic class. */
	if (bpf_skb_load_bytes(skb, ETH_HLEN, &first, sizeof(first)))
		return;
	first = (first & bpf_htons(~TRAFFIC_CLASS)) | bpf_htons(tos << TRAFFIC_CLASS_SHIFT);
	bpf_skb_store_bytes(skb, ETH_HLEN, &first, sizeof(first), 0);
}

SEC("tc")
int mark(struct __sk_buff *skb)
{
	__u64 cookie = bpf_get_socket_cookie(skb), now = bpf_ktime_get_ns();
	const struct mltcp_priority_job *known;
	struct packet found = {};
	struct tcphdr tcp;
	__u32 *job, headers;
	__u8 tos, carries;

	job = bpf_map_lookup_elem(&priority_sockets, &cookie);
	if (!job || !find_ip(skb, &found, &carries) || carries != IPPROTO_TCP ||
	    bpf_skb_load_bytes(skb, found.tcp_at, &tcp, sizeof(tcp)))
		return TC_ACT_UNSPEC;
	known = bpf_map_lookup_elem(&priority_jobs, job);
	headers = found.tcp_at + tcp.doff * 4;
	if (known && skb->len > headers)
		count(*job, known, skb->len - headers, now);
	tos = MLTCP_PRIORITY_DSCP(level_of(*job, now)) << 2 | (found.tos & ECN_MASK);
	if (tos != found.tos)
		write_tos(skb, &found, tos);
	return TC_ACT_UNSPEC;
}

SEC("tc")
int classify(struct __sk_buff *skb)
{
	__u32 level = MLTCP_PRIORITY_LEVELS - 1;
	struct packet found = {};
	__u8 carries;

	if (find_ip(skb, &found, &carries) && (found.tos >> 2 & 3) == 3 &&
	    found.tos >> 4 < MLTCP_PRIORITY_LEVELS)
		level = found.tos >> 4;
	skb->priority = first_class + level;
	return TC_ACT_UNSPEC;
}
