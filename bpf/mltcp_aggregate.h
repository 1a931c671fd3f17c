/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Sums in the network: the packet, and what an aggregator does with one. The BPF programs, the
 * workers and the tests compile this header; it includes no kernel or libc header but types.
 *
 * A job of n workers owns a range of slots, each with two versions. In round r of a slot every
 * worker sends one packet; version r % 2 of the slot adds them up and the sum goes to all. A worker
 * starts round r + 1 when it has the sum of round r, so a packet of round r + 2 proves that every
 * worker has the sum of round r, and its version may be taken anew. Hosts repeat what is lost; a
 * repeated packet is answered, never added again (SwitchML, NSDI'21, section 4; rounds are
 * numbered here instead of one bit, so that a late packet is known as such).
 *
 * Each packet also names the chunk and the exponent that its worker has next for the slot; the
 * answer has the smallest chunk named, and the largest exponent named for that chunk. So all
 * workers quantise the next chunk alike, and skip chunks that are zero everywhere (OmniReduce,
 * SIGCOMM'21, section 3). A worker that has nothing in a chunk sends a packet without values.
 */
#ifndef MLTCP_AGGREGATE_H
#define MLTCP_AGGREGATE_H

#include <linux/types.h>

#define AGG_MAGIC 0x31474c4d /* "MLG1" */
#define AGG_VALUES_MAX 1024 /* int32 in a packet */
#define AGG_WORKERS_MAX 64 /* of a job */
#define AGG_JOBS_MAX 64
#define AGG_END 0xffffffffu /* no chunk */
#define AGG_EXPONENT_NONE (-32768) /* nothing but zeros, or no floating point */
#define AGG_EXPONENT_NONFINITE 32767 /* an infinity or a NaN is among the values */

enum agg_type {
	AGG_DATA = 1, /* worker: what it has for this round */
	AGG_POLL = 2, /* worker: where is the answer of this round? */
	AGG_RESULT = 3, /* aggregator, to all: the sum */
	AGG_AGAIN = 4, /* aggregator, to one: the sum, once more */
	AGG_HELD = 5, /* aggregator: yours is in, others' are not; chunk, next: agg_missing() */
	AGG_MISSING = 6, /* aggregator: yours is not in */
	AGG_MISMATCH = 7, /* aggregator: another worker sent something else for this round */
};

enum agg_flag {
	AGG_SHORT = 2, /* two values of 16 bits in each word, the first in its lower half */
};

/* All fields little-endian. */
struct agg_header {
	__u32 magic;
	__u8 type; /* enum agg_type */
	__u8 flags; /* enum agg_flag */
	__u16 worker; /* rank within the job */
	__u64 key; /* the job's, from who admitted it: cheap to compare, and no secret */
	__u32 job; /* index at the aggregator */
	__u32 generation; /* of that index; tells packets of a former job */
	__u32 round; /* of the slot, modulo 2^32 */
	__u32 operation; /* number of the collective, modulo 2^32 */
	__u32 chunk; /* of the tensor that the values are of; AGG_END: none */
	__u32 next; /* chunk that follows in this slot; AGG_END: none */
	__u16 slot; /* within the job */
	__u16 count; /* of values' words, a multiple of 4 */
	__s16 exponent; /* of the chunk `next`: all its values are below 2^exponent */
	__u16 reserved;
	__u64 check; /* agg_check() */
};

struct agg_packet {
	struct agg_header header;
	__s32 values[AGG_VALUES_MAX];
};

/* What the workers of a job and their aggregator know; no packet carries it, the admission does. */
struct agg_secret {
	__u64 word[2];
	__u64 pad[AGG_VALUES_MAX / 2]; /* agg_expand() makes it of the words */
};

/* A job as the aggregator knows it. */
struct agg_job {
	struct agg_secret secret;
	__u64 key; /* 0: there is no job at this index */
	__u64 everyone; /* bitmap of its workers */
	__u32 generation;
	__u32 first; /* of its slots */
	__u32 slots;
	__u32 values; /* most in a packet */
	__u32 workers; /* how many send here */
	__u32 by_tc; /* XDP leaves its packets to the classifier */
};

/* The other end of a job's worker, all as in the packets (network order). */
struct agg_peer {
	__be32 address, local_address; /* IPv4, its and ours */
	__be16 port, local_port; /* UDP */
	__u8 mac[6], local_mac[6]; /* Ethernet */
	__u32 interface; /* index */
};

/* What one version of a slot holds, without the lock that guards it. */
struct agg_entry {
	__u64 seen; /* bitmap of the workers whose packets of this round are in */
	__u32 round;
	__u32 operation;
	__u32 chunk;
	__u32 next;
	__s16 exponent;
	__u16 count; /* of values; 0 as long as no worker has sent any */
	__u8 flags;
	__u8 final; /* the values are the sum of all */
	__u8 reserved[2];
	__s32 values[AGG_VALUES_MAX];
};

/* What is to be done with a packet; the answer is in the packet then. */
enum agg_action {
	AGG_DROP, /* nothing more */
	AGG_REPLY, /* send it back to the worker it came from */
	AGG_BROADCAST, /* send it to every worker of the job */
	AGG_STALE, /* nothing more: it is of a round that is over */
	AGG_REFUSE, /* nothing more: no honest worker sends this */
};

typedef __u64 __attribute__((may_alias)) agg_word;

/* Whether an answer is for this worker: a sum is, whoever's packet was the last of it. */
static inline __attribute__((always_inline)) int agg_is_for(const struct agg_header *header,
							    __u16 worker)
{
	return header->type == AGG_RESULT || header->worker == worker;
}

/* Whether a packet of `length` bytes from a worker has sizes that can be. */
static inline __attribute__((always_inline)) int
agg_well_formed(const struct agg_job *job, const struct agg_header *header, __u32 length)
{
	if (header->type != AGG_DATA && (header->type != AGG_POLL || header->count))
		return 0;
	return header->count % 4 == 0 && header->count <= job->values &&
	       header->count <= AGG_VALUES_MAX && length == sizeof(*header) + header->count * 4 &&
	       header->slot < job->slots && !(header->flags & ~AGG_SHORT);
}

struct agg_sip {
	__u64 a, b, c, d;
};

static inline __attribute__((always_inline)) __u64 agg_turn(__u64 word, int bits)
{
	return word << bits | word >> (64 - bits);
}

static inline __attribute__((always_inline)) void agg_sip_round(struct agg_sip *s)
{
	s->a += s->b;
	s->c += s->d;
	s->b = agg_turn(s->b, 13) ^ s->a;
	s->d = agg_turn(s->d, 16) ^ s->c;
	s->a = agg_turn(s->a, 32);
	s->c += s->b;
	s->a += s->d;
	s->b = agg_turn(s->b, 17) ^ s->c;
	s->d = agg_turn(s->d, 21) ^ s->a;
	s->c = agg_turn(s->c, 32);
}

static inline __attribute__((always_inline)) void agg_sip_word(struct agg_sip *s, __u64 word)
{
	s->d ^= word;
	agg_sip_round(s);
	s->a ^= word;
}

static inline __attribute__((always_inline)) struct agg_sip
agg_sip_begin(const struct agg_secret *secret)
{
	return (struct agg_sip){
		.a = secret->word[0] ^ 0x736f6d6570736575ull,
		.b = secret->word[1] ^ 0x646f72616e646f6dull,
		.c = secret->word[0] ^ 0x6c7967656e657261ull,
		.d = secret->word[1] ^ 0x7465646279746573ull,
	};
}

/* bytes: of the message, whose words are all in. */
static inline __attribute__((always_inline)) __u64 agg_sip_end(struct agg_sip *s, __u32 bytes)
{
	__u32 i;

	agg_sip_word(s, (__u64)bytes << 56);
	s->c ^= 0xff;
	for (i = 0; i < 3; i++)
		agg_sip_round(s);
	return s->a ^ s->b ^ s->c ^ s->d;
}

/* Make the pad, each word of it SipHash's of its number. */
static inline void agg_expand(struct agg_secret *secret)
{
	__u32 i;

	for (i = 0; i < AGG_VALUES_MAX / 2; i++) {
		struct agg_sip s = agg_sip_begin(secret);

		agg_sip_word(&s, i);
		secret->pad[i] = agg_sip_end(&s, 8);
	}
}

/* SipHash-1-3 (Aumasson and Bernstein, 2012) over the header without `check`, in which the round is
 * and how many values there are, and over NH of the values (Black and others, 1999), which takes a
 * multiplication for two of them. Who doesn't know the secret can make up no header, and other
 * values that have the same NH but with a chance of 2^-32. */
static inline __attribute__((always_inline)) __u64
agg_check(const struct agg_secret *secret, const struct agg_packet *packet, __u32 count)
{
	const agg_word *word = (const agg_word *)packet->values;
	__u32 words = count < AGG_VALUES_MAX ? count / 2 : AGG_VALUES_MAX / 2, most = words, i;
	__u64 digest = 0;
	struct agg_sip s;

#ifdef __bpf__
	most = AGG_VALUES_MAX / 2; /* a bound that the verifier sees */
#endif
	for (i = 0; i < most; i++) {
		__u64 low, high;

		if (i >= words)
			break;
		low = (__u32)(word[i] + secret->pad[i]);
		high = (__u32)((word[i] >> 32) + (secret->pad[i] >> 32));
		digest += low * high;
	}
	s = agg_sip_begin(secret);
	word = (const agg_word *)packet;
	for (i = 0; i < (sizeof(struct agg_header) - 8) / 8; i++)
		agg_sip_word(&s, word[i]);
	agg_sip_word(&s, digest);
	return agg_sip_end(&s, sizeof(struct agg_header));
}

static inline __attribute__((always_inline)) void agg_copy(__s32 *to, const __s32 *from,
							   __u32 count)
{
	agg_word *target = (agg_word *)to;
	const agg_word *source = (const agg_word *)from;
	__u32 i;

	for (i = 0; i < AGG_VALUES_MAX / 2; i += 2) {
		if (i >= count / 2)
			break;
		target[i] = source[i];
		target[i + 1] = source[i + 1];
	}
}

/* Sums wrap modulo 2^32, as int32 does on every machine. */
static inline __attribute__((always_inline)) void agg_add(__s32 *to, const __s32 *values,
							  __u32 count)
{
	__u32 i;

	for (i = 0; i < AGG_VALUES_MAX; i += 4) {
		if (i >= count)
			break;
		to[i] = (__s32)((__u32)to[i] + (__u32)values[i]);
		to[i + 1] = (__s32)((__u32)to[i + 1] + (__u32)values[i + 1]);
		to[i + 2] = (__s32)((__u32)to[i + 2] + (__u32)values[i + 2]);
		to[i + 3] = (__s32)((__u32)to[i + 3] + (__u32)values[i + 3]);
	}
}

/* Sums of 16 bits wrap, too; none carries into the next one's. */
static inline __attribute__((always_inline)) void agg_add_short(__s32 *to, const __s32 *values,
								__u32 count)
{
	const __u64 signs = 0x8000800080008000ull;
	agg_word *target = (agg_word *)to;
	const agg_word *source = (const agg_word *)values;
	__u32 i;

	for (i = 0; i < AGG_VALUES_MAX / 2; i++) {
		if (i >= count / 2)
			break;
		target[i] = ((target[i] & ~signs) + (source[i] & ~signs)) ^
			    ((target[i] ^ source[i]) & signs);
	}
}

/* An answer without values. */
static inline __attribute__((always_inline)) enum agg_action agg_short(struct agg_packet *packet,
								       __u8 type)
{
	packet->header.type = type;
	packet->header.count = 0;
	return AGG_REPLY;
}

static inline __attribute__((always_inline)) void agg_answer(const struct agg_entry *entry,
							     struct agg_packet *packet, __u8 type)
{
	__u32 count = entry->count;

	packet->header.type = type;
	packet->header.flags = entry->flags;
	packet->header.chunk = entry->chunk;
	packet->header.next = entry->next;
	packet->header.exponent = entry->exponent;
	packet->header.count = entry->count;
	agg_copy(packet->values, entry->values, count);
}

static inline __attribute__((always_inline)) void agg_merge(struct agg_entry *entry,
							    const struct agg_packet *packet)
{
	__u32 count = packet->header.count;

	if (packet->header.next < entry->next) {
		entry->next = packet->header.next;
		entry->exponent = packet->header.exponent;
	} else if (packet->header.next == entry->next &&
		   packet->header.exponent > entry->exponent) {
		entry->exponent = packet->header.exponent;
	}
	if (!count)
		return;
	if (!entry->count)
		agg_copy(entry->values, packet->values, count);
	else if (entry->flags & AGG_SHORT)
		agg_add_short(entry->values, packet->values, count);
	else
		agg_add(entry->values, packet->values, count);
	entry->count = packet->header.count;
}

/* A worker has sent its packet of the entry's round again. */
static inline __attribute__((always_inline)) enum agg_action
agg_repeated(const struct agg_job *job, struct agg_entry *entry, struct agg_packet *packet)
{
	__u64 missing = job->everyone & ~entry->seen;

	if (entry->final) {
		agg_answer(entry, packet, AGG_AGAIN);
		return AGG_REPLY;
	}
	packet->header.chunk = missing >> 32;
	packet->header.next = (__u32)missing;
	return agg_short(packet, AGG_HELD);
}

/* Bitmap of the workers whose packets aren't in, from an answer AGG_HELD. */
static inline __attribute__((always_inline)) __u64 agg_missing(const struct agg_header *held)
{
	return (__u64)held->chunk << 32 | held->next;
}

/* Take a worker's packet, whose job, key, sender, sizes and check are known to be right.
 *
 * entry: of version round % 2 of its slot, locked by the caller. */
static inline __attribute__((always_inline)) enum agg_action
agg_take(const struct agg_job *job, struct agg_entry *entry, struct agg_packet *packet)
{
	struct agg_header *header = &packet->header;
	__u64 mine = 1ull << (header->worker & 63);
	__u32 ahead = header->round - entry->round;

	if (ahead == 2 && entry->final) {
		if (header->type == AGG_POLL)
			return agg_short(packet, AGG_MISSING);
		entry->round = header->round;
		entry->operation = header->operation;
		entry->chunk = header->chunk;
		entry->next = AGG_END;
		entry->exponent = AGG_EXPONENT_NONE;
		entry->flags = header->flags;
		entry->count = 0;
		entry->final = 0;
		entry->seen = 0;
	} else if (ahead) {
		return (__s32)ahead < 0 ? AGG_STALE : AGG_REFUSE;
	}
	if (header->operation != entry->operation || header->chunk != entry->chunk ||
	    header->flags != entry->flags ||
	    (header->count && entry->count && header->count != entry->count))
		return agg_short(packet, AGG_MISMATCH);
	if (entry->seen & mine)
		return agg_repeated(job, entry, packet);
	if (header->type == AGG_POLL)
		return agg_short(packet, AGG_MISSING);
	agg_merge(entry, packet);
	entry->seen |= mine;
	if (entry->seen != job->everyone)
		return AGG_DROP;
	entry->final = 1;
	agg_answer(entry, packet, AGG_RESULT);
	return AGG_BROADCAST;
}

#endif
