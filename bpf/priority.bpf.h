/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Priorities of jobs: what user space and the programs in priority.bpf.c agree on.
 * mltcp_tools/live/priorities/maps.py declares the same structs to Python.
 */
#ifndef MLTCP_PRIORITY_BPF_H
#define MLTCP_PRIORITY_BPF_H

#include <linux/types.h>

/* The controller writes the time this often; older than the second, it is dead. Nanoseconds. */
#define MLTCP_PRIORITY_ALIVE_NS 500000000ULL

/*
 * Level l is DSCP (l << 2) | 3, of the code points for local use (RFC 2474, pool 2), in IPv4's type
 * of service and IPv6's traffic class. Whatever has
 * none of these is of the last level.
 */
#define MLTCP_PRIORITY_LEVELS 8
#define MLTCP_PRIORITY_DSCP(level) ((level) << 2 | 3)

/* What is known of a job's bursts. Written by user space only. */
struct mltcp_priority_job {
	__u64 bytes; /* of a burst; 0: as many as in the one before */
	__u64 gap_ns; /* without a packet, after which the next one begins a burst */
	__u64 ports; /* bottlenecks that it crosses, a bit for each */
};

/* Where a job is. Written by the program only. */
struct mltcp_priority_burst {
	__u64 sent; /* bytes of payload since the burst began, those sent again too */
	__u64 began_ns; /* CLOCK_MONOTONIC, as all times */
	__u64 last_ns; /* of the latest packet */
	__u64 before; /* bytes of the burst before; 0: there was none */
	__u32 number; /* of the burst, from 1 */
	__u32 active; /* 1: it goes on */
};

/* A burst begins or ends. */
struct mltcp_priority_event {
	__u64 at_ns;
	__u32 job;
	__u32 begins; /* 1; 0: it ends */
};

#endif
