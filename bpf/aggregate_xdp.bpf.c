// SPDX-License-Identifier: GPL-2.0-only
/* The aggregator as an XDP program: sums leave by devmaps, past any queueing discipline. */
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
static __always_inline long write_frame(struct xdp_md *ctx, struct scratch *s, __u32 length)
{
	__u64 bytes = value_bytes(s);
	int more = (int)(HEADERS_BYTES + bytes) - (int)length;
	long failed;

	if (more && bpf_xdp_adjust_tail(ctx, more))
		return -1;
	failed = bpf_xdp_store_bytes(ctx, 0, &s->frame, HEADERS_BYTES);
	if (failed || !bytes || bytes > MAX_BYTES)
		return failed;
	return bpf_xdp_store_bytes(ctx, HEADERS_BYTES, s->packet.values, bytes);
}

SEC("xdp.frags")
int aggregate(struct xdp_md *ctx)
{
	__u32 length = bpf_xdp_get_buff_len(ctx), zero = 0;
	__u64 bytes;
	struct origin origin = {};
	enum agg_action action;
	struct scratch *s = bpf_map_lookup_elem(&agg_scratch, &zero);
	void *ports;

	if (!s || length < HEADERS_BYTES ||
	    bpf_xdp_load_bytes(ctx, 0, &s->frame, HEADERS_BYTES) || !is_ours(&s->frame))
		return XDP_PASS;
	if (!find_origin(s, &origin) || !is_sound(s, &origin, length))
		return XDP_DROP;
	bytes = value_bytes(s);
	if (bytes && (bytes > MAX_BYTES ||
		      bpf_xdp_load_bytes(ctx, HEADERS_BYTES, s->packet.values, bytes)))
		return XDP_DROP;
	action = take(s, &origin);
	if (action == AGG_DROP || write_frame(ctx, s, length))
		return XDP_DROP;
	if (action == AGG_REPLY)
		return XDP_TX;
	if (action == AGG_UP) {
		struct agg_parent *parent = bpf_map_lookup_elem(&agg_parents, &origin.index);

		return parent ? bpf_redirect(parent->peer.interface, 0) : XDP_DROP;
	}
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

/* Veth hands on redirected frames only where the receiving end runs XDP or GRO. */
SEC("xdp.frags")
int pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}
