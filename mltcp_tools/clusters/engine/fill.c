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

/* Whether those that send ask for more than the link carries. If not, none of them slows another. */
static bool is_short(const struct link *link)
{
	/* Parts are rounded, so that jobs that just fit may seem to ask for a little more. */
	return link->asked > WHOLE + 4;
}

void ask(struct flow *flow, const struct job *job, bool begins)
{
	uint32_t phase = job->moment.phase;

	for (uint32_t i = job->spec.first[phase]; i < job->spec.first[phase + 1]; i++) {
		struct link *link = &flow->links[job->spec.link[i]];

		link->asked += begins ? job->asks[i] : -job->asks[i];
	}
}

static void find_links(struct flow *flow, uint32_t number)
{
	struct job *job = &flow->jobs[number];
	uint32_t phase = job->moment.phase;

	for (uint32_t i = job->spec.first[phase]; i < job->spec.first[phase + 1]; i++) {
		struct link *link = &flow->links[job->spec.link[i]];

		if (!is_short(link) || link->mark == flow->mark)
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

void draw_fortune(struct job *job)
{
	uint64_t draw = 2 * (uint64_t)(job->moment.burst / job->spec.lasting);
	double radius, angle;

	job->fortune = 1;
	if (job->spec.luck <= 0)
		return;
	radius = sqrt(-2 * log(uniform(job->spec.seed, draw)));
	angle = 2 * M_PI * uniform(job->spec.seed, draw + 1);
	job->fortune = exp(job->spec.luck * radius * cos(angle));
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

	settle(job, now);
	moment->level = (uint32_t)((double)(total - moment->left) / (double)total *
				   (flow->rule.levels + 1e-9));
	if (moment->level >= flow->rule.levels)
		moment->level = flow->rule.levels - 1;
	job->weight = job->spec.weight * flow->weights[moment->level] * job->fortune;
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
		if (link->active > 1 && link->wanted > link->rate && flow->rule.loss > 0) {
			double crowd = link->flows / link->packets;

			link->left *=
				fmax(LEAST_USE, 1 - flow->rule.loss * pow(crowd, flow->rule.crowd));
		}
	}
}

/* With the links to themselves, who would be done first? Of equals, who asked first. */
static bool goes_before(const struct job *a, const struct job *b)
{
	double one = (double)a->moment.left / a->lone[a->moment.phase];
	double other = (double)b->moment.left / b->lone[b->moment.phase];

	if (one != other)
		return one < other;
	return a->moment.asked < b->moment.asked;
}

/* Each job's class: its priority, or its place in the order of what they have left. */
static void rank(struct flow *flow)
{
	uint32_t *order;

	flow->open.count = 0;
	for (uint32_t i = 0; i < flow->near.count; i++) {
		struct job *job = &flow->jobs[flow->near.items[i]];
		uint32_t place = flow->open.count;

		job->rank = job->spec.priority;
		if (!flow->rule.order)
			continue;
		push(&flow->open, flow->near.items[i]);
		order = flow->open.items;
		for (; place && goes_before(job, &flow->jobs[order[place - 1]]); place--)
			order[place] = order[place - 1];
		order[place] = flow->near.items[i];
	}
	for (uint32_t i = 0; i < flow->open.count; i++)
		flow->jobs[flow->open.items[i]].rank = i;
}

/* The class's jobs take part in the filling, and their weights are what its links' are divided by. */
static void open_class(struct flow *flow, uint32_t class)
{
	flow->open.count = 0;
	for (uint32_t i = 0; i < flow->near_links.count; i++) {
		struct link *link = &flow->links[flow->near_links.items[i]];

		link->wanted = 0;
		link->active = 0;
	}
	for (uint32_t i = 0; i < flow->near.count; i++) {
		struct job *job = &flow->jobs[flow->near.items[i]];
		uint32_t phase = job->moment.phase;

		if (job->rank != class)
			continue;
		push(&flow->open, flow->near.items[i]);
		for (uint32_t k = job->spec.first[phase]; k < job->spec.first[phase + 1]; k++) {
			struct link *link = &flow->links[job->spec.link[k]];

			link->active++;
			link->wanted += job->weight * job->spec.crossings[k];
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
		double taken = rate * job->spec.crossings[k];

		link->left = link->left > taken ? link->left - taken : 0;
		link->wanted -= job->weight * job->spec.crossings[k];
		/* What rounding leaves when the last one goes is nobody's. */
		if (!--link->active)
			link->wanted = 0;
	}
}

/* The speed per weight at which the first link is full, or the first job has all it can take. */
static double next_stop(const struct flow *flow)
{
	double stop = INFINITY;

	for (uint32_t i = 0; i < flow->open.count; i++) {
		const struct job *job = &flow->jobs[flow->open.items[i]];
		double own = job->lone[job->moment.phase] / job->weight;

		if (own < stop)
			stop = own;
	}
	for (uint32_t i = 0; i < flow->near_links.count; i++) {
		const struct link *link = &flow->links[flow->near_links.items[i]];

		if (link->active && link->left < stop * link->wanted)
			stop = link->left / link->wanted;
	}
	return stop;
}

static bool crosses_full(const struct flow *flow, const struct job *job)
{
	uint32_t phase = job->moment.phase;

	for (uint32_t k = job->spec.first[phase]; k < job->spec.first[phase + 1]; k++)
		if (flow->links[job->spec.link[k]].full)
			return true;
	return false;
}

/* Fixes those that can't go faster than at the stop; there is always one. */
static void stop_at(struct flow *flow, double stop)
{
	double edge = stop * (1 + 1e-9);
	uint32_t kept = 0;

	flow->stop++;
	for (uint32_t i = 0; i < flow->near_links.count; i++) {
		struct link *link = &flow->links[flow->near_links.items[i]];

		link->full = link->active && link->left <= link->wanted * edge;
		for (uint32_t j = 0; link->full && j < link->jobs.count; j++)
			flow->jobs[link->jobs.items[j]].stop = flow->stop;
	}
	for (uint32_t i = 0; i < flow->open.count; i++) {
		struct job *job = &flow->jobs[flow->open.items[i]];
		double lone = job->lone[job->moment.phase], rate = stop * job->weight;

		/* Only those on a full link can cross it in this phase, which takes longer to see. */
		if (lone <= job->weight * edge ||
		    (job->stop == flow->stop && crosses_full(flow, job)))
			fix(flow, job, rate < lone ? rate : lone);
		else
			flow->open.items[kept++] = flow->open.items[i];
	}
	flow->open.count = kept;
	for (uint32_t i = 0; i < flow->near_links.count; i++)
		flow->links[flow->near_links.items[i]].full = false;
}

static uint32_t next_class(const struct flow *flow, uint32_t after)
{
	uint32_t next = UINT32_MAX;

	for (uint32_t i = 0; i < flow->near.count; i++) {
		uint32_t class = flow->jobs[flow->near.items[i]].rank;

		if (class > after && class < next)
			next = class;
	}
	return next;
}

void fill_around(struct flow *flow, uint32_t number, uint64_t now)
{
	uint32_t class = 0;

	flow->counters.fills++;
	find_near(flow, number);
	for (uint32_t i = 0; i < flow->near.count; i++)
		refresh(flow, &flow->jobs[flow->near.items[i]], now);
	open_links(flow);
	rank(flow);
	do {
		open_class(flow, class);
		while (flow->open.count)
			stop_at(flow, next_stop(flow));
		class = next_class(flow, class);
	} while (class != UINT32_MAX);
	for (uint32_t i = 0; i < flow->near.count; i++) {
		struct job *job = &flow->jobs[flow->near.items[i]];

		job->moment.rate = job->share;
		set_next(flow, job, now, flow->near.count == 1);
	}
}
