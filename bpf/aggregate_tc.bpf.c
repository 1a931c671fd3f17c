// SPDX-License-Identifier: GPL-2.0-only
/* The aggregator as a classifier at a port's ingress: sums pass the queueing disciplines of the
 * ports that they leave by, and several workers may be behind one port. */
#include <linux/pkt_cls.h>
#include "aggregate.bpf.h"

char _license[] SEC("license") = "GPL";

static __always_inline long write_frame(struct __sk_buff *skb, struct scratch *s)
{
	__u64 bytes = value_bytes(s);
	long failed;

	if (bpf_skb_change_tail(skb, HEADERS_BYTES + bytes, 0))
		return -1;
	failed = bpf_skb_store_bytes(skb, 0, &s->frame, HEADERS_BYTES, 0);
	if (failed || !bytes || bytes > MAX_BYTES)
		return failed;
	return bpf_skb_store_bytes(skb, HEADERS_BYTES, s->packet.values, bytes, 0);
}

/* A copy of the frame to each worker of the job. */
static __always_inline void send_to_all(struct __sk_buff *skb, struct scratch *s,
					const struct origin *origin)
{
	__u32 values = s->packet.header.count, index, i;
	struct agg_peer *peer;

	for (i = 0; i < AGG_WORKERS_MAX; i++) {
		if (i >= origin->job->workers)
			break;
		index = origin->index * AGG_WORKERS_MAX + i;
		peer = bpf_map_lookup_elem(&agg_workers, &index);
		if (!peer)
			break;
		address_frame(&s->frame, peer, values);
		if (bpf_skb_store_bytes(skb, 0, &s->frame, FRAME_BYTES, 0))
			break;
		bpf_clone_redirect(skb, peer->interface, 0);
	}
}

SEC("tc")
int aggregate(struct __sk_buff *skb)
{
	__u32 length = skb->len, zero = 0;
	__u64 bytes;
	struct origin origin = {};
	enum agg_action action;
	struct scratch *s = bpf_map_lookup_elem(&agg_scratch, &zero);

	if (!s || length < HEADERS_BYTES ||
	    bpf_skb_load_bytes(skb, 0, &s->frame, HEADERS_BYTES) || !is_ours(&s->frame))
		return TC_ACT_UNSPEC;
	if (!find_origin(s, &origin) || !is_sound(s, &origin, length))
		return TC_ACT_SHOT;
	bytes = value_bytes(s);
	if (bytes && (bytes > MAX_BYTES ||
		      bpf_skb_load_bytes(skb, HEADERS_BYTES, s->packet.values, bytes)))
		return TC_ACT_SHOT;
	action = take(s, &origin);
	if (action == AGG_DROP || write_frame(skb, s))
		return TC_ACT_SHOT;
	if (action == AGG_BROADCAST) {
		send_to_all(skb, s, &origin);
		return TC_ACT_SHOT;
	}
	if (action == AGG_UP) {
		struct agg_parent *parent = bpf_map_lookup_elem(&agg_parents, &origin.index);

		return parent ? bpf_redirect(parent->peer.interface, 0) : TC_ACT_SHOT;
	}
	return bpf_redirect(skb->ifindex, 0);
}
