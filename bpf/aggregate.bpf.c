// SPDX-License-Identifier: GPL-2.0-only
/*
 * The aggregator. From the XDP program sums leave by devmaps, past any queueing discipline, one to
 * each port. From the classifier at a port's ingress they pass the disciplines of the ports that
 * they leave by, and several workers may be behind one port. User space chooses for each job. Where
 * XDP serves it, the classifier answers the frames whose answer XDP has no room for.
 */
#include <linux/pkt_cls.h>
#include "aggregate.bpf.h"

char _license[] SEC("license") = "GPL";

/* Where a job's workers are: one port each, as a broadcast sends one frame per entry. */
struct ports {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, AGG_WORKERS_MAX);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct bpf_devmap_val));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, AGG_JOBS_MAX);
	__type(key, __u32);
	__array(values, struct ports);
} agg_ports SEC(".maps");

/* The worker of a job behind a port, for the program that addresses a copy there. */
struct port_key {
	__u32 interface, job;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, AGG_JOBS_MAX *AGG_WORKERS_MAX);
	__type(key, struct port_key);
	__type(value, __u32);
} agg_behind SEC(".maps");

/* The answer from `s` as the frame's contents; negative where it doesn't fit. */
static __always_inline long write_xdp(struct xdp_md *ctx, struct scratch *s, __u32 length)
{
	__u64 bytes = value_bytes(s);
	int more = (int)(HEADERS_BYTES + bytes) - (int)length;
	long failed;

	if (more && bpf_xdp_adjust_tail(ctx, more))
		return -1;
	failed = bpf_xdp_store_bytes(ctx, 0, &s->frame, HEADERS_BYTES);
	if (failed || bytes < MIN_BYTES || bytes > MAX_BYTES)
		return failed;
	return bpf_xdp_store_bytes(ctx, HEADERS_BYTES, s->packet.values, bytes);
}

/* Whether the answer to a packet without values may have some. */
static __always_inline int may_grow(const struct agg_header *header)
{
	return !header->count && header->chunk != AGG_END && header->type != AGG_HELD;
}

SEC("xdp.frags")
int aggregate_xdp(struct xdp_md *ctx)
{
	__u32 length = bpf_xdp_get_buff_len(ctx), zero = 0, more;
	__u64 bytes;
	struct origin origin = {};
	enum agg_action action;
	struct scratch *s = bpf_map_lookup_elem(&agg_scratch, &zero);
	void *ports;

	if (!s || length < HEADERS_BYTES || bpf_xdp_load_bytes(ctx, 0, &s->frame, HEADERS_BYTES) ||
	    !is_ours(&s->frame))
		return XDP_PASS;
	if (!find_origin(s, &origin))
		return XDP_DROP;
	if (origin.job->by_tc)
		return XDP_PASS;
	if (!is_sound(s, &origin, ctx->ingress_ifindex, length))
		return XDP_DROP;
	if (may_grow(&s->packet.header)) {
		more = origin.job->values * 4;
		if (bpf_xdp_adjust_tail(ctx, more))
			return XDP_PASS; /* no room behind it: veth gives a frame just what it needs */
		length += more;
	}
	bytes = value_bytes(s);
	if (bytes >= MIN_BYTES &&
	    (bytes > MAX_BYTES || bpf_xdp_load_bytes(ctx, HEADERS_BYTES, s->packet.values, bytes)))
		return XDP_DROP;
	action = take(s, &origin);
	if (action == AGG_DROP || write_xdp(ctx, s, length))
		return XDP_DROP;
	/* Not XDP_TX: veth wakes the other end for that only where it runs XDP itself. */
	if (action != AGG_BROADCAST)
		return bpf_redirect(origin.peer->interface, 0);
	ports = bpf_map_lookup_elem(&agg_ports, &origin.index);
	return ports ? bpf_redirect_map(ports, 0, BPF_F_BROADCAST) : XDP_DROP;
}

/* Runs for each copy of a sum, on the port that it leaves by. */
SEC("xdp.frags/devmap")
int address_copy(struct xdp_md *ctx)
{
	struct {
		__u8 unused[6];
		struct agg_frame frame;
		struct agg_header header;
	} s;
	struct port_key key;
	struct agg_peer *peer;
	__u32 *worker;

	if (bpf_xdp_load_bytes(ctx, 0, &s.frame, HEADERS_BYTES))
		return XDP_DROP;
	key.interface = ctx->egress_ifindex;
	key.job = s.header.job;
	worker = bpf_map_lookup_elem(&agg_behind, &key);
	if (!worker)
		return XDP_DROP;
	peer = bpf_map_lookup_elem(&agg_workers, worker);
	if (!peer)
		return XDP_DROP;
	address_frame(&s.frame, peer, s.header.count);
	if (bpf_xdp_store_bytes(ctx, 0, &s.frame, FRAME_BYTES))
		return XDP_DROP;
	return XDP_PASS;
}

static __always_inline long write_skb(struct __sk_buff *skb, struct scratch *s)
{
	__u64 bytes = value_bytes(s);
	long failed;

	if (bpf_skb_change_tail(skb, HEADERS_BYTES + bytes, 0))
		return -1;
	failed = bpf_skb_store_bytes(skb, 0, &s->frame, HEADERS_BYTES, 0);
	if (failed || bytes < MIN_BYTES || bytes > MAX_BYTES)
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
int aggregate_tc(struct __sk_buff *skb)
{
	__u32 length = skb->len, zero = 0;
	__u64 bytes;
	struct origin origin = {};
	enum agg_action action;
	struct scratch *s = bpf_map_lookup_elem(&agg_scratch, &zero);

	if (!s || length < HEADERS_BYTES || bpf_skb_load_bytes(skb, 0, &s->frame, HEADERS_BYTES) ||
	    !is_ours(&s->frame))
		return TC_ACT_UNSPEC;
	if (!find_origin(s, &origin) || !is_sound(s, &origin, skb->ingress_ifindex, length))
		return TC_ACT_SHOT;
	bytes = value_bytes(s);
	if (bytes >= MIN_BYTES &&
	    (bytes > MAX_BYTES || bpf_skb_load_bytes(skb, HEADERS_BYTES, s->packet.values, bytes)))
		return TC_ACT_SHOT;
	action = take(s, &origin);
	if (action == AGG_DROP || write_skb(skb, s))
		return TC_ACT_SHOT;
	if (action == AGG_BROADCAST) {
		send_to_all(skb, s, &origin);
		return TC_ACT_SHOT;
	}
	return bpf_redirect(origin.peer->interface, 0);
}
