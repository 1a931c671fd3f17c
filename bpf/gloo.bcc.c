// SPDX-License-Identifier: GPL-2.0-only
/*
 * Collectives of torch's Gloo, from beginning to end, with the bytes each sends.
 *
 * Compiled by bcc at run time. A thread of torch's pool begins a collective (execute), sends its
 * parts to its peers (Pair::send, whose arguments are all plain numbers), and finishes it. Only
 * entries of functions are probed: exceptions pass through Gloo, and a probe on a return would make
 * them fatal.
 */
#include "registers.bcc.h"

struct call {
	u64 start_ns;
	u64 end_ns;
	u64 bytes;
	u32 pid;
	u32 parts; /* sends to peers; 0 for a send outside of collectives */
};

/* A collective under way; by thread. */
BPF_TABLE("lru_hash", u64, struct call, works, 4096);

struct pair {
	u64 address;
	u64 pid;
};

/* Bytes sent to each peer: a pair is a connection. */
BPF_TABLE("lru_hash", struct pair, u64, sent, 16384);

#ifndef PAGE_SIZE /* bcc's unit: 1 MiB is whole pages of any size */
#define PAGE_SIZE 4096
#endif
BPF_RINGBUF_OUTPUT(calls, 256);
BPF_ARRAY(lost, u64, 1);

/* ProcessGroupGloo::AsyncWork::execute(work) */
int begin(struct registers *ctx)
{
	u64 id = bpf_get_current_pid_tgid();
	struct call work = {.start_ns = bpf_ktime_get_ns(), .pid = id >> 32};

	works.update(&id, &work);
	return 0;
}

/* gloo::transport::tcp::Pair::send(this, buffer, slot, offset, bytes) */
int pair_send(struct registers *ctx)
{
	u64 id = bpf_get_current_pid_tgid();
	struct pair pair = {.address = ARGUMENT_1(ctx), .pid = id >> 32};
	u64 bytes = ARGUMENT_5(ctx), none = 0;
	struct call *work = works.lookup(&id);
	u64 *all = sent.lookup_or_try_init(&pair, &none);

	if (all)
		lock_xadd(all, bytes);
	if (work) {
		work->bytes += bytes;
		work->parts++;
		return 0;
	}
	struct call alone = {
		.start_ns = bpf_ktime_get_ns(),
		.bytes = bytes,
		.pid = id >> 32,
	};
	alone.end_ns = alone.start_ns;
	if (calls.ringbuf_output(&alone, sizeof(alone), 0))
		lost.increment(0);
	return 0;
}

/* ProcessGroupGloo::AsyncWork::finishWorkGloo(this), and ...Error(this, exception) */
int end(struct registers *ctx)
{
	u64 id = bpf_get_current_pid_tgid();
	struct call *work = works.lookup(&id);

	if (!work)
		return 0;
	work->end_ns = bpf_ktime_get_ns();
	if (calls.ringbuf_output(work, sizeof(*work), 0))
		lost.increment(0);
	works.delete(&id);
	return 0;
}
