// SPDX-License-Identifier: GPL-2.0-only
/* Which jobs can meet: those that links join which they could fill together. */
#include <math.h>
#include <stdlib.h>
#include "internal.h"

static double most_on(const struct job *job, uint32_t link)
{
	for (uint32_t i = 0; i < job->link_count; i++)
		if (job->all_links[i] == link)
			return job->most[i];
	return 0;
}

static void judge(struct flow *flow, uint32_t number)
{
	struct link *link = &flow->links[number];
	double wanted = 0;

	for (uint32_t i = 0; i < link->jobs.count; i++)
		wanted += most_on(&flow->jobs[link->jobs.items[i]], number);
	link->contended = link->jobs.count > 1 && wanted > link->rate * (1 + 1e-9);
}

static void dissolve_on(struct flow *flow, const struct link *link)
{
	for (uint32_t i = 0; i < link->jobs.count; i++) {
		uint32_t group = flow->jobs[link->jobs.items[i]].group;

		if (group != NO_GROUP)
			dissolve(flow, group);
	}
}

void placed(struct flow *flow, uint32_t number)
{
	struct job *job = &flow->jobs[number];

	for (uint32_t i = 0; i < job->link_count; i++) {
		struct link *link = &flow->links[job->all_links[i]];
		bool before = link->contended;

		push(&link->jobs, number);
		judge(flow, job->all_links[i]);
		if (before || link->contended)
			dissolve_on(flow, link);
	}
	push(&flow->changed, number);
}

void unplaced(struct flow *flow, uint32_t number)
{
	struct job *job = &flow->jobs[number];

	if (job->group != NO_GROUP)
		dissolve(flow, job->group);
	if (job->moment.state == SENDING) {
		stop_sending(flow, number);
		leave(flow, number);
	}
	for (uint32_t i = 0; i < job->link_count; i++) {
		drop(&flow->links[job->all_links[i]].jobs, number);
		judge(flow, job->all_links[i]);
	}
	drop(&flow->changed, number);
}

/* The group's jobs are brought up to now and wait for a new one. */
void dissolve(struct flow *flow, uint32_t number)
{
	struct group *group = &flow->groups[number];

	if (group->asleep) {
		wake(flow, group, flow->now);
		run_group(flow, group, flow->now, false);
	}
	for (uint32_t i = 0; i < group->count; i++) {
		flow->jobs[group->jobs[i]].group = NO_GROUP;
		push(&flow->changed, group->jobs[i]);
	}
	forget_state(group);
	free(group->round_stats);
	free(group->jobs);
	free(group->at);
	*group = (struct group){0};
	flow->heap_is_stale = true;
	push(&flow->free_groups, number);
}

static uint32_t new_group(struct flow *flow)
{
	if (flow->free_groups.count)
		return flow->free_groups.items[--flow->free_groups.count];
	if (flow->group_count == flow->group_room) {
		flow->group_room = flow->group_room ? 2 * flow->group_room : 64;
		flow->groups =
			must(realloc(flow->groups, flow->group_room * sizeof(*flow->groups)));
	}
	return flow->group_count++;
}

/* All jobs that contended links join to the one, into near. */
static void collect(struct flow *flow, uint32_t number)
{
	flow->near.count = flow->stack.count = 0;
	flow->mark++;
	flow->jobs[number].mark = flow->mark;
	push(&flow->near, number);
	push(&flow->stack, number);
	while (flow->stack.count) {
		const struct job *job = &flow->jobs[flow->stack.items[--flow->stack.count]];

		for (uint32_t i = 0; i < job->link_count; i++) {
			struct link *link = &flow->links[job->all_links[i]];

			if (!link->contended || link->mark == flow->mark)
				continue;
			link->mark = flow->mark;
			for (uint32_t j = 0; j < link->jobs.count; j++) {
				uint32_t other = link->jobs.items[j];

				if (flow->jobs[other].mark == flow->mark)
					continue;
				flow->jobs[other].mark = flow->mark;
				push(&flow->near, other);
				push(&flow->stack, other);
			}
		}
	}
}

static void make_group(struct flow *flow, uint32_t number)
{
	uint32_t at;
	struct group *group;

	collect(flow, number);
	sort(&flow->near);
	at = new_group(flow);
	group = &flow->groups[at];
	*group = (struct group){.count = flow->near.count, .used = true, .save_next = 1};
	group->jobs = must(calloc(group->count, sizeof(*group->jobs)));
	group->at = must(calloc(group->count, sizeof(*group->at)));
	for (uint32_t i = 0; i < group->count; i++) {
		struct job *job = &flow->jobs[flow->near.items[i]];

		group->jobs[i] = flow->near.items[i];
		group->at[i] = job->moment.at;
		group->recorded = group->recorded || job->record;
		job->group = at;
		job->position = i;
		job->share = NAN;
		job->whole = true;
	}
	if (group->count > flow->counters.largest_group)
		flow->counters.largest_group = group->count;
	flow->counters.groups++;
	for (uint32_t i = 0; i < group->count; i++) {
		struct job *job = &flow->jobs[group->jobs[i]];

		if (job->moment.state == SENDING && isnan(job->share))
			fill_around(flow, group->jobs[i], flow->now);
	}
	group->next = earliest(group, &at);
}

void heap_down(struct flow *flow, uint32_t place)
{
	uint32_t *heap = flow->heap.items, moving = heap[place], child;
	uint64_t next = flow->groups[moving].next;

	while ((child = 2 * place + 1) < flow->heap.count) {
		if (child + 1 < flow->heap.count &&
		    flow->groups[heap[child + 1]].next < flow->groups[heap[child]].next)
			child++;
		if (next <= flow->groups[heap[child]].next)
			break;
		heap[place] = heap[child];
		place = child;
	}
	heap[place] = moving;
}

void make_heap(struct flow *flow)
{
	flow->heap.count = 0;
	for (uint32_t i = 0; i < flow->group_count; i++)
		if (flow->groups[i].used)
			push(&flow->heap, i);
	for (uint32_t i = flow->heap.count / 2; i--;)
		heap_down(flow, i);
	flow->heap_is_stale = false;
}

void regroup(struct flow *flow)
{
	if (!flow->changed.count)
		return;
	for (uint32_t i = 0; i < flow->changed.count; i++)
		if (flow->jobs[flow->changed.items[i]].group == NO_GROUP)
			make_group(flow, flow->changed.items[i]);
	flow->changed.count = 0;
	flow->heap_is_stale = true;
}
