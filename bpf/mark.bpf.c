// SPDX-License-Identifier: GPL-2.0-only
/*
 * A queue that marks from a threshold on, for kernels without RED: on the egress (clsact) of a
 * bottleneck, in front of its qdisc, which alone drops. The queue is counted as it would be, by the
 * link's rate; packets that can't be marked (RFC 3168) pass as they are.
 *
 * Programs that come after this one on the interface see the packets, too (TC_ACT_UNSPEC).
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>

char _license[] SEC("license") = "GPL";

/* What the loader sets. */
struct settings {
	__u64 ns_per_kib; /* that the link takes */
	__u64 mark_ns; /* that a packet waits at the threshold */
	__u64 full_ns; /* at the end of the queue, where it is dropped */
	__u64 burst_ns; /* that the bucket's tokens are worth, which the link sends at once */
};

const volatile struct settings link SEC(".rodata.link") = {};

struct queue {
	struct bpf_spin_lock lock;
	__u64 free_ns; /* when the link will have sent what is there, CLOCK_MONOTONIC; earlier: tokens */
	__u64 marked; /* packets */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct queue);
} mltcp_marking SEC(".maps");

SEC("tc")
int mark(struct __sk_buff *skb)
{
	__u64 now = bpf_ktime_get_ns(), waits_ns = 0;
	__u64 takes_ns = skb->len * link.ns_per_kib >> 10;
	struct queue *queue;
	__u32 zero = 0;

	queue = bpf_map_lookup_elem(&mltcp_marking, &zero);
	if (!queue)
		return TC_ACT_UNSPEC;
	bpf_spin_lock(&queue->lock);
	if (queue->free_ns + link.burst_ns < now)
		queue->free_ns = now - link.burst_ns;
	if (queue->free_ns + takes_ns > now)
		waits_ns = queue->free_ns + takes_ns - now;
	if (waits_ns <= link.full_ns)
		queue->free_ns += takes_ns;
	bpf_spin_unlock(&queue->lock);
	if (waits_ns > link.mark_ns && bpf_skb_ecn_set_ce(skb) == 1)
		__sync_fetch_and_add(&queue->marked, 1);
	return TC_ACT_UNSPEC;
}
