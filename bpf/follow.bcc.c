// SPDX-License-Identifier: GPL-2.0-only
/*
 * Wakes user space when a TCP socket gets established, compiled at run time by bcc.
 *
 * The tracepoint's arguments are a pointer and two numbers, and nothing is read through the
 * pointer, so this takes no kernel header. One wake-up at a time: as long as user space hasn't
 * said that it looks (awake = 0), it will see later sockets too, so there is nothing to add.
 */
#define ESTABLISHED 1

BPF_ARRAY(awake, u32, 1);
BPF_PERF_OUTPUT(established);

RAW_TRACEPOINT_PROBE(inet_sock_set_state)
{
	u32 first = 0, told = 1;
	u64 now;
	u32 *is_awake;

	if ((int)ctx->args[2] != ESTABLISHED)
		return 0;
	is_awake = awake.lookup(&first);
	if (!is_awake || *is_awake)
		return 0;
	awake.update(&first, &told);
	now = bpf_ktime_get_ns();
	established.perf_submit(ctx, &now, sizeof(now));
	return 0;
}
