// SPDX-License-Identifier: GPL-2.0-only
/*
 * Calls of NCCL's exported functions, with the arguments that decide how much is sent.
 *
 * Compiled by bcc at run time. Arguments are in registers as the C calling convention of the
 * architecture says (nccl.h has the prototypes); what is beyond the sixth is on the stack on x86-64.
 */
#include <uapi/linux/ptrace.h>

#ifdef __aarch64__
/* The 128 bytes of a ncclUniqueId are passed as a pointer, and use up an argument register. */
#define INIT_RANK(ctx) ((ctx)->regs[3])
#else
/* ... and on the stack here, where they don't. */
#define INIT_RANK(ctx) PT_REGS_PARM3(ctx)
#endif

/* Index into KINDS of mltcp_tools/attach/nccl.py. */
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

BPF_RINGBUF_OUTPUT(calls, 64);
BPF_ARRAY(lost, u64, 1);

static void submit(u32 kind, u64 communicator, u64 count, u32 datatype, s32 rank)
{
	u64 id = bpf_get_current_pid_tgid();
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

static u64 seventh(struct pt_regs *ctx)
{
#ifdef __aarch64__
	return ctx->regs[6];
#else
	u64 value = 0;

	/* Above the return address. */
	bpf_probe_read_user(&value, sizeof(value), (void *)(PT_REGS_SP(ctx) + 8));
	return value;
#endif
}

/* ncclAllReduce(send, receive, count, datatype, operation, communicator, stream) */
int all_reduce(struct pt_regs *ctx)
{
	submit(ALL_REDUCE, PT_REGS_PARM6(ctx), PT_REGS_PARM3(ctx), PT_REGS_PARM4(ctx), 0);
	return 0;
}

/* ncclReduceScatter(send, receive, count, datatype, operation, communicator, stream) */
int reduce_scatter(struct pt_regs *ctx)
{
	submit(REDUCE_SCATTER, PT_REGS_PARM6(ctx), PT_REGS_PARM3(ctx), PT_REGS_PARM4(ctx), 0);
	return 0;
}

/* ncclAllGather(send, receive, count, datatype, communicator, stream) */
int all_gather(struct pt_regs *ctx)
{
	submit(ALL_GATHER, PT_REGS_PARM5(ctx), PT_REGS_PARM3(ctx), PT_REGS_PARM4(ctx), 0);
	return 0;
}

/* ncclBroadcast(send, receive, count, datatype, root, communicator, stream) */
int broadcast(struct pt_regs *ctx)
{
	submit(BROADCAST, PT_REGS_PARM6(ctx), PT_REGS_PARM3(ctx), PT_REGS_PARM4(ctx),
	       PT_REGS_PARM5(ctx));
	return 0;
}

/* ncclReduce(send, receive, count, datatype, operation, root, communicator, stream) */
int reduce(struct pt_regs *ctx)
{
	submit(REDUCE, seventh(ctx), PT_REGS_PARM3(ctx), PT_REGS_PARM4(ctx), PT_REGS_PARM6(ctx));
	return 0;
}

/* ncclAlltoAll(send, receive, count, datatype, communicator, stream), since NCCL 2.28 */
int all_to_all(struct pt_regs *ctx)
{
	submit(ALL_TO_ALL, PT_REGS_PARM5(ctx), PT_REGS_PARM3(ctx), PT_REGS_PARM4(ctx), 0);
	return 0;
}

/* ncclGather(send, receive, count, datatype, root, communicator, stream), since NCCL 2.28 */
int gather(struct pt_regs *ctx)
{
	submit(GATHER, PT_REGS_PARM6(ctx), PT_REGS_PARM3(ctx), PT_REGS_PARM4(ctx),
	       PT_REGS_PARM5(ctx));
	return 0;
}

/* ncclScatter(send, receive, count, datatype, root, communicator, stream), since NCCL 2.28 */
int scatter(struct pt_regs *ctx)
{
	submit(SCATTER, PT_REGS_PARM6(ctx), PT_REGS_PARM3(ctx), PT_REGS_PARM4(ctx),
	       PT_REGS_PARM5(ctx));
	return 0;
}

/* ncclSend(buffer, count, datatype, peer, communicator, stream) */
int send(struct pt_regs *ctx)
{
	submit(SEND, PT_REGS_PARM5(ctx), PT_REGS_PARM2(ctx), PT_REGS_PARM3(ctx),
	       PT_REGS_PARM4(ctx));
	return 0;
}

/* ncclRecv(buffer, count, datatype, peer, communicator, stream) */
int recv(struct pt_regs *ctx)
{
	submit(RECV, PT_REGS_PARM5(ctx), PT_REGS_PARM2(ctx), PT_REGS_PARM3(ctx),
	       PT_REGS_PARM4(ctx));
	return 0;
}

int group_start(struct pt_regs *ctx)
{
	submit(GROUP_START, 0, 0, 0, 0);
	return 0;
}

int group_end(struct pt_regs *ctx)
{
	submit(GROUP_END, 0, 0, 0, 0);
	return 0;
}

/* A communicator in the making: its handle is known when the function returns. */
struct making {
	u64 handles; /* address of the first handle */
	u32 ranks;
	s32 rank; /* of this process, -1: all ranks are this process's, one handle each */
};

BPF_TABLE("lru_hash", u64, struct making, makings, 1024);

static void make(u64 handles, u32 ranks, s32 rank)
{
	u64 id = bpf_get_current_pid_tgid();
	struct making making = {.handles = handles, .ranks = ranks, .rank = rank};

	makings.update(&id, &making);
}

/* ncclCommInitRank(communicator, ranks, id, rank), and ...Config with one more argument */
int init_rank(struct pt_regs *ctx)
{
	make(PT_REGS_PARM1(ctx), PT_REGS_PARM2(ctx), INIT_RANK(ctx));
	return 0;
}

/* ncclCommInitRankScalable(communicator, ranks, rank, number of ids, ids, config) */
int init_rank_scalable(struct pt_regs *ctx)
{
	make(PT_REGS_PARM1(ctx), PT_REGS_PARM2(ctx), PT_REGS_PARM3(ctx));
	return 0;
}

/* ncclCommInitAll(communicators, devices, list of devices) */
int init_all(struct pt_regs *ctx)
{
	make(PT_REGS_PARM1(ctx), PT_REGS_PARM2(ctx), -1);
	return 0;
}

#define MAX_DEVICES 16

int made(struct pt_regs *ctx)
{
	u64 id = bpf_get_current_pid_tgid();
	struct making *making = makings.lookup(&id);
	u64 handle;

	if (!making)
		return 0;
#pragma unroll
	for (u32 i = 0; i < MAX_DEVICES; i++) {
		if (i && (making->rank >= 0 || i >= making->ranks))
			break;
		if (bpf_probe_read_user(&handle, sizeof(handle), (void *)(making->handles + 8 * i)))
			break;
		submit(COMMUNICATOR, handle, making->ranks, 0, making->rank < 0 ? i : making->rank);
	}
	makings.delete(&id);
	return 0;
}
