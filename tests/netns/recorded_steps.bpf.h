/* SPDX-License-Identifier: BSD-2-Clause */
/* Records into a ring that user space reads; the includer says where a flow's state is. */
#include "recorded_step.h"

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 24);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} recorded_steps SEC(".maps");

/* The step under way on this CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct recorded_step);
} under_way SEC(".maps");

static __always_inline struct recorded_step *step_under_way(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&under_way, &zero);
}

/* What the ACK says; the state before and after it are the caller's. */
static __always_inline void record_ack(struct recorded_step *step, struct tcp_sock *tp,
				       const struct ack_sample *sample)
{
	step->now = BPF_CORE_READ(tp, tcp_clock_cache);
	step->acked_bytes = BPF_CORE_READ(tp, bytes_acked);
	step->received_bytes = BPF_CORE_READ(tp, bytes_received);
	step->rtt_us = BPF_CORE_READ(sample, rtt_us);
	step->min_us = BPF_CORE_READ(tp, rtt_min.s[0].v);
	step->cwnd = BPF_CORE_READ(tp, snd_cwnd);
	step->srtt_us = BPF_CORE_READ(tp, srtt_us) >> 3;
	step->retransmits = BPF_CORE_READ(tp, total_retrans);
}
