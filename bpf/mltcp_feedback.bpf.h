/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the parts of the network's feedback agree on: the option that packets carry, and the maps.
 *
 * Some of a sender's packets have the option, and ask: a hop writes how it is (mltcp_hop_pass())
 * into `stamp` where that is more than what is there. The receiver returns it once, as `echo`, with
 * its next packet. The option's kind is the one for experiments (RFC 4727), told apart by two bytes
 * (RFC 6994). Both numbers are in network byte order.
 */
#ifndef MLTCP_FEEDBACK_BPF_H
#define MLTCP_FEEDBACK_BPF_H

#include "mltcp_maps.bpf.h"

/* Flows of a job run on several processors. */
#define MLTCP_ADD(to, count) __sync_fetch_and_add(to, count)

#include "../kmod/mltcp_rate.h"

#define MLTCP_OPTION_KIND 254
#define MLTCP_OPTION_ID_HIGH 0x4d /* "MF" */
#define MLTCP_OPTION_ID_LOW 0x46
#define MLTCP_OPTION_BYTES 8

struct mltcp_option {
	__u8 kind, length, id_high, id_low;
	__u16 stamp, echo; /* network byte order */
};

/* Paths, and jobs on them, that a host's flows share what they know of; by their keys' low bits. */
#define MLTCP_RATE_SLOTS 4096

/* What a sender keeps; its congestion control makes it. */
struct mltcp_rate_flow {
	struct mltcp_rate rate;
	/* Where the shared slot is another's, and the job of a flow without one. */
	struct mltcp_rate_path path;
	struct mltcp_rate_job sent;
	__u64 asked_ns; /* when the latest packet with the option was sent */
	__u32 path_key, job_key; /* 0: not known yet */
	__u32 job; /* that job_key is of */
	__u32 paces; /* 1: the connection is paced because we want it, nobody did before */
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, int);
	__type(value, struct mltcp_rate_flow);
} mltcp_rates SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MLTCP_RATE_SLOTS);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct mltcp_rate_path);
} mltcp_rate_paths SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MLTCP_RATE_SLOTS);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct mltcp_rate_job);
} mltcp_rate_jobs SEC(".maps");

/* Element 0: the law's parameters on this host; all zero: the defaults. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct mltcp_rate_params);
} mltcp_feedback SEC(".maps");

/* Counts since loading, indexed by enum mltcp_feedback_count. */
enum mltcp_feedback_count { MLTCP_FEEDBACK_HEARD, MLTCP_FEEDBACK_LOST, MLTCP_FEEDBACK_COUNTS };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MLTCP_FEEDBACK_COUNTS);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, __u64);
} mltcp_feedback_counts SEC(".maps");

static __always_inline void mltcp_feedback_count(__u32 what)
{
	__u64 *count = bpf_map_lookup_elem(&mltcp_feedback_counts, &what);

	if (count)
		__sync_fetch_and_add(count, 1);
}

/* What is known of the flow's path: by the host's flows where that can be shared. */
static __always_inline struct mltcp_rate_path *mltcp_feedback_path(struct mltcp_rate_flow *flow,
								   __u64 now)
{
	__u32 slot = flow->path_key & (MLTCP_RATE_SLOTS - 1);
	struct mltcp_rate_path *shared = bpf_map_lookup_elem(&mltcp_rate_paths, &slot);

	if (shared && flow->path_key && mltcp_rate_path_is(shared, flow->path_key, now))
		return shared;
	return &flow->path;
}

/* A sender heard what hops say. */
static __always_inline void mltcp_feedback_hear(struct mltcp_rate_flow *flow, __u32 word,
						__u32 min_rtt_us)
{
	__u64 now = bpf_ktime_get_ns();

	mltcp_rate_hear(mltcp_feedback_path(flow, now), now, word, min_rtt_us);
	mltcp_feedback_count(MLTCP_FEEDBACK_HEARD);
}

#endif
