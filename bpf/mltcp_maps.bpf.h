/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Maps that all objects share; libbpf pins them by name below the loader's pin root.
 * What user space writes (tags, jobs) and what the programs write (flows, iterations, dropped)
 * are kept in separate maps: an update from user space replaces a whole value.
 */
#ifndef MLTCP_MAPS_BPF_H
#define MLTCP_MAPS_BPF_H

#include "kernel_types.bpf.h"
#include "../kmod/mltcp_uapi.h"

/* More jobs than a host has processes to run them is a mistake. */
#define MLTCP_JOBS_MAX 4096

/* How many words a host keeps, one for a path and one for each job there: 32 KiB. */
#define MLTCP_PATHS_BITS 12

/* Bytes of a build's name. */
#define MLTCP_BUILD_BYTES 32

/* About 10,000 iterations that nobody has read yet; a power of two of pages. */
#define MLTCP_RING_BYTES (1 << 20)

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, int);
	__type(value, struct mltcp_tag);
} mltcp_tags SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, int);
	__type(value, struct mltcp_flow);
} mltcp_flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MLTCP_JOBS_MAX);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct mltcp_job_key);
	__type(value, struct mltcp_job);
} mltcp_jobs SEC(".maps");

/* Namespaces whose traffic is counted; the one not seen for longest makes room. */
#define MLTCP_HOSTS 1024

/* What a host has received and sent over TCP, bytes; see traffic.bpf.c. */
struct mltcp_traffic {
	__u64 rx_bytes;
	__u64 tx_bytes;
};

/* By the cookie of its network namespace. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MLTCP_HOSTS);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u64);
	__type(value, struct mltcp_traffic);
} mltcp_hosts SEC(".maps");

/* What flows of a path share, see mltcp_delay_ask(), or those of a job there, see mltcp_job_ratio(). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << MLTCP_PATHS_BITS);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, __u64);
} mltcp_paths SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, MLTCP_RING_BYTES);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} mltcp_events SEC(".maps");

/* Element 0: 1 once unloading was forced. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, __u32);
} mltcp_off SEC(".maps");

/* Element 0: iterations not reported because the ring was full. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, __u64);
} mltcp_dropped SEC(".maps");

/* Element 0: results of skipped programs that were mended, see mltcp_bpf_mend_window(). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, __u64);
} mltcp_skipped SEC(".maps");

#endif
