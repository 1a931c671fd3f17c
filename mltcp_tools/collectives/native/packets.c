// SPDX-License-Identifier: BSD-2-Clause
/*
 * What a worker sends next: the packets of slots that wait for it, within its window.
 *
 * Packets go out in pairs, as those of a sender whose receiver acknowledges every second one: one
 * by one they would take each place in a full queue before TCP's pairs do.
 */
#include <string.h>
#include "internal.h"

static void fill_header(struct worker *w, const struct slot *slot, struct agg_packet *packet,
			uint8_t type)
{
	packet->header = (struct agg_header){
		.magic = AGG_MAGIC,
		.type = type,
		.flags = w->is_short ? AGG_SHORT : 0,
		.worker = w->config.rank,
		.key = w->config.key,
		.job = w->config.job,
		.generation = w->config.generation,
		.round = slot->round,
		.operation = w->operation,
		.chunk = slot->chunk,
		.next = slot->own,
		.slot = slot - w->slots,
		.count = type == AGG_DATA ? words_of(w, slot->length) : 0,
		.exponent = slot->own_exponent,
	};
}

static uint32_t finish_packet(struct worker *w, struct agg_packet *packet)
{
	uint32_t length = sizeof(packet->header) + packet->header.count * 4;

	packet->header.check = check_of(&w->config.secret, packet);
	w->counters.sent++;
	w->counters.sent_bytes += length;
	return length;
}

static uint32_t make_data(struct worker *w, uint32_t index, uint64_t now, struct agg_packet *packet)
{
	struct slot *slot = &w->slots[index];

	if (!slot->looked) /* not before: the first packets go out while the rest is searched */
		find_own(w, slot, index);
	fill_header(w, slot, packet, AGG_DATA);
	if (has_exponents(w) &&
	    (slot->exponent == AGG_EXPONENT_NONFINITE || slot->exponent == AGG_EXPONENT_NONE))
		memset(packet->values, 0, packet->header.count * 4);
	else if (slot->length && w->is_short)
		quantise_short(values_of(w, slot->chunk), w->request.kind, slot->length,
			       w->bits - slot->exponent, (int16_t *)packet->values);
	else if (slot->length)
		quantise(values_of(w, slot->chunk), w->request.kind, slot->length,
			 w->bits - slot->exponent, packet->values);
	slot->order = w->order++;
	w->by_order[slot->order % ORDERS] = index;
	slot->sent_ns = now;
	set_timer(w, slot, now);
	return finish_packet(w, packet);
}

/* Whether the first of a pair waits until the window has room for both. */
static bool waits_for_pair(const struct worker *w)
{
	return !w->second && w->cwnd >= PAIRS_FROM && w->ready.count > 1 &&
	       w->flying + 2 > (uint32_t)w->cwnd;
}

/* The next packet that may go out now, and its length in bytes; 0 when none may. */
uint32_t worker_send(struct worker *w, uint64_t now, struct agg_packet *packet)
{
	struct slot *slot;
	uint32_t index;

	if (w->state != WORKER_RUNNING)
		return 0;
	run_timers(w, now);
	while (w->urgent.count) {
		index = take_urgent(w);
		slot = &w->slots[index];
		if (slot->state != SLOT_FLYING)
			continue; /* it was answered meanwhile */
		if (slot->resend) {
			slot->resend = false;
			slot->repeated = true;
			slot->polls = 0;
			w->counters.repeated++;
			return make_data(w, index, now, packet);
		}
		slot->polls++;
		set_timer(w, slot, now);
		w->counters.polls++;
		fill_header(w, slot, packet, AGG_POLL);
		return finish_packet(w, packet);
	}
	if (!w->ready.count || w->flying >= (uint32_t)w->cwnd || waits_for_pair(w))
		return 0;
	w->second = !w->second;
	index = take_ready(w);
	w->slots[index].state = SLOT_FLYING;
	w->slots[index].resend = false;
	w->flying++;
	return make_data(w, index, now, packet);
}
