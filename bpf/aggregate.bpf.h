/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the aggregator's programs share: maps, the check of a packet that came in, and the answer
 * that goes out. The programs differ in how they read and send frames (XDP or tc).
 *
 * A frame belongs to a job once its address, job, key, generation, sizes and check are right.
 */
#ifndef AGGREGATE_BPF_H
#define AGGREGATE_BPF_H

#include <linux/types.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include "mltcp_aggregate.h"

#define ETHERTYPE_IPV4 0x0800
#define PROTOCOL_UDP 17
#define VERSION_AND_LENGTH 0x45 /* IPv4 without options */
#define MORE_FRAGMENTS_OR_OFFSET 0x3fff
#define TIME_TO_LIVE 64

/* UDP port of the workers' packets. */
const volatile __u16 agg_port = 17749;

/* This host's addresses: frames for others only pass through. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __be32);
	__type(value, __u8);
} agg_addresses SEC(".maps");

struct agg_frame {
	__u8 to[6], from[6];
	__be16 protocol;
	__u8 version_and_length, service;
	__be16 length, id, fragment;
	__u8 ttl, ip_protocol;
	__be16 ip_check;
	__be32 source, destination;
	__be16 source_port, destination_port, udp_length, udp_check;
} __attribute__((packed));

#define FRAME_BYTES sizeof(struct agg_frame)
#define HEADERS_BYTES (FRAME_BYTES + sizeof(struct agg_header))
#define ETHERNET_BYTES 14
#define OVERHEAD_BYTES (HEADERS_BYTES - ETHERNET_BYTES) /* IPv4, UDP and ours */

struct scratch {
	__u8 unused[6]; /* so that the packet lies on 8 bytes */
	struct agg_frame frame;
	struct agg_packet packet;
};

struct agg_slot {
	struct bpf_spin_lock lock;
	__u32 reserved;
	struct agg_entry entry;
};

/* Why a packet was dropped, and what became of the others; `mltcp collectives aggregator status` names them. */
enum counter {
	COUNT_TAKEN,
	COUNT_RESULTS,
	COUNT_REPLIES,
	COUNT_STALE,
	COUNT_FOREIGN, /* wrong magic, or no such job */
	COUNT_KEY, /* wrong key or generation */
	COUNT_SENDER, /* not the address or the port of this host that its worker has */
	COUNT_MALFORMED, /* sizes that can't be */
	COUNT_CORRUPT, /* wrong check */
	COUNT_REFUSED, /* breaks the rules of rounds */
	COUNT_BYTES, /* of values taken */
	COUNTERS,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} agg_scratch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, AGG_JOBS_MAX *COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} agg_counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, AGG_JOBS_MAX);
	__type(key, __u32);
	__type(value, struct agg_job);
} agg_jobs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, AGG_JOBS_MAX *AGG_WORKERS_MAX);
	__type(key, __u32);
	__type(value, struct agg_peer);
} agg_workers SEC(".maps");

/* Two versions of each slot; user space sets how many before loading. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct agg_slot);
} agg_slots SEC(".maps");

static __always_inline void count(__u32 job, enum counter which, __u64 more)
{
	__u32 index = job * COUNTERS + which;
	__u64 *counter = bpf_map_lookup_elem(&agg_counters, &index);

	if (counter)
		*counter += more;
}

/* Whether a frame can be one of ours at all, by its first HEADERS_BYTES. */
static __always_inline int is_ours(const struct agg_frame *frame)
{
	return frame->protocol == bpf_htons(ETHERTYPE_IPV4) &&
	       frame->version_and_length == VERSION_AND_LENGTH &&
	       frame->ip_protocol == PROTOCOL_UDP &&
	       !(frame->fragment & bpf_htons(MORE_FRAGMENTS_OR_OFFSET)) &&
	       frame->destination_port == bpf_htons(agg_port) &&
	       bpf_map_lookup_elem(&agg_addresses, &frame->destination);
}

static __always_inline int is_from(const struct agg_frame *frame, __u32 interface,
				   const struct agg_peer *peer)
{
	return interface == peer->interface && frame->source == peer->address &&
	       frame->source_port == peer->port && frame->destination == peer->local_address &&
	       frame->destination_port == peer->local_port;
}

/* A frame that may be taken. */
struct origin {
	struct agg_job *job;
	struct agg_peer *peer; /* whom it came from */
	__u32 index; /* of the job here */
};

/* The job that a frame belongs to by what its headers say; false, and counted, without one. */
static __always_inline int find_origin(struct scratch *s, struct origin *origin)
{
	const struct agg_header *header = &s->packet.header;
	__u32 index = header->job, worker;

	if (header->magic != AGG_MAGIC) {
		count(0, COUNT_FOREIGN, 1);
		return 0;
	}
	origin->index = index;
	origin->job = bpf_map_lookup_elem(&agg_jobs, &index);
	if (!origin->job || !origin->job->key) {
		count(0, COUNT_FOREIGN, 1);
		return 0;
	}
	if (header->key != origin->job->key || header->generation != origin->job->generation) {
		count(index, COUNT_KEY, 1);
		return 0;
	}
	worker = header->worker;
	if (worker >= AGG_WORKERS_MAX || worker >= origin->job->workers) {
		count(index, COUNT_SENDER, 1);
		return 0;
	}
	worker += index * AGG_WORKERS_MAX;
	origin->peer = bpf_map_lookup_elem(&agg_workers, &worker);
	return origin->peer != NULL;
}

/* Whether sender and sizes of a frame of `length` bytes are right, which came by an interface of
 * this host; counted where not. */
static __always_inline int is_sound(const struct scratch *s, const struct origin *origin,
				    __u32 interface, __u32 length)
{
	const struct agg_header *header = &s->packet.header;
	__u32 bytes = bpf_ntohs(s->frame.length), ours = bytes - (OVERHEAD_BYTES - sizeof(*header));

	if (!is_from(&s->frame, interface, origin->peer)) {
		count(origin->index, COUNT_SENDER, 1);
		return 0;
	}
	if (agg_well_formed(origin->job, header, ours) && length >= bytes + ETHERNET_BYTES)
		return 1;
	count(origin->index, COUNT_MALFORMED, 1);
	return 0;
}

/* Of a packet that has values. The verifier of 6.1 doesn't take bytes that aren't 0 for more. */
#define MIN_BYTES 4
#define MAX_BYTES (AGG_VALUES_MAX * 4)

/* Bytes of a packet's values, in one register, so that the verifier sees their bound. */
static __always_inline __u64 value_bytes(const struct scratch *s)
{
	__u64 bytes = s->packet.header.count * 4;

	asm volatile("" : "+r"(bytes));
	return bytes;
}

static __always_inline void set_ip_check(struct agg_frame *frame)
{
	const __u8 *byte = &frame->version_and_length;
	__u32 sum = 0, i;

	frame->ip_check = 0;
	for (i = 0; i < 20; i += 2)
		sum += byte[i] | byte[i + 1] << 8;
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	frame->ip_check = (__u16)~sum;
}

/* Headers of a frame to `peer` that carries `count` values. */
static __always_inline void address_frame(struct agg_frame *frame, const struct agg_peer *peer,
					  __u32 count)
{
	__u32 bytes = OVERHEAD_BYTES + count * 4;

	__builtin_memcpy(frame->to, peer->mac, 6);
	__builtin_memcpy(frame->from, peer->local_mac, 6);
	frame->protocol = bpf_htons(ETHERTYPE_IPV4);
	frame->version_and_length = VERSION_AND_LENGTH;
	frame->service = 0;
	frame->length = bpf_htons(bytes);
	frame->id = 0;
	frame->fragment = 0;
	frame->ttl = TIME_TO_LIVE;
	frame->ip_protocol = PROTOCOL_UDP;
	frame->source = peer->local_address;
	frame->destination = peer->address;
	frame->source_port = peer->local_port;
	frame->destination_port = peer->port;
	frame->udp_length = bpf_htons(bytes - 20);
	frame->udp_check = 0; /* our own check covers more */
	set_ip_check(frame);
}

/* Take a frame whose values are in; the answer is in `s`, addressed unless it goes to everyone. */
static __always_inline enum agg_action take(struct scratch *s, struct origin *origin)
{
	struct agg_header *header = &s->packet.header;
	const struct agg_secret *secret = &origin->job->secret;
	__u32 values = header->count, index;
	enum agg_action action;
	struct agg_slot *slot;

	if (agg_check(secret, &s->packet, values) != header->check) {
		count(origin->index, COUNT_CORRUPT, 1);
		return AGG_DROP;
	}
	index = (origin->job->first + header->slot) * 2 + (header->round & 1);
	slot = bpf_map_lookup_elem(&agg_slots, &index);
	if (!slot)
		return AGG_DROP;
	bpf_spin_lock(&slot->lock);
	action = agg_take(origin->job, &slot->entry, &s->packet);
	bpf_spin_unlock(&slot->lock);
	count(origin->index, COUNT_TAKEN, 1);
	count(origin->index, COUNT_BYTES, values * 4);
	if (action == AGG_STALE || action == AGG_REFUSE) {
		count(origin->index, action == AGG_STALE ? COUNT_STALE : COUNT_REFUSED, 1);
		return AGG_DROP;
	}
	if (action == AGG_DROP)
		return AGG_DROP;
	if (header->count > AGG_VALUES_MAX)
		return AGG_DROP; /* never; the verifier can't know */
	header->check = agg_check(secret, &s->packet, header->count);
	address_frame(&s->frame, origin->peer, header->count);
	count(origin->index, action == AGG_BROADCAST ? COUNT_RESULTS : COUNT_REPLIES, 1);
	return action;
}

#endif
