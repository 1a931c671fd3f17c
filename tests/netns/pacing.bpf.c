// SPDX-License-Identifier: BSD-2-Clause
/* Which TCP connections of this network namespace are paced: struct pacing of each. */
#include "../../bpf/kernel_types.bpf.h"

char _license[] SEC("license") = "GPL";

struct pacing {
	__u64 cookie;
	__u64 status; /* include/net/sock.h: enum sk_pacing */
};

SEC("iter/tcp")
int list_pacing(struct bpf_iter__tcp *ctx)
{
	struct sock_common *common = ctx->sk_common;
	struct tcp_sock *tp = common ? bpf_skc_to_tcp_sock(common) : NULL;
	struct pacing found;

	if (!tp)
		return 0;
	found.cookie = common->skc_cookie.counter;
	found.status = tp->inet_conn.icsk_inet.sk.sk_pacing_status;
	bpf_seq_write(ctx->meta->seq, &found, sizeof(found));
	return 0;
}
