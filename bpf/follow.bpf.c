// SPDX-License-Identifier: GPL-2.0-only
/*
 * Wakes user space when a TCP socket gets established.
 *
 * The tracepoint's arguments are a pointer and two numbers, and nothing is read through the
 * pointer. One wake-up at a time: as long as user space hasn't said that it looks (awake = 0), it
 * will see later sockets too, so there is nothing to add.
 */
#include "kernel_types.bpf.h"

#define TCP_ESTABLISHED 1
#define RING_BYTES 4096

char _license[] SEC("license") = "GPL";

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} mltcp_awake SEC(".maps");

/* A wake-up each, without content. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING_BYTES);
} mltcp_woken SEC(".maps");

SEC("raw_tp/inet_sock_set_state")
int wake(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 first = 0, told = 1;
	__u32 *awake;

	if ((int)ctx->args[2] != TCP_ESTABLISHED)
		return 0;
	awake = bpf_map_lookup_elem(&mltcp_awake, &first);
	if (!awake || *awake)
		return 0;
	*awake = 1;
	bpf_ringbuf_output(&mltcp_woken, &told, sizeof(told), 0);
	return 0;
}
