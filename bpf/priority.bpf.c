// SPDX-License-Identifier: GPL-2.0-only
/*
 * Priorities of jobs on real queues, at the egress (clsact) of interfaces. `mark`, on a sender's
 * host, counts what a job sends, says when its bursts begin and end, and writes the job's level
 * into the packets. `classify`, in front of a queue with classes of HTB, picks the class of it.
 * IPv4 alone, as the testbed's networks are.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "priority.bpf.h"

#define JOBS_MAX 4096
#define SOCKETS_MAX 65536
#define ECN_MASK 3

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
	if (!burst->number || now - burst->last_ns > known->gap_ns) {
		burst->before = burst->sent;
		burst->sent = 0;
		burst->began_ns = now;
		burst->number++;
		burst->active = 1;
		tell(job, 1, now);
	}
	burst->last_ns = now;
	all = known->bytes ? known->bytes : burst->before;
	sent = __sync_fetch_and_add(&burst->sent, bytes);
	if (burst->active && all && sent + bytes >= all) {
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

	if (!level || !alive || now - *alive > MLTCP_PRIORITY_ALIVE_NS ||
	    *level >= MLTCP_PRIORITY_LEVELS)
		return MLTCP_PRIORITY_LEVELS - 1;
	return *level;
}

SEC("tc")
int mark(struct __sk_buff *skb)
{
	__u64 cookie = bpf_get_socket_cookie(skb), now = bpf_ktime_get_ns();
	const struct mltcp_priority_job *known;
	__be16 old, new;
	struct tcphdr tcp;
	struct iphdr ip;
	__u32 *job, headers;
	__u8 tos;

	job = bpf_map_lookup_elem(&priority_sockets, &cookie);
	if (!job || bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)) || ip.version != 4 ||
	    ip.protocol != IPPROTO_TCP ||
	    bpf_skb_load_bytes(skb, ETH_HLEN + ip.ihl * 4, &tcp, sizeof(tcp)))
		return TC_ACT_UNSPEC;
	known = bpf_map_lookup_elem(&priority_jobs, job);
	headers = ETH_HLEN + ip.ihl * 4 + tcp.doff * 4;
	if (known && skb->len > headers)
		count(*job, known, skb->len - headers, now);
	tos = MLTCP_PRIORITY_DSCP(level_of(*job, now)) << 2 | (ip.tos & ECN_MASK);
	if (tos == ip.tos)
		return TC_ACT_UNSPEC;
	old = bpf_htons(ip.tos);
	new = bpf_htons(tos);
	bpf_l3_csum_replace(skb, ETH_HLEN + offsetof(struct iphdr, check), old, new, sizeof(new));
	bpf_skb_store_bytes(skb, ETH_HLEN + offsetof(struct iphdr, tos), &tos, sizeof(tos), 0);
	return TC_ACT_UNSPEC;
}

SEC("tc")
int classify(struct __sk_buff *skb)
{
	__u32 level = MLTCP_PRIORITY_LEVELS - 1;
	struct iphdr ip;

	if (!bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)) && ip.version == 4 &&
	    (ip.tos >> 2 & 3) == 3 && ip.tos >> 4 < MLTCP_PRIORITY_LEVELS)
		level = ip.tos >> 4;
	skb->priority = first_class + level;
	return TC_ACT_UNSPEC;
}
