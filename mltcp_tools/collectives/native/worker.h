/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A worker of an aggregated job: cuts a tensor into chunks, sends them over the job's slots, and
 * puts the sums together. The protocol (protocol.c) touches no socket and no clock, so that tests
 * drive it through a network of their own; sockets.c runs it over UDP.
 *
 * Values are quantised as block floating point, a chunk with one exponent. With n workers and
 * k = 30 - ceil(log2 n), a value x of a chunk whose largest is below 2^e becomes
 * round(x * 2^(k - e)), and the sum s of these becomes s * 2^(e - k): each worker's value is off
 * by at most 2^(e - k - 1), so the sum of n by at most n * 2^(e - k - 1) before it is rounded to
 * the type of the tensor (SwitchML, NSDI'21, section 5.1, with powers of two as factors). Sums of
 * short floats travel as 16 bits where there are at most 16 workers: then k = 14 - ceil(log2 n), and
 * a packet has twice as many.
 */
#ifndef WORKER_H
#define WORKER_H

#include <stdbool.h>
#include <stdint.h>
#include "mltcp_aggregate.h"

/* The compiler makes loops for AVX2 as well; which are used is decided when the library is loaded. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define FOR_EACH_PROCESSOR __attribute__((target_clones("avx2", "default")))
#else
#define FOR_EACH_PROCESSOR
#endif

enum worker_kind { KIND_FLOAT32, KIND_FLOAT16, KIND_BFLOAT16, KIND_INT32, KINDS };
enum worker_how { HOW_SUM, HOW_AVERAGE };

enum worker_state {
	WORKER_IDLE, /* nothing asked for yet */
	WORKER_RUNNING,
	WORKER_DONE,
	WORKER_NONFINITE, /* done, but an infinity or NaN was among the values: `to` is of no use */
	WORKER_MISMATCH, /* ranks asked for different things */
	WORKER_SILENT, /* no answer from the aggregator for the time-out */
	WORKER_WAITING, /* answers, but other ranks sent nothing for the time-out */
	WORKER_CONTROL, /* the control connection has something to say, or ended */
	WORKER_BROKEN, /* an answer that can't be, with the right key; or a system call failed */
	WORKER_STOPPED, /* the caller said so */
	WORKER_TOO_LONG, /* the path takes no packets of this size any more */
};

/* What becomes of a chunk where zeros are left out. A chunk without CHUNK_SUMMED is zero at every
 * worker, and `to` is left as it is there. */
enum chunk_mark {
	CHUNK_SUMMED = 1, /* its sum is in `to` */
	CHUNK_NEGATIVE = 2, /* ours has nothing but zeros, a negative one among them */
	CHUNK_PRESENT = 4, /* ours has something else */
};

struct worker_config {
	struct agg_secret secret;
	uint64_t key;
	uint32_t job, generation; /* as admitted */
	uint32_t slots, values; /* values: of 32 bits in a packet, a multiple of 4 */
	uint32_t workers, rank;
	uint32_t min_rto_us;
};

/* What is wanted. from, to: `count` elements each; they may be the same. */
struct worker_request {
	const void *from;
	void *to;
	uint64_t count;
	uint32_t kind, how;
	/* NULL to send everything. Else chunks of zeros are left out, and this is a byte for each
	 * chunk of worker_chunk() elements, 0 at first (enum chunk_mark). */
	uint8_t *marks;
	/* To use, equal at all ranks; 0 for as many as go with `count`. */
	uint32_t slots;
};

struct worker_counters {
	uint64_t sent, sent_bytes, repeated,
		polls; /* packets; bytes with our header, without UDP's */
	uint64_t received, ignored, corrupt; /* packets */
	uint64_t losses, windows_cut;
	uint64_t missing; /* bitmap of the ranks that weren't there, as last heard */
	uint32_t cwnd, srtt_us;
	int32_t error; /* errno of the call that failed */
};

struct worker;

/* NULL where the sizes can't be, or without memory. */
struct worker *worker_open(const struct worker_config *config);
void worker_close(struct worker *worker);
/* How many elements a packet has. */
uint32_t worker_chunk(const struct worker *worker, uint32_t kind);
void worker_counters(const struct worker *worker, struct worker_counters *to);

/* The protocol, with times in nanoseconds of any steady clock. */
void worker_begin(struct worker *worker, const struct worker_request *request, uint64_t now);
uint32_t worker_send(struct worker *worker, uint64_t now, struct agg_packet *packet);
void worker_receive(struct worker *worker, uint64_t now, struct agg_packet *packet,
		    uint32_t length);
uint64_t worker_wakes_at(const struct worker *worker); /* UINT64_MAX: only when spoken to */
enum worker_state worker_state(const struct worker *worker);
enum worker_state worker_silence(const struct worker *worker, uint64_t now, uint64_t limit_ns);

/* A whole collective over `socket`, a connected UDP socket that doesn't block.
 *
 * control: a descriptor that is readable when the job is over, -1 for none. Ends when the
 * collective is done, or nothing of it got done for timeout_ns, or *stop is set. */
enum worker_state worker_reduce(struct worker *worker, int socket, int control,
				const struct worker_request *request, uint64_t timeout_ns,
				const volatile uint32_t *stop);

/* check.c */
void expand_secret(struct agg_secret *secret);
uint64_t check_of(const struct agg_secret *secret, const struct agg_packet *packet);

/* quantise.c */
int16_t exponent_of(const void *from, uint32_t kind, uint32_t count);
void quantise(const void *from, uint32_t kind, uint32_t count, int32_t power, int32_t *to);
void restore(const int32_t *from, uint32_t kind, uint32_t how, uint32_t count, int32_t power,
	     uint32_t workers, void *to);
/* The same for values of 16 bits. */
void quantise_short(const void *from, uint32_t kind, uint32_t count, int32_t power, int16_t *to);
void restore_short(const int16_t *from, uint32_t kind, uint32_t how, uint32_t count, int32_t power,
		   uint32_t workers, void *to);
uint32_t element_bytes(uint32_t kind);

/* chunks.c */
enum chunk_content { CONTENT_ZEROS, CONTENT_NEGATIVE_ZEROS, CONTENT_VALUES };
enum chunk_content content_of(const void *from, uint32_t kind, uint32_t count);
/* How many chunks of `values` elements aren't all zero, and in them blocks of `block` elements. marks:
 * NULL, or where sums are: elsewhere is nothing. */
uint64_t count_present(const void *from, uint32_t kind, uint64_t count, uint32_t values,
		       const uint8_t *marks, uint32_t block, uint64_t *blocks);
/* Copy the sums that are marked, and make negative zeros positive where there is none. */
void copy_summed(const void *from, uint32_t kind, uint64_t count, uint32_t values,
		 const uint8_t *marks, void *to);

#endif
