// SPDX-License-Identifier: BSD-2-Clause
/* Events in order of time, random numbers, and memory. */
#include <stdio.h>
#include <stdlib.h>
#include "internal.h"

void *zeroed(size_t count, size_t size)
{
	void *memory = calloc(count ? count : 1, size);

	if (!memory) {
		fputs("mltcp: the simulator has no memory left\n", stderr);
		abort();
	}
	return memory;
}

/* Memory for one more item behind count items of that size. */
void *grow(void *items, size_t size, uint64_t count, size_t *room)
{
	if (count < *room)
		return items;
	*room = *room ? 2 * *room : 1024;
	items = realloc(items, *room * size);
	if (!items) {
		fputs("mltcp: the simulator has no memory left\n", stderr);
		abort();
	}
	return items;
}

static bool before(const struct event *a, const struct event *b)
{
	return a->time != b->time ? a->time < b->time : a->number < b->number;
}

/* Put an event where a binary heap wants it. */
void add_event(struct sim *sim, struct event event)
{
	struct event_queue *queue = &sim->events;
	size_t at = queue->count, parent;

	queue->heap = grow(queue->heap, sizeof(event), queue->count, &queue->room);
	queue->count++;
	event.number = queue->added++;
	for (; at; at = parent) {
		parent = (at - 1) / 2;
		if (before(&queue->heap[parent], &event))
			break;
		queue->heap[at] = queue->heap[parent];
	}
	queue->heap[at] = event;
}

/* Take the earliest event; false when there is none. */
bool next_event(struct sim *sim, struct event *event)
{
	struct event_queue *queue = &sim->events;
	struct event *heap = queue->heap, last;
	size_t at = 0, child;

	if (!queue->count)
		return false;
	*event = heap[0];
	last = heap[--queue->count];
	while ((child = 2 * at + 1) < queue->count) {
		if (child + 1 < queue->count && before(&heap[child + 1], &heap[child]))
			child++;
		if (before(&last, &heap[child]))
			break;
		heap[at] = heap[child];
		at = child;
	}
	heap[at] = last;
	return true;
}

/* From 0 to less than 1, by SplitMix64 (Steele, Lea and Flood, 2014). */
double random_share(struct sim *sim)
{
	uint64_t z = sim->random += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	z ^= z >> 31;
	return (z >> 11) * 0x1p-53;
}
