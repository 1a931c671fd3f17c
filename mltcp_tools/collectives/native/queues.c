// SPDX-License-Identifier: BSD-2-Clause
/* Slots whose packets wait to be sent: those ready for a round, and those that ask or repeat. */
#include "internal.h"

static void push(struct queue *queue, uint32_t slot, uint32_t size)
{
	queue->slots[(queue->first + queue->count++) % size] = slot;
}

static uint32_t pop(struct queue *queue, uint32_t size)
{
	uint32_t slot = queue->slots[queue->first];

	queue->first = (queue->first + 1) % size;
	queue->count--;
	return slot;
}

void put_ready(struct worker *w, uint32_t index)
{
	push(&w->ready, index, w->config.slots);
}

uint32_t take_ready(struct worker *w)
{
	return pop(&w->ready, w->config.slots);
}

void make_urgent(struct worker *w, uint32_t index, bool resend)
{
	struct slot *slot = &w->slots[index];

	slot->resend |= resend;
	if (slot->urgent)
		return;
	slot->urgent = true;
	push(&w->urgent, index, w->config.slots);
}

uint32_t take_urgent(struct worker *w)
{
	uint32_t index = pop(&w->urgent, w->config.slots);

	w->slots[index].urgent = false;
	return index;
}
