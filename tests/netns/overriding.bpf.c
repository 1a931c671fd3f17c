// SPDX-License-Identifier: BSD-2-Clause
/* A sock_ops program that gives each connection another congestion control at every RTT. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("sockops")
int another_tuner(struct bpf_sock_ops *ctx)
{
	char name[] = "reno";

	if (ctx->op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB)
		bpf_sock_ops_cb_flags_set(ctx, BPF_SOCK_OPS_RTT_CB_FLAG);
	if (ctx->op == BPF_SOCK_OPS_RTT_CB)
		bpf_setsockopt(ctx, 6 /* SOL_TCP */, 13 /* TCP_CONGESTION */, name, sizeof(name));
	return 1;
}

char _license[] SEC("license") = "GPL";
