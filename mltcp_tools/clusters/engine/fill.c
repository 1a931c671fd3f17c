// SPDX-License-Identifier: GPL-2.0-only
/* Shares of links: weighted max-min within a class of priority, the rest to the next class. */
#include <math.h>
#include "internal.h"

/* However many flows, a link carries this share of its rate. */
#define LEAST_USE 0.3

static void sort(struct list *list)
{
	for (uint32_t i = 1; i < list->count; i++) {
		uint32_t item = list->items[i], at = i;

		for (; at && list->items[at - 1] > item; at--)
			list->items[at] = list->items[at - 1];
		list->items[at] = item;
	}
}

static bool sends(const struct job *job)
{
	return job->used && job->moment.state == SENDING;
}

static void find_links(struct flow *flow, uint32_t number)
{
	struct job *job = &flow->jobs[number];
	uint32_t phase = job->moment.phase;

	for (uint32_t i = job->spec.first[phase]; i < job->spec.first[phase + 1]; i++) {
		struct link *link = &flow->links[job->spec.link[i]];

		if (!link->contended || link->mark == flow->mark)
			continue;
		link->mark = flow->mark;
		push(&flow->near_links, job->spec.link[i]);
		for (uint32_t j = 0; j < link->jobs.count; j++) {
			uint32_t other = link->jobs.items[j];

			if (flow->jobs[other].mark == flow->mark || !sends(&flow->jobs[other]))
				continue;
			flow->jobs[other].mark = flow->mark;
			push(&flow->near, other);
			push(&flow->stack, other);
		}
	}
}

/*
 * Those that send and that a chain of short links joins to the job, in ascending order: the order
 * of sums must not depend on how they were found, or a state that comes back wouldn't be the same.
 */
static void find_near(struct flow *flow, uint32_t number)
{
	flow->near.count = flow->near_links.count = flow->stack.count = 0;
	flow->mark++;
	flow->jobs[number].mark = flow->mark;
	if (sends(&flow->jobs[number]))
		push(&flow->near, number);
	push(&flow->stack, number);
	while (flow->stack.count)
		find_links(flow, flow->stack.items[--flow->stack.count]);
	sort(&flow->near);
	sort(&flow->near_links);
}

/* A number from 0 to 1 that depends on seed and burst only (splitmix64's finalizer). */
static double uniform(uint64_t seed, uint64_t number)
{
	uint64_t bits = seed + number * 0x9e3779b97f4a7c15ULL;

	bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9ULL;
	bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebULL;
	bits ^= bits >> 31;
	return (double)(bits >> 11) * 0x1p-53 + 0x1p-54;
}

/* What was sent until now at the rate before. Says whether that is all. */
bool settle(struct job *job, uint64_t now)
{
	uint64_t sent = (uint64_t)llround(job->moment.rate * (double)(now - job->moment.updated));

	bool all = sent >= job->moment.left;

	job->moment.left = all ? 1 : job->moment.left - sent;
	job->moment.updated = now;
	return all;
}

/* A job's weight, and before that what it has sent and how far that brought it. */
static void refresh(const struct flow *flow, struct job *job, uint64_t now)
{
	struct moment *moment = &job->moment;
	uint64_t total = job->spec.bytes[moment->phase];
	double luck = job->spec.luck;

	settle(job, now);
	moment->level = (uint32_t)((double)(total - moment->left) / (double)total *
				   (flow->rule.levels + 1e-9));
	if (moment->level >= flow->rule.levels)
		moment->level = flow->rule.levels - 1;
	job->weight = job->spec.weight * flow->weights[moment->level];
	if (luck > 0) {
		uint64_t draw = 2 * (uint64_t)moment->burst;
		double radius = sqrt(-2 * log(uniform(job->spec.seed, draw)));
		double angle = 2 * M_PI * uniform(job->spec.seed, draw + 1);

		job->weight *= exp(luck * radius * cos(angle));
	}
}

/*
 * What links carry. One that isn't full, or that one job fills, loses nothing; else the windows of
 * many flows don't fit its queue, and it idles while some of them wait for a time-out.
 */
static void open_links(struct flow *flow)
{
	for (uint32_t i = 0; i < flow->near_links.count; i++) {
		struct link *link = &flow->links[flow->near_links.items[i]];

		link->active = 0;
		link->flows = 0;
		link->wanted = 0;
	}
	for (uint32_t i = 0; i < flow->near.count; i++) {
		struct job *job = &flow->jobs[flow->near.items[i]];
		uint32_t phase = job->moment.phase;

		for (uint32_t k = job->spec.first[phase]; k < job->spec.first[phase + 1]; k++) {
			struct link *link = &flow->links[job->spec.link[k]];

			link->active++;
			link->flows += job->spec.flows;
			link->wanted += job->lone[phase] * job->spec.crossings[k];
		}
	}
	for (uint32_t i = 0; i < flow->near_links.count; i++) {
		struct link *link = &flow->links[flow->near_links.items[i]];

		link->left = link->rate;
		if (link->active > 1 && link->wanted > link->rate) {
			double crowd = link->flows / link->packets;

			link->left *=
				fmax(LEAST_USE, 1 - flow->rule.loss * pow(crowd, flow->rule.crowd));
		}
	}
}

/* Takes a job's rate from its links; from then on it takes no part in the filling. */
static void fix(struct flow *flow, struct job *job, double rate)
{
	uint32_t phase = job->moment.phase;

	job->share = rate;
	for (uint32_t k = job->spec.first[phase]; k < job->spec.first[phase + 1]; k++) {
		struct link *link = &flow->links[job->spec.link[k]];

		if (link->contended)
			link->left = fmax(0, link->left - rate * job->spec.crossings[k]);
	}
}

static bool open_in(const struct job *job, uint32_t priority)
{
	return job->share < 0 && job->spec.priority == priority;
}

/* The speed per weight at which the first link is full, or the first job has all it can take. */
static double next_stop(struct flow *flow, uint32_t priority)
{
	double stop = INFINITY;

	for (uint32_t i = 0; i < flow->near_links.count; i++)
		flow->links[flow->near_links.items[i]].wanted = 0;
	for (uint32_t i = 0; i < flow->near.count; i++) {
		struct job *job = &flow->jobs[flow->near.items[i]];
		uint32_t phase = job->moment.phase;

		if (!open_in(job, priority))
			continue;
		stop = fmin(stop, job->lone[phase] / job->weight);
		for (uint32_t k = job->spec.first[phase]; k < job->spec.first[phase + 1]; k++)
			flow->links[job->spec.link[k]].wanted +=
				job->weight * job->spec.crossings[k];
	}
	for (uint32_t i = 0; i < flow->near_links.count; i++) {
		struct link *link = &flow->links[flow->near_links.items[i]];

		if (link->wanted > 0)
			stop = fmin(stop, link->left / link->wanted);
	}
	return stop;
}

static bool stops(struct flow *flow, const struct job *job, double stop)
{
	uint32_t phase = job->moment.phase;
	double edge = stop * (1 + 1e-9);

	if (job->lone[phase] <= job->weight * edge)
		return true;
	for (uint32_t k = job->spec.first[phase]; k < job->spec.first[phase + 1]; k++) {
		struct link *link = &flow->links[job->spec.link[k]];

		if (link->contended && link->left <= link->wanted * edge)
			return true;
	}
	return false;
}

static void fill_class(struct flow *flow, uint32_t priority)
{
	for (;;) {
		double stop = next_stop(flow, priority);

		if (stop == INFINITY)
			return;
		flow->stack.count = 0;
		for (uint32_t i = 0; i < flow->near.count; i++) {
			struct job *job = &flow->jobs[flow->near.items[i]];

			if (open_in(job, priority) && stops(flow, job, stop))
				push(&flow->stack, flow->near.items[i]);
		}
		for (uint32_t i = 0; i < flow->stack.count; i++) {
			struct job *job = &flow->jobs[flow->stack.items[i]];

			fix(flow, job, fmin(stop * job->weight, job->lone[job->moment.phase]));
		}
	}
}

void fill_around(struct flow *flow, uint32_t number, uint64_t now)
{
	bool found = true;
	uint32_t priority = 0, next;

	flow->counters.fills++;
	find_near(flow, number);
	open_links(flow);
	for (uint32_t i = 0; i < flow->near.count; i++) {
		flow->jobs[flow->near.items[i]].share = -1;
		refresh(flow, &flow->jobs[flow->near.items[i]], now);
	}
	while (found) {
		fill_class(flow, priority);
		found = false;
		next = UINT32_MAX;
		for (uint32_t i = 0; i < flow->near.count; i++) {
			struct job *job = &flow->jobs[flow->near.items[i]];

			if (job->share < 0 && job->spec.priority <= next) {
				next = job->spec.priority;
				found = true;
			}
		}
		priority = next;
	}
	for (uint32_t i = 0; i < flow->near.count; i++) {
		struct job *job = &flow->jobs[flow->near.items[i]];

		job->moment.rate = job->share;
		set_next(flow, job, now, flow->near.count == 1);
	}
}
