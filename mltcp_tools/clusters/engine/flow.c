// SPDX-License-Identifier: GPL-2.0-only
/* The simulator as its caller sees it: jobs come and go, time passes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static int ascending(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

void sort(struct list *list)
{
	qsort(list->items, list->count, sizeof(*list->items), ascending);
}

void drop(struct list *list, uint32_t item)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < list->count; i++)
		if (list->items[i] != item)
			list->items[kept++] = list->items[i];
	list->count = kept;
}

static void *copied(const void *items, size_t count, size_t size)
{
	void *copy = must(calloc(count ? count : 1, size));

	memcpy(copy, items, count * size);
	return copy;
}

struct flow *flow_new(uint32_t links, const double *rates, const double *packets,
		      const struct flow_rule *rule)
{
	struct flow *flow = must(calloc(1, sizeof(*flow)));

	flow->rule = *rule;
	flow->weights = must(calloc(rule->levels, sizeof(*flow->weights)));
	for (uint32_t i = 0; i < rule->levels; i++) {
		double progress = (i + 0.5) / rule->levels;

		flow->weights[i] = fmax(rule->floor,
					pow(rule->intercept + rule->slope * progress, rule->power));
	}
	flow->links = must(calloc(links ? links : 1, sizeof(*flow->links)));
	flow->link_count = links;
	for (uint32_t i = 0; i < links; i++) {
		flow->links[i].rate = rates[i];
		flow->links[i].packets = packets[i];
	}
	return flow;
}

static void free_job(struct job *job)
{
	free((void *)job->spec.compute_ns);
	free((void *)job->spec.bytes);
	free((void *)job->spec.first);
	free((void *)job->spec.link);
	free((void *)job->spec.crossings);
	free(job->all_links);
	free(job->lone);
	free(job->most);
	free(job->asks);
	free(job->shorts);
	*job = (struct job){.group = NO_GROUP};
}

void flow_free(struct flow *flow)
{
	for (uint32_t i = 0; i < flow->job_count; i++)
		free_job(&flow->jobs[i]);
	for (uint32_t i = 0; i < flow->group_count; i++) {
		forget_state(&flow->groups[i]);
		free(flow->groups[i].round_stats);
		free(flow->groups[i].jobs);
		free(flow->groups[i].at);
	}
	for (uint32_t i = 0; i < flow->link_count; i++) {
		free(flow->links[i].jobs.items);
		free(flow->links[i].senders);
	}
	for (uint32_t i = 0; i < flow->chain_count; i++)
		free(flow->chains[i].items);
	free(flow->links);
	free(flow->weights);
	free(flow->jobs);
	free(flow->groups);
	free(flow->free_jobs.items);
	free(flow->free_groups.items);
	free(flow->heap.items);
	free(flow->near.items);
	free(flow->fill.first);
	free(flow->fill.lone);
	free(flow->fill.weight);
	free(flow->fill.turns);
	free(flow->fill.crossings);
	free(flow->fill.links);
	free(flow->fill.asked);
	free(flow->change.links.items);
	free(flow->change.pending.items);
	free(flow->change.open.items);
	free(flow->change.slower.items);
	free(flow->change.touched.items);
	free(flow->change.full.items);
	free(flow->change.tie.items);
	free(flow->changing.items);
	free(flow->chains);
	free(flow->free_chains.items);
	free(flow->joined.items);
	free(flow->stack.items);
	free(flow->open.items);
	free(flow->changed.items);
	free(flow->ended.items);
	free(flow);
}

/* How fast each phase is with its links to itself, and what that asks of each link. */
static void measure(struct flow *flow, struct job *job)
{
	const struct flow_job *spec = &job->spec;
	uint32_t total = spec->first[spec->phases];

	job->lone = must(calloc(spec->phases, sizeof(*job->lone)));
	job->all_links = must(calloc(total ? total : 1, sizeof(*job->all_links)));
	job->most = must(calloc(total ? total : 1, sizeof(*job->most)));
	job->asks = must(calloc(total ? total : 1, sizeof(*job->asks)));
	job->shorts = must(calloc(total ? total : 1, sizeof(*job->shorts)));
	for (uint32_t phase = 0; phase < spec->phases; phase++) {
		double lone = INFINITY;

		for (uint32_t i = spec->first[phase]; i < spec->first[phase + 1]; i++)
			lone = fmin(lone, flow->links[spec->link[i]].rate / spec->crossings[i]);
		/* Bytes that cross no link take the shortest time there is. */
		job->lone[phase] = lone < INFINITY ? lone : 0x1p60;
		for (uint32_t i = spec->first[phase]; i < spec->first[phase + 1]; i++) {
			double part = lone * spec->crossings[i] / flow->links[spec->link[i]].rate;
			uint32_t at = 0;

			job->asks[i] = (uint64_t)llround(part * (double)WHOLE);
			while (at < job->link_count && job->all_links[at] != spec->link[i])
				at++;
			if (at == job->link_count)
				job->all_links[job->link_count++] = spec->link[i];
			job->most[at] = fmax(job->most[at], lone * spec->crossings[i]);
		}
	}
}

static uint32_t new_job(struct flow *flow)
{
	if (flow->free_jobs.count)
		return flow->free_jobs.items[--flow->free_jobs.count];
	if (flow->job_count == flow->job_room) {
		flow->job_room = flow->job_room ? 2 * flow->job_room : 64;
		flow->jobs = must(realloc(flow->jobs, flow->job_room * sizeof(*flow->jobs)));
	}
	return flow->job_count++;
}

uint32_t flow_add(struct flow *flow, const struct flow_job *spec, struct flow_iteration *record)
{
	uint32_t number = new_job(flow), phases = spec->phases, crossings = spec->first[phases];
	struct job *job = &flow->jobs[number];

	*job = (struct job){.spec = *spec, .record = record, .group = NO_GROUP, .slow = 1};
	job->spec.compute_ns =
		copied(spec->compute_ns, (size_t)spec->rows * phases, sizeof(*spec->compute_ns));
	job->spec.bytes = copied(spec->bytes, phases, sizeof(*spec->bytes));
	job->spec.first = copied(spec->first, phases + 1, sizeof(*spec->first));
	job->spec.link = copied(spec->link, crossings, sizeof(*spec->link));
	job->spec.crossings = copied(spec->crossings, crossings, sizeof(*spec->crossings));
	job->used = true;
	job->stats.least_ns = NEVER;
	measure(flow, job);
	job->moment.began = spec->start_ns > flow->now ? spec->start_ns : flow->now;
	job->moment.due = spec->due_ns;
	begin_phase(flow, job, job->moment.began);
	placed(flow, number);
	return number;
}

void flow_remove(struct flow *flow, uint32_t number)
{
	unplaced(flow, number);
	drop(&flow->ended, number);
	free_job(&flow->jobs[number]);
	push(&flow->free_jobs, number);
}

static void change(struct flow *flow, uint32_t number)
{
	if (flow->jobs[number].group != NO_GROUP)
		dissolve(flow, flow->jobs[number].group);
}

void flow_set(struct flow *flow, uint32_t number, double weight, uint32_t priority)
{
	if (flow->jobs[number].spec.weight == weight &&
	    flow->jobs[number].spec.priority == priority)
		return;
	change(flow, number);
	flow->jobs[number].spec.weight = weight;
	flow->jobs[number].spec.priority = priority;
}

void flow_turns(struct flow *flow, uint32_t number, uint64_t turn_ns, uint64_t due_ns,
		uint64_t slack_ns)
{
	change(flow, number);
	flow->jobs[number].spec.turn_ns = turn_ns;
	flow->jobs[number].spec.slack_ns = slack_ns;
	flow->jobs[number].moment.due = due_ns;
}

void flow_slow(struct flow *flow, uint32_t number, double factor)
{
	change(flow, number);
	flow->jobs[number].slow = factor;
}

/* The group with the earliest event does what is due until then. */
static void run_first(struct flow *flow, uint64_t until)
{
	struct group *group = &flow->groups[flow->heap.items[0]];

	if (group->asleep)
		wake(flow, group, group->next);
	run_group(flow, group, until, true);
	heap_down(flow, 0);
}

/* Takes the job with the lowest number from those that are done, so that no order of ours shows. */
static uint32_t take_ended(struct flow *flow)
{
	uint32_t least = flow->ended.items[0];

	for (uint32_t i = 1; i < flow->ended.count; i++)
		if (flow->ended.items[i] < least)
			least = flow->ended.items[i];
	drop(&flow->ended, least);
	return least;
}

int64_t flow_run(struct flow *flow, uint64_t until)
{
	uint64_t next;

	regroup(flow);
	if (flow->heap_is_stale)
		make_heap(flow);
	while (flow->heap.count) {
		next = flow->groups[flow->heap.items[0]].next;
		/* Whatever else happens when a job ends does so before the caller acts. */
		if (next > until || (flow->ended.count && next > flow->now))
			break;
		flow->now = next;
		run_first(flow, next);
	}
	if (flow->ended.count)
		return take_ended(flow);
	flow->now = until;
	return -1;
}

uint64_t flow_now(const struct flow *flow)
{
	return flow->now;
}

void flow_stats(struct flow *flow, uint32_t number, struct flow_stats *stats)
{
	struct job *job = &flow->jobs[number];

	if (job->group != NO_GROUP)
		freshen(flow, &flow->groups[job->group]);
	*stats = job->stats;
}

void flow_counters(const struct flow *flow, struct flow_counters *counters)
{
	*counters = flow->counters;
}
