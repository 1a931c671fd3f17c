// SPDX-License-Identifier: BSD-2-Clause
/* Lists of numbers, and the heap of jobs by their next event; of equal events, the lowest number. */
#include <stdio.h>
#include <stdlib.h>
#include "internal.h"

void *must(void *memory)
{
	if (!memory) {
		fputs("mltcp: the flow simulator has no memory left\n", stderr);
		abort();
	}
	return memory;
}

void push(struct list *list, uint32_t item)
{
	if (list->count == list->room) {
		list->room = list->room ? 2 * list->room : 8;
		list->items = must(realloc(list->items, list->room * sizeof(*list->items)));
	}
	list->items[list->count++] = item;
}

/* The order of the others is not kept. */
void drop(struct list *list, uint32_t item)
{
	for (uint32_t i = 0; i < list->count; i++)
		if (list->items[i] == item)
			list->items[i--] = list->items[--list->count];
}

static bool before(const struct flow *flow, uint32_t a, uint32_t b)
{
	uint64_t x = flow->jobs[a].moment.at, y = flow->jobs[b].moment.at;

	return x != y ? x < y : a < b;
}

static void put(struct flow *flow, uint32_t place, uint32_t job)
{
	flow->heap.items[place] = job;
	flow->jobs[job].heap_place = place;
}

static void settle_in_heap(struct flow *flow, uint32_t job)
{
	uint32_t *heap = flow->heap.items, place = flow->jobs[job].heap_place, child;

	for (; place && before(flow, job, heap[(place - 1) / 2]); place = (place - 1) / 2)
		put(flow, place, heap[(place - 1) / 2]);
	while ((child = 2 * place + 1) < flow->heap.count) {
		if (child + 1 < flow->heap.count && before(flow, heap[child + 1], heap[child]))
			child++;
		if (!before(flow, heap[child], job))
			break;
		put(flow, place, heap[child]);
		place = child;
	}
	put(flow, place, job);
}

void heap_add(struct flow *flow, uint32_t job)
{
	flow->jobs[job].heap_place = flow->heap.count;
	push(&flow->heap, job);
	settle_in_heap(flow, job);
}

void heap_remove(struct flow *flow, uint32_t job)
{
	uint32_t place = flow->jobs[job].heap_place, last = flow->heap.items[--flow->heap.count];

	if (last == job)
		return;
	put(flow, place, last);
	settle_in_heap(flow, last);
}

void set_at(struct flow *flow, uint32_t job, uint64_t at)
{
	flow->jobs[job].moment.at = at;
	settle_in_heap(flow, job);
}
