/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the parts of the network's feedback agree on: the option that packets carry, and the maps.
 *
 * Every packet of a connection has the option: a hop writes how it is (mltcp_hop_pass()) into
 * `stamp` where that is more than what is there, and the receiver returns the latest stamp as
 * `echo`. The option's kind is the one for experiments (RFC 4727), told apart by two bytes (RFC
 * 6994). Both numbers are in network byte order; 0 is none.
 */
#ifndef MLTCP_FEEDBACK_BPF_H
#define MLTCP_FEEDBACK_BPF_H

#include "mltcp_maps.bpf.h"
#include "../kmod/mltcp_rate.h"

#define MLTCP_OPTION_KIND 254
#define MLTCP_OPTION_ID_HIGH 0x4d /* "MF" */
#define MLTCP_OPTION_ID_LOW 0x46
#define MLTCP_OPTION_BYTES 8

struct mltcp_option {
	__u8 kind, length, id_high, id_low;
	__u16 stamp, echo; /* network byte order */
};

/* What a sender keeps; its congestion control makes it. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, int);
	__type(value, struct mltcp_rate);
} mltcp_rates SEC(".maps");

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

/* A sender heard what hops say. */
static __always_inline void mltcp_feedback_hear(struct mltcp_rate *rate, __u32 value, __u32 srtt_us)
{
	mltcp_rate_hear(rate, bpf_ktime_get_ns(), value, srtt_us);
	mltcp_feedback_count(MLTCP_FEEDBACK_HEARD);
}

#endif
