// SPDX-License-Identifier: BSD-2-Clause
/* Records each step of the module's flows, from outside: around what the kernel calls for an ACK. */
#define __TARGET_ARCH_x86 /* of the VMs */
#include <linux/ptrace.h>
#include "../../bpf/kernel_types.bpf.h"
#include "../../kmod/mltcp_uapi.h"
#include "recorded_steps.bpf.h"

/* Where struct mltcp_sock of kmod/mltcp.h has the flow. */
#define FLOW_OFFSET 16

char _license[] SEC("license") = "GPL";

/* The arguments of the call that is under way. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64[2]);
} arguments SEC(".maps");

/* The flow's state, where kmod/mltcp.h has it; NULL without one. */
static __always_inline void *flow_of(struct sock *sk)
{
	struct inet_connection_sock *icsk = (struct inet_connection_sock *)sk;
	__u64 private[2];

	if (bpf_core_read(private, sizeof(private), &icsk->icsk_ca_priv[11]) ||
	    private[1] != private[0] + (__u64)sk)
		return NULL;
	return (void *)private[0] + FLOW_OFFSET;
}

SEC("kprobe/mltcp_pkts_acked")
int BPF_KPROBE(acked_begins, struct sock *sk, struct ack_sample *sample)
{
	struct recorded_step *step = step_under_way();
	__u32 zero = 0;
	__u64 *kept = bpf_map_lookup_elem(&arguments, &zero);
	void *flow = flow_of(sk);

	if (!step || !kept)
		return 0;
	kept[0] = 0;
	if (!flow || BPF_CORE_READ(sk, __sk_common.skc_state) != BPF_TCP_ESTABLISHED)
		return 0;
	kept[0] = (__u64)sk;
	bpf_probe_read_kernel(&step->before, sizeof(step->before), flow);
	record_ack(step, (struct tcp_sock *)sk, sample);
	return 0;
}

SEC("kretprobe/mltcp_pkts_acked")
int BPF_KRETPROBE(acked_ends)
{
	struct recorded_step *step = step_under_way();
	__u32 zero = 0;
	__u64 *kept = bpf_map_lookup_elem(&arguments, &zero);
	void *flow;

	if (!step || !kept || !kept[0])
		return 0;
	flow = flow_of((struct sock *)kept[0]);
	if (!flow)
		return 0;
	bpf_probe_read_kernel(&step->after, sizeof(step->after), flow);
	bpf_ringbuf_output(&recorded_steps, step, sizeof(*step), 0);
	return 0;
}
