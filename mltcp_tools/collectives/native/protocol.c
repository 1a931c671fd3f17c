// SPDX-License-Identifier: BSD-2-Clause
/*
 * A worker's side of the rounds (bpf/mltcp_aggregate.h): what each slot is in, and what an answer
 * makes of it. packets.c sends what queues.c holds, window.c says how much and when to ask again,
 * tensor.c what there is to send.
 */
#include <stdlib.h>
#include <string.h>
#include "internal.h"

/* The second check of what an admission granted: everything below counts on these bounds. */
static bool is_sound(const struct worker_config *config)
{
	return config->values && config->values % 4 == 0 && config->values <= AGG_VALUES_MAX &&
	       config->slots && config->slots <= SLOTS_MAX && config->workers &&
	       config->workers <= AGG_WORKERS_MAX && config->rank < config->workers;
}

struct worker *worker_open(const struct worker_config *config)
{
	struct worker *w = is_sound(config) ? calloc(1, sizeof(*w)) : NULL;

	if (!w)
		return NULL;
	w->config = *config;
	w->slots = calloc(config->slots, sizeof(*w->slots));
	w->ready.slots = calloc(config->slots, sizeof(uint32_t));
	w->urgent.slots = calloc(config->slots, sizeof(uint32_t));
	if (!w->slots || !w->ready.slots || !w->urgent.slots) {
		worker_close(w);
		return NULL;
	}
	w->cwnd = INITIAL_WINDOW;
	w->ssthresh = config->slots;
	w->later = LATER_ANSWERS;
	return w;
}

void worker_close(struct worker *w)
{
	if (!w)
		return;
	free(w->ends);
	free(w->slots);
	free(w->ready.slots);
	free(w->urgent.slots);
	free(w);
}

void worker_counters(const struct worker *w, struct worker_counters *to)
{
	*to = w->counters;
	to->cwnd = (uint32_t)w->cwnd;
	to->srtt_us = (uint32_t)(w->srtt_ns / 1000);
}

static bool travels_short(const struct worker *w, uint32_t kind)
{
	return element_bytes(kind) == 2 && w->config.workers <= MOST_SHORT_WORKERS;
}

uint32_t worker_chunk(const struct worker *w, uint32_t kind)
{
	return travels_short(w, kind) ? 2 * w->config.values : w->config.values;
}

enum worker_state worker_state(const struct worker *w)
{
	return w->state;
}

/* Make the slot ready for its next round, in which `chunk` is sent by those who have it. */
static void make_ready(struct worker *w, uint32_t index, uint32_t chunk, int16_t exponent)
{
	struct slot *slot = &w->slots[index];

	slot->chunk = chunk;
	slot->exponent = exponent;
	slot->length = 0;
	if (chunk != AGG_END && slot->own == chunk) {
		slot->length = length_of(w, chunk);
		find_own(w, slot, (uint64_t)chunk + w->stride);
	}
	slot->state = SLOT_READY;
	slot->held = false;
	slot->repeated = false;
	slot->polls = 0;
	put_ready(w, index);
}

/* A number that ranks agree on only when they ask for the same: which collective of the job it
 * is, and of what. */
static uint32_t name_operation(const struct worker *w)
{
	const struct worker_request *request = &w->request;
	uint64_t what = request->count << 8 | request->kind << 4 | request->how << 1 |
			(request->marks != NULL);

	what ^= (uint64_t)w->stride << 48;
	return w->begun ^ (uint32_t)(what * 0x9e3779b97f4a7c15ull >> 32);
}

/* Each slot costs a packet to agree on its first chunk, which shows where it has few of them; beyond
 * a window's worth on usual paths a large tensor alone gets more. */
static uint32_t slots_for(const struct worker *w, const struct worker_request *request)
{
	uint32_t wanted = request->slots ? request->slots : w->chunks / ROUNDS_OF_SLOT;

	if (!request->slots && wanted < USUAL_SLOTS)
		wanted = USUAL_SLOTS;
	return wanted < w->config.slots ? wanted : w->config.slots;
}

void worker_begin(struct worker *w, const struct worker_request *request, uint64_t now)
{
	uint32_t i;

	w->request = *request;
	w->is_short = travels_short(w, request->kind);
	w->bits = w->is_short ? 14 : 30;
	for (i = 1; i < w->config.workers; i *= 2)
		w->bits--;
	w->values = worker_chunk(w, request->kind);
	w->chunks = (request->count + w->values - 1) / w->values;
	w->stride = slots_for(w, request);
	w->active = w->chunks < w->stride ? w->chunks : w->stride;
	w->rounds_to_agree = has_exponents(w) || request->marks;
	w->begun++;
	w->nonfinite = false;
	w->second = false;
	w->searched = 0;
	w->operation = name_operation(w);
	w->state = w->chunks ? WORKER_RUNNING : WORKER_DONE;
	w->heard_ns = w->progress_ns = now;
	w->wakes_ns = UINT64_MAX;
	w->counters.missing = 0;
	/* The path may have been idle for long: grow again, up to what it bore. */
	if (w->cwnd > INITIAL_WINDOW) {
		w->ssthresh = w->cwnd;
		w->cwnd = INITIAL_WINDOW;
	}
	for (i = 0; i < w->active; i++) {
		w->slots[i].looked = false;
		if (w->rounds_to_agree) {
			make_ready(w, i, AGG_END, AGG_EXPONENT_NONE);
		} else {
			find_own(w, &w->slots[i], i);
			make_ready(w, i, i, AGG_EXPONENT_NONE);
		}
	}
}

static void put_result(struct worker *w, const struct slot *slot, const struct agg_packet *packet)
{
	char *to = (char *)w->request.to +
		   (uint64_t)slot->chunk * w->values * element_bytes(w->request.kind);

	if (w->request.marks)
		w->request.marks[slot->chunk] |= CHUNK_SUMMED;
	if (slot->exponent == AGG_EXPONENT_NONFINITE)
		w->nonfinite = true;
	else if (w->is_short)
		restore_short((const int16_t *)packet->values, w->request.kind, w->request.how,
			      length_of(w, slot->chunk), slot->exponent - w->bits,
			      w->config.workers, to);
	else
		restore(packet->values, w->request.kind, w->request.how, length_of(w, slot->chunk),
			slot->exponent - w->bits, w->config.workers, to);
}

/* Whether an answer's chunk and what follows it can be. */
static bool is_possible(const struct worker *w, uint32_t index, const struct agg_header *header)
{
	const struct slot *slot = &w->slots[index];
	uint32_t count = slot->chunk == AGG_END ? 0 : words_of(w, length_of(w, slot->chunk));

	if (header->count != count)
		return false;
	if (header->next == AGG_END)
		return slot->own == AGG_END;
	return header->next < w->chunks && header->next % w->stride == index &&
	       (slot->chunk == AGG_END || header->next > slot->chunk) &&
	       header->next <= slot->own &&
	       (header->next < slot->own || header->exponent >= slot->own_exponent) &&
	       (!has_exponents(w) || header->exponent == AGG_EXPONENT_NONE ||
		header->exponent == AGG_EXPONENT_NONFINITE ||
		(header->exponent >= -126 && header->exponent <= 128));
}

static void finish_round(struct worker *w, uint32_t index, uint64_t now,
			 const struct agg_packet *packet)
{
	struct slot *slot = &w->slots[index];

	if (!is_possible(w, index, &packet->header)) {
		w->state = WORKER_BROKEN;
		return;
	}
	if (packet->header.type == AGG_AGAIN)
		note_loss(w, slot);
	else if (!slot->polls && !slot->repeated)
		sample_rtt(w, now - slot->sent_ns);
	if (slot->chunk != AGG_END)
		put_result(w, slot, packet);
	slot->state = SLOT_IDLE;
	slot->round++;
	if (slot->length)
		grow_window(w);
	if (!slot->held)
		w->flying--;
	w->progress_ns = now;
	if (slot->order > w->answered)
		w->answered = slot->order;
	look_for_holes(w);
	if (packet->header.next != AGG_END)
		make_ready(w, index, packet->header.next, packet->header.exponent);
	else if (!--w->active)
		w->state = w->nonfinite ? WORKER_NONFINITE : WORKER_DONE;
}

static bool is_ours(const struct worker *w, const struct agg_packet *packet, uint32_t length)
{
	const struct agg_header *header = &packet->header;

	return length >= sizeof(*header) && header->magic == AGG_MAGIC &&
	       header->key == w->config.key && header->job == w->config.job &&
	       header->generation == w->config.generation && header->slot < w->config.slots &&
	       header->count % 4 == 0 && header->count <= w->config.values &&
	       length == sizeof(*header) + header->count * 4;
}

/* Take what came in; the packet may be anything. */
void worker_receive(struct worker *w, uint64_t now, struct agg_packet *packet, uint32_t length)
{
	const struct agg_header *header = &packet->header;
	struct slot *slot;

	w->counters.received++;
	if (!is_ours(w, packet, length)) {
		w->counters.ignored++;
		return;
	}
	if (check_of(&w->config.secret, packet) != header->check) {
		w->counters.corrupt++;
		return;
	}
	w->heard_ns = now;
	slot = &w->slots[header->slot];
	if (w->state != WORKER_RUNNING || slot->state != SLOT_FLYING ||
	    header->round != slot->round || header->operation != w->operation) {
		w->counters.ignored++; /* a copy, or late */
		return;
	}
	if (header->type != AGG_MISMATCH && header->type != AGG_HELD &&
	    header->chunk != slot->chunk) {
		w->state = WORKER_BROKEN;
		return;
	}
	if (!agg_is_for(header, w->config.rank)) {
		w->counters.ignored++; /* said to another worker */
		return;
	}
	switch (header->type) {
	case AGG_RESULT:
	case AGG_AGAIN:
		finish_round(w, header->slot, now, packet);
		break;
	case AGG_HELD:
		/* Arrived, so no longer in the window: or workers whose windows hold different
		 * slots would wait for each other for ever. */
		if (!slot->held)
			w->flying--;
		slot->held = true;
		if (w->later < MOST_LATER_ANSWERS)
			w->later += w->later / 2;
		w->counters.missing = agg_missing(header);
		break;
	case AGG_MISSING:
		if (slot->held)
			break; /* older than what we know */
		note_loss(w, slot);
		make_urgent(w, header->slot, true);
		break;
	case AGG_MISMATCH:
		w->state = WORKER_MISMATCH;
		break;
	default:
		w->counters.ignored++;
	}
}

uint64_t worker_wakes_at(const struct worker *w)
{
	return w->state == WORKER_RUNNING ? w->wakes_ns : UINT64_MAX;
}

/* The state to give up with when nothing got done for limit_ns; WORKER_RUNNING before. */
enum worker_state worker_silence(const struct worker *w, uint64_t now, uint64_t limit_ns)
{
	if (w->state != WORKER_RUNNING || now - w->progress_ns < limit_ns)
		return w->state;
	return now - w->heard_ns < limit_ns / 2 ? WORKER_WAITING : WORKER_SILENT;
}
