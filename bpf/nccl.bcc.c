// SPDX-License-Identifier: GPL-2.0-only
/*
 * Calls of NCCL's exported functions, with the arguments that decide how much is sent.
 *
 * Compiled by bcc at run time. Arguments are in registers as the C calling convention of the
 * architecture says (nccl.h has the prototypes); on x86-64 those beyond the sixth are on the stack.
 */
#include "registers.bcc.h"

#ifdef __aarch64__
/* The 128 bytes of a ncclUniqueId are passed as a pointer, which takes an argument register. */
#define INIT_RANK(ctx) ((ctx)->x[3])
#else
/* Here they are on the stack, and take none. */
#define INIT_RANK(ctx) ARGUMENT_3(ctx)
#endif

/* Index into KINDS of mltcp_tools/live/sources/nccl.py. */
enum kind {
	ALL_REDUCE,
	REDUCE_SCATTER,
	ALL_GATHER,
	BROADCAST,
	REDUCE,
	ALL_TO_ALL,
	GATHER,
	SCATTER,
	SEND,
	RECV,
	GROUP_START,
	GROUP_END,
	COMMUNICATOR,
};

struct call {
	u64 time_ns;
	u64 communicator;
	u64 count; /* elements; of COMMUNICATOR the number of its ranks */
	u32 pid;
	u32 thread;
	u32 kind;
	u32 datatype;
	s32 rank; /* root or peer; of COMMUNICATOR the own rank */
};

#ifndef PAGE_SIZE /* bcc's unit: 1 MiB is whole pages of any size */
#define PAGE_SIZE 4096
#endif
BPF_RINGBUF_OUTPUT(calls, 256);
BPF_ARRAY(lost, u64, 1);

/*
 * A communicator in the making, by thread. Its handle is there when the function has returned, and
 * is read at the thread's next call: on some kernels a probe on the return would make the process
 * do a system call, for which a seccomp filter may end it.
 */
struct making {
	u64 handles; /* address of the first handle */
	u32 ranks;
	s32 rank; /* of this process, -1: all ranks are this process's, one handle each */
};

BPF_TABLE("lru_hash", u64, struct making, makings, 1024);

#define MAX_DEVICES 16

static void emit(u64 id, u32 kind, u64 communicator, u64 count, u32 datatype, s32 rank)
{
	struct call call = {
		.time_ns = bpf_ktime_get_ns(),
		.communicator = communicator,
		.count = count,
		.pid = id >> 32,
		.thread = id,
		.kind = kind,
		.datatype = datatype,
		.rank = rank,
	};

	if (calls.ringbuf_output(&call, sizeof(call), 0))
		lost.increment(0);
}

/* Report what the thread's last call has made. */
static void made(u64 id)
{
	struct making *making = makings.lookup(&id);
	u64 handle;

	if (!making)
		return;
	for (u32 i = 0; i < MAX_DEVICES; i++) {
		if (i && (making->rank >= 0 || i >= making->ranks))
			break;
		if (bpf_probe_read_user(&handle, sizeof(handle), (void *)(making->handles + 8 * i)))
			break;
		emit(id, COMMUNICATOR, handle, making->ranks, 0,
		     making->rank < 0 ? i : making->rank);
	}
	makings.delete(&id);
}

static void make(u64 handles, u32 ranks, s32 rank)
{
	u64 id = bpf_get_current_pid_tgid();
	struct making making = {.handles = handles, .ranks = ranks, .rank = rank};

	made(id);
	makings.update(&id, &making);
}

static void submit(u32 kind, u64 communicator, u64 count, u32 datatype, s32 rank)
{
	u64 id = bpf_get_current_pid_tgid();

	made(id);
	emit(id, kind, communicator, count, datatype, rank);
}

static u64 seventh(struct registers *ctx)
{
#ifdef __aarch64__
	return ctx->x[6];
#else
	u64 value = 0;

	/* Above the return address. */
	bpf_probe_read_user(&value, sizeof(value), (void *)(ctx->sp + 8));
	return value;
#endif
}

/* ncclAllReduce(send, receive, count, datatype, operation, communicator, stream) */
int all_reduce(struct registers *ctx)
{
	submit(ALL_REDUCE, ARGUMENT_6(ctx), ARGUMENT_3(ctx), ARGUMENT_4(ctx), 0);
	return 0;
}

/* ncclReduceScatter(send, receive, count, datatype, operation, communicator, stream) */
int reduce_scatter(struct registers *ctx)
{
	submit(REDUCE_SCATTER, ARGUMENT_6(ctx), ARGUMENT_3(ctx), ARGUMENT_4(ctx), 0);
	return 0;
}

/* ncclAllGather(send, receive, count, datatype, communicator, stream) */
int all_gather(struct registers *ctx)
{
	submit(ALL_GATHER, ARGUMENT_5(ctx), ARGUMENT_3(ctx), ARGUMENT_4(ctx), 0);
	return 0;
}

/* ncclBroadcast(send, receive, count, datatype, root, communicator, stream) */
int broadcast(struct registers *ctx)
{
	submit(BROADCAST, ARGUMENT_6(ctx), ARGUMENT_3(ctx), ARGUMENT_4(ctx), ARGUMENT_5(ctx));
	return 0;
}

/* ncclReduce(send, receive, count, datatype, operation, root, communicator, stream) */
int reduce(struct registers *ctx)
{
	submit(REDUCE, seventh(ctx), ARGUMENT_3(ctx), ARGUMENT_4(ctx), ARGUMENT_6(ctx));
	return 0;
}

/* ncclAlltoAll(send, receive, count, datatype, communicator, stream), since NCCL 2.28 */
int all_to_all(struct registers *ctx)
{
	submit(ALL_TO_ALL, ARGUMENT_5(ctx), ARGUMENT_3(ctx), ARGUMENT_4(ctx), 0);
	return 0;
}

/* ncclGather(send, receive, count, datatype, root, communicator, stream), since NCCL 2.28 */
int gather(struct registers *ctx)
{
	submit(GATHER, ARGUMENT_6(ctx), ARGUMENT_3(ctx), ARGUMENT_4(ctx), ARGUMENT_5(ctx));
	return 0;
}

/* ncclScatter(send, receive, count, datatype, root, communicator, stream), since NCCL 2.28 */
int scatter(struct registers *ctx)
{
	submit(SCATTER, ARGUMENT_6(ctx), ARGUMENT_3(ctx), ARGUMENT_4(ctx), ARGUMENT_5(ctx));
	return 0;
}

/* ncclSend(buffer, count, datatype, peer, communicator, stream) */
int send(struct registers *ctx)
{
	submit(SEND, ARGUMENT_5(ctx), ARGUMENT_2(ctx), ARGUMENT_3(ctx), ARGUMENT_4(ctx));
	return 0;
}

/* ncclRecv(buffer, count, datatype, peer, communicator, stream) */
int recv(struct registers *ctx)
{
	submit(RECV, ARGUMENT_5(ctx), ARGUMENT_2(ctx), ARGUMENT_3(ctx), ARGUMENT_4(ctx));
	return 0;
}

int group_start(struct registers *ctx)
{
	submit(GROUP_START, 0, 0, 0, 0);
	return 0;
}

int group_end(struct registers *ctx)
{
	submit(GROUP_END, 0, 0, 0, 0);
	return 0;
}

/* ncclCommInitRank(communicator, ranks, id, rank), and ...Config with one more argument */
int init_rank(struct registers *ctx)
{
	make(ARGUMENT_1(ctx), ARGUMENT_2(ctx), INIT_RANK(ctx));
	return 0;
}

/* ncclCommInitRankScalable(communicator, ranks, rank, number of ids, ids, config) */
int init_rank_scalable(struct registers *ctx)
{
	make(ARGUMENT_1(ctx), ARGUMENT_2(ctx), ARGUMENT_3(ctx));
	return 0;
}

/* ncclCommInitAll(communicators, devices, list of devices) */
int init_all(struct registers *ctx)
{
	make(ARGUMENT_1(ctx), ARGUMENT_2(ctx), -1);
	return 0;
}
