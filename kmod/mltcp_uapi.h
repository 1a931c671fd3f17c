/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What kernel and user space agree on: constants, and the structs that cross between them.
 *
 * Plain C types only, and no include: whoever includes this file has __u8 ... __u64 defined.
 * mltcp_tools/kernel/native/uapi.py reads structs, enums and numbers from here; a unit test compares what
 * it makes of them with gcc, and the BPF backend refuses a map whose value size differs.
 */
#ifndef MLTCP_UAPI_H
#define MLTCP_UAPI_H

/* Ratios, gains and shares are fixed point with MLTCP_SHIFT fractional bits. */
#define MLTCP_SHIFT 16
#define MLTCP_ONE (1U << MLTCP_SHIFT)

/*
 * Whatever a job's parameters are, F is no larger: 8 (a published F is 2 at most, another 4.25). An F of
 * 100 would switch congestion control off.
 */
#define MLTCP_GAIN_MAX (8U << MLTCP_SHIFT)

/*
 * The parameters that nobody has to choose, fixed point. Python reads them from here; the descriptions
 * of the module's parameters say them once more. slope and intercept are the published ones (MLTCP,
 * HotNets 2024).
 */
#define MLTCP_DEFAULT_SLOPE (7 * MLTCP_ONE / 4)
#define MLTCP_DEFAULT_INTERCEPT (MLTCP_ONE / 4)
#define MLTCP_DEFAULT_YIELD_MIN (3 * (MLTCP_ONE / 5))
#define MLTCP_DEFAULT_YIELD_MAX (MLTCP_ONE)

/* Of a struct mltcp_params, in an initialiser. */
#define MLTCP_DEFAULTS                                                      \
	.slope = MLTCP_DEFAULT_SLOPE, .intercept = MLTCP_DEFAULT_INTERCEPT, \
	.yield_min = MLTCP_DEFAULT_YIELD_MIN, .yield_max = MLTCP_DEFAULT_YIELD_MAX

/* Most confidence in what was learned. */
#define MLTCP_CONFIDENCE_MAX 8

/* Largest burst_bytes and gap_ns (an hour): no sum of them overflows. */
#define MLTCP_TOTAL_MAX 0x7fffffffffffffffULL
#define MLTCP_GAP_MAX_NS 3600000000000ULL

/* The mechanisms: what the algorithm may change of its base. Without any, it is the base. */
#define MLTCP_SCALE_INCREASE (1U << 0) /* the window's increase, by F */
#define MLTCP_YIELD (1U << 2) /* shrink on queueing delay, the sooner the lower the ratio */
/*
 * Set by the host of the algorithm, never by user space: the host's administrator set the job. Its
 * flows act from their first iteration on.
 */
#define MLTCP_TRUSTED (1U << 3)
#define MLTCP_MECHANISMS_DEFAULT (1U << 31) /* the congestion control's own choice */

/* Parameters of a job, the same for each of its flows. */
struct mltcp_params {
	__u64 burst_bytes; /* bytes of one iteration of one flow; 0: the flow learns it */
	__u64 gap_ns; /* time with nothing unacknowledged that ends an iteration; 0: learned */
	__u32 slope; /* of F, fixed point */
	__u32 intercept; /* of F, fixed point */
	__u32 yield_min; /* queueing delay borne at ratio 0, share of a full queue's, fixed point */
	__u32 yield_max; /* the same at ratio 1 */
	__u32 mechanisms; /* MLTCP_SCALE_* | MLTCP_YIELD, or MLTCP_MECHANISMS_DEFAULT alone */
};

#define MLTCP_JOB_NAME_BYTES 64

/* A job as user space sets it, looked up by its id. */
struct mltcp_job {
	struct mltcp_params params;
	char name[MLTCP_JOB_NAME_BYTES]; /* for people, terminated by 0 */
};

/* Where the eBPF programs find a job: ids belong to the network namespace that set them. */
struct mltcp_job_key {
	__u64 home; /* cookie of that namespace (SO_NETNS_COOKIE), unique for ever */
	__u32 id;
	__u32 pad;
};

/* Which job a socket belongs to. Written by user space only. */
struct mltcp_tag {
	__u32 job; /* id of the job; 0: none */
	__u32 netns; /* inode of the job's network namespace, which hears of its iterations */
	__u64 home; /* cookie of that namespace */
};

/* How many gaps are kept to learn from. */
#define MLTCP_GAPS 12

/* A gap in which nothing was outstanding. */
struct mltcp_gap {
	__u32 kib; /* acknowledged in all when it came; wraps after 4 TiB */
	__u32 us; /* its length, microseconds; 0: there was none */
};

/* Flags of a flow. */
#define MLTCP_BIDIRECTIONAL 0x01 /* its connection receives much, too */
#define MLTCP_HOST_BIDIRECTIONAL 0x02 /* its host receives much, on whatever connections */
#define MLTCP_HOST_KNOWN 0x04 /* what its host had received and sent where the iteration starts */
#define MLTCP_ANY_BIDIRECTIONAL (MLTCP_BIDIRECTIONAL | MLTCP_HOST_BIDIRECTIONAL)

/* What a flow knows of the queue on its path, see mltcp_delay.h. Microseconds. */
struct mltcp_delay {
	__u32 queue_us; /* its delay now */
	__u32 least_us; /* the minimum since the flow last looked; MLTCP_NO_SAMPLE: none */
	__u32 full_us; /* its delay when full, from losses; 0: unknown */
	__u32 watched; /* 1: the flow may yield, so samples are taken */
};

/* What the latest loss changed of a flow, in case it proves spurious. */
struct mltcp_loss_snapshot {
	__u32 resume_ssthresh; /* as in struct mltcp_flow */
	__u32 full_us; /* as in struct mltcp_delay */
	__u32 valid; /* 1: there was one that may yet be undone */
};

/* What a host has received and sent in all, KiB, wraps; see mltcp_host_kib(). */
struct mltcp_host {
	__u32 rx_kib;
	__u32 tx_kib;
};

/*
 * State of one flow. Written by the congestion control only. What each ACK needs comes first: with
 * the 16 bytes that the module has before it that fills two cache lines, of which a flow that is its
 * base and doesn't watch the queue needs the first.
 */
struct mltcp_flow {
	/* where the flow is */
	__u64 acked_bytes; /* tcp_sock::bytes_acked at the latest ACK */
	__u64 next_bytes; /* acked_bytes at which to decide anew; 0: at the next ACK */
	__u64 last_ns; /* time of the latest ACK, CLOCK_MONOTONIC */
	__u64 next_ns; /* time at which to decide anew; the largest number: none */
	__u32 acks; /* since the flow was tagged */
	/* what follows from it, decided at every MLTCP_STEPS-th of the burst */
	__u32 gain; /* F, fixed point; MLTCP_ONE: the base's own increase */
	__u32 carry; /* fraction of an acknowledged segment not yet handed to the base */
	__u32 yield_us; /* queueing delay above which the flow yields, microseconds; 0: it doesn't */
	__u32 resume_ssthresh; /* slow-start threshold to have back later; 0: none */
	struct mltcp_delay delay;
	/* what follows isn't looked at by every ACK */
	__u64 send_ns; /* time at which sending last began with nothing outstanding */
	__u64 look_ns; /* time at which the flow last looked at the queue */
	__u64 start_bytes; /* acked_bytes where the iteration starts */
	__u64 start_ns; /* time of the iteration's first ACK */
	__u64 told_bytes; /* the job's burst_bytes when the iteration began, or smaller since; 0: learn */
	__u32 job; /* job the state belongs to, 0: none */
	__u32 iteration; /* from 1; 0 before the first ACK */
	__u32 ratio; /* share of burst_bytes acknowledged at the latest step, at most MLTCP_ONE */
	/* learned, unless the job says it */
	__u32 total_kib; /* an iteration's, KiB; 0: not learned */
	__u32 gap_us; /* usual length of the gaps between iterations, microseconds; 0: none seen */
	struct mltcp_gap gaps[MLTCP_GAPS]; /* the latest first, see mltcp_learn.h */
	__u8 confidence; /* in what was learned; 0: it isn't used */
	__u8 active; /* 1: the iteration is known, the algorithm acts; 0: the flow is its base */
	__u8 flags; /* MLTCP_BIDIRECTIONAL and those that follow it */
	__u8 pad;
	/* for reports, as of the latest step; exact where an iteration ends: retransmits */
	__u32 cwnd; /* segments */
	__u32 srtt_us; /* microseconds */
	__u32 retransmits; /* tcp_sock::total_retrans, segments */
	__u32 start_retransmits; /* the same where the iteration starts */
	__u32 losses; /* window reductions after loss or ECN since the flow was tagged */
	__u32 yields; /* shrinks on queueing delay since the flow was tagged */
	struct mltcp_host host; /* where the iteration starts, if MLTCP_HOST_KNOWN */
	struct mltcp_loss_snapshot loss_snapshot;
};

/* One finished iteration of one flow. */
struct mltcp_event {
	__u64 cookie; /* socket cookie */
	__u64 first_ack_ns; /* CLOCK_MONOTONIC */
	__u64 last_ack_ns;
	__u64 bytes; /* acknowledged in the iteration */
	__u32 job;
	__u32 iteration; /* from 1 */
	__u32 retransmits; /* segments, in the iteration */
	__u32 srtt_us; /* smoothed RTT at the last ACK, microseconds */
	__u32 cwnd; /* at the last ACK, segments */
	__u32 ratio; /* at the last ACK, fixed point */
	__u8 local_addr[16]; /* IPv6, or IPv4-mapped IPv6 */
	__u8 remote_addr[16];
	__u16 local_port; /* host byte order */
	__u16 remote_port; /* host byte order */
	__u32 netns; /* inode of the network namespace of the job, of the flow without one */
};

/* One flow as read back from the kernel. */
struct mltcp_flow_record {
	__u64 cookie;
	__u32 netns; /* inode number of the network namespace */
	__u32 tagged_job; /* job of the tag, 0: untagged */
	__u32 snd_cwnd; /* segments, now */
	__u32 snd_ssthresh; /* segments, now */
	__u8 local_addr[16]; /* IPv6, or IPv4-mapped IPv6 */
	__u8 remote_addr[16];
	__u16 local_port; /* host byte order */
	__u16 remote_port; /* host byte order */
	__u32 state; /* TCP state as in /proc/net/tcp */
	char ca_name[16]; /* congestion control in use */
	struct mltcp_flow flow;
};

/*
 * Generic netlink family MLTCP_GENL_NAME of the kernel module; mltcp.yaml has the same in the
 * kernel's netlink specification form. Numbers only ever get appended. What was sent and isn't
 * known is passed over by user space and refused by the module; the version goes up where something
 * takes another meaning.
 */
#define MLTCP_GENL_NAME "mltcp"
#define MLTCP_GENL_VERSION 3
#define MLTCP_GENL_GROUP "iterations" /* multicast: MLTCP_CMD_ITERATION of the namespace's jobs */

enum mltcp_cmd {
	MLTCP_CMD_UNSPEC,
	MLTCP_CMD_STATUS_GET, /* do: what the module is and has */
	MLTCP_CMD_JOB_SET, /* do: create the job, or replace its parameters */
	MLTCP_CMD_JOB_GET, /* dump: the jobs of the namespace */
	MLTCP_CMD_JOB_DEL, /* do */
	MLTCP_CMD_TAG, /* do: give the socket behind MLTCP_A_FD to the job MLTCP_A_JOB_ID */
	MLTCP_CMD_UNTAG, /* do: take the tag of the socket behind MLTCP_A_FD off */
	MLTCP_CMD_FLOW_GET, /* dump: the namespace's flows; for the initial one's administrator, all */
	MLTCP_CMD_ITERATION, /* notification: MLTCP_A_ITERATION */
	MLTCP_CMD_COUNT
};

enum mltcp_attr {
	MLTCP_A_UNSPEC,
	MLTCP_A_PAD,
	MLTCP_A_JOB_ID, /* u32, from 1 */
	MLTCP_A_JOB_NAME, /* string, at most MLTCP_JOB_NAME_BYTES - 1 */
	MLTCP_A_JOB_PARAMS, /* nested, enum mltcp_params_attr */
	MLTCP_A_FD, /* s32, descriptor of the calling process */
	MLTCP_A_FLOW, /* nested, enum mltcp_flow_attr */
	MLTCP_A_ITERATION, /* nested, enum mltcp_iteration_attr */
	MLTCP_A_NAMES, /* string, the registered congestion controls, separated by blanks */
	MLTCP_A_VERSION, /* string, version of the module */
	MLTCP_A_DROPPED, /* u64, iterations lost to listeners with NETLINK_BROADCAST_ERROR */
	MLTCP_A_COUNT
};

#define MLTCP_NESTED_PAD 1

/* Parameters of a job, see struct mltcp_params; one not given is that of flows without a job. */
enum mltcp_params_attr {
	MLTCP_P_UNSPEC,
	MLTCP_P_PAD,
	MLTCP_P_BURST_BYTES, /* u64 */
	MLTCP_P_GAP_NS, /* u64 */
	MLTCP_P_SLOPE, /* u32, as all that follow */
	MLTCP_P_INTERCEPT,
	MLTCP_P_YIELD_MIN,
	MLTCP_P_YIELD_MAX,
	MLTCP_P_MECHANISMS,
	MLTCP_P_COUNT
};

/* One flow now. Windows are segments. */
enum mltcp_flow_attr {
	MLTCP_F_UNSPEC,
	MLTCP_F_PAD,
	MLTCP_F_COOKIE, /* u64, of the socket */
	MLTCP_F_LOCAL_ADDR, /* 16 bytes: IPv6, or IPv4-mapped IPv6 */
	MLTCP_F_REMOTE_ADDR, /* likewise */
	MLTCP_F_LOCAL_PORT, /* u16, host byte order */
	MLTCP_F_REMOTE_PORT, /* u16, host byte order */
	MLTCP_F_NETNS, /* u32, inode of the network namespace */
	MLTCP_F_JOB, /* u32, of the tag; 0: untagged */
	MLTCP_F_CWND, /* u32 */
	MLTCP_F_SSTHRESH, /* u32 */
	MLTCP_F_STATE, /* u8, as in /proc/net/tcp */
	MLTCP_F_CA_NAME, /* string */
	MLTCP_F_ITERATION, /* u32, from 1; 0 before the first ACK */
	MLTCP_F_SENT_BYTES, /* u64, acknowledged in the present iteration */
	MLTCP_F_RATIO, /* u32, fixed point */
	MLTCP_F_LEARNED_BYTES, /* u64, of an iteration; 0: nothing was learned */
	MLTCP_F_LEARNED_GAP_US, /* u32, usual length of the gaps that count; 0: none seen */
	MLTCP_F_CONFIDENCE, /* u32, in what was learned, fixed point, at most 1 */
	MLTCP_F_GAIN, /* u32, F, fixed point */
	MLTCP_F_ACTIVE, /* u8, 0: the flow is its base */
	MLTCP_F_SRTT_US, /* u32 */
	MLTCP_F_RETRANSMITS, /* u32, segments, in the present iteration */
	MLTCP_F_QUEUE_US, /* u32, queueing delay, by RTTs */
	MLTCP_F_FULL_QUEUE_US, /* u32, of the path's full queue; 0: unknown */
	MLTCP_F_ACKS, /* u32, since the flow was tagged, as the two that follow */
	MLTCP_F_LOSSES, /* u32, window reductions after loss or ECN */
	MLTCP_F_YIELDS, /* u32, shrinks on queueing delay */
	MLTCP_F_BIDIRECTIONAL, /* u8, 1: much comes towards the flow or its host; it doesn't yield then */
	MLTCP_F_COUNT
};

/* One finished iteration of one flow, see struct mltcp_event. The first seven as those of a flow. */
enum mltcp_iteration_attr {
	MLTCP_I_UNSPEC,
	MLTCP_I_PAD,
	MLTCP_I_COOKIE,
	MLTCP_I_LOCAL_ADDR,
	MLTCP_I_REMOTE_ADDR,
	MLTCP_I_LOCAL_PORT,
	MLTCP_I_REMOTE_PORT,
	MLTCP_I_FIRST_ACK_NS, /* u64, CLOCK_MONOTONIC */
	MLTCP_I_LAST_ACK_NS, /* u64 */
	MLTCP_I_BYTES, /* u64, acknowledged */
	MLTCP_I_JOB, /* u32; 0: none */
	MLTCP_I_ITERATION, /* u32, from 1 */
	MLTCP_I_RETRANSMITS, /* u32, segments */
	MLTCP_I_SRTT_US, /* u32 */
	MLTCP_I_CWND, /* u32, segments */
	MLTCP_I_RATIO, /* u32, fixed point */
	MLTCP_I_COUNT
};

#endif
