// SPDX-License-Identifier: BSD-2-Clause
/* `mltcp` of eBPF, each of whose steps is recorded. */
#include "../../bpf/mltcp.bpf.c"
#include "recorded_steps.bpf.h"

SEC("struct_ops")
void BPF_PROG(recorded_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct recorded_step *step = step_under_way();
	struct tcp_sock *tp = tcp_sk(sk);
	struct mltcp_flow *flow = bpf_sk_storage_get(&mltcp_flows, sk, 0, 0);

	if (!step || !flow || sk->__sk_common.skc_state != BPF_TCP_ESTABLISHED) {
		mltcp_bpf_acked(sk, sample);
		return;
	}
	bpf_probe_read_kernel(&step->before, sizeof(step->before), flow);
	mltcp_bpf_acked(sk, sample);
	record_ack(step, tp, sample);
	bpf_probe_read_kernel(&step->after, sizeof(step->after), flow);
	bpf_ringbuf_output(&recorded_steps, step, sizeof(*step), 0);
}

SEC(".struct_ops")
struct tcp_congestion_ops recorded = {
	.init = (void *)init,
	.release = (void *)release,
	MLTCP_TX_START,
	.pkts_acked = (void *)recorded_pkts_acked,
	MLTCP_WINDOW_OPS(),
	.flags = TCP_CONG_NON_RESTRICTED,
	.name = "recorded",
};
