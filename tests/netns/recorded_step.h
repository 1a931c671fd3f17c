/* SPDX-License-Identifier: BSD-2-Clause */
/* What an ACK said and what it made of a flow, recorded in the kernel; support/recorded_steps.py. */
#ifndef RECORDED_STEP_H
#define RECORDED_STEP_H

struct recorded_step {
	__u64 now; /* CLOCK_MONOTONIC */
	__u64 acked_bytes; /* in all, with this ACK */
	__u64 received_bytes; /* likewise */
	__s32 rtt_us; /* the sample, microseconds */
	__u32 min_us; /* the minimum RTT, microseconds */
	__u32 cwnd; /* segments */
	__u32 srtt_us; /* microseconds */
	__u32 retransmits; /* segments, in all */
	__u32 pad;
	struct mltcp_flow before, after;
};

#endif
