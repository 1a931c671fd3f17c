// SPDX-License-Identifier: GPL-2.0-only
/* Shares of links: weighted max-min within a class of priority, the rest to the next class. */
#include <math.h>
#include <stdlib.h>
#include "internal.h"

/* However many flows, a link carries this share of its rate. */
#define LEAST_USE 0.3

static void *resized(void *memory, size_t count, size_t size)
{
	return must(realloc(memory, count * size));
}

/* For all jobs near, and all links that they cross. */
static void make_room(struct fill *fill, const struct flow *flow)
{
	uint32_t crossings = 0;

	for (uint32_t i = 0; i < flow->near.count; i++) {
		const struct job *job = &flow->jobs[flow->near.items[i]];
		const uint32_t *first = &job->spec.first[job->moment.phase];

		crossings += first[1] - first[0];
	}
	if (flow->near.count >= fill->job_room) {
		fill->job_room = 2 * flow->near.count + 8;
		fill->first = resized(fill->first, fill->job_room, sizeof(*fill->first));
		fill->lone = resized(fill->lone, fill->job_room, sizeof(*fill->lone));
		fill->weight = resized(fill->weight, fill->job_room, sizeof(*fill->weight));
		fill->turns = resized(fill->turns, fill->job_room, sizeof(*fill->turns));
	}
	if (crossings >= fill->crossing_room) {
		fill->crossing_room = 2 * crossings + 8;
		fill->crossings =
			resized(fill->crossings, fill->crossing_room, sizeof(*fill->crossings));
		fill->links = resized(fill->links, fill->crossing_room, sizeof(*fill->links));
		fill->asked = resized(fill->asked, fill->crossing_room, sizeof(*fill->asked));
	}
}

/*
 * What the filling needs of the jobs near and of the short links between them, side by side in
 * memory: it goes over them again and again.
 */
static void gather(struct flow *flow)
{
	struct fill *fill = &flow->fill;
	uint32_t links = 0, crossings = 0;

	make_room(fill, flow);
	for (uint32_t i = 0; i < flow->near.count; i++) {
		const struct job *job = &flow->jobs[flow->near.items[i]];
		uint32_t phase = job->moment.phase;

		fill->first[i] = crossings;
		fill->lone[i] = job->alone;
		fill->weight[i] = job->weight;
		for (uint32_t k = job->spec.first[phase]; k < job->spec.first[phase + 1]; k++) {
			struct link *link = &flow->links[job->spec.link[k]];

			if (!link->is_short)
				continue;
			if (link->placed != flow->mark) {
				link->placed = flow->mark;
				link->place = links;
				fill->links[links++] = (struct filled){.rate = link->rate,
								       .packets = link->packets,
								       .level = INFINITY};
			}
			fill->crossings[crossings++] =
				(struct crossing){job->spec.crossings[k], link->place};
		}
	}
	fill->first[flow->near.count] = crossings;
	fill->link_count = links;
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
	double exact = job->moment.rate * (double)(now - job->moment.updated);
	uint64_t sent = exact < 0x1p62 ? (uint64_t)exact : NEVER;
	bool all;

	/* To the nearest whole number, as llround() does, which takes longer. */
	if (exact < 0x1p52)
		sent += exact - (double)sent >= 0.5;
	all = sent >= job->moment.left;
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
	if (flow->rule.levels == 1) {
		job->weight = job->spec.weight * flow->weights[0] * job->fortune;
		return;
	}
	moment->level = (uint32_t)((double)(total - moment->left) / (double)total *
				   (flow->rule.levels + 1e-9));
	if (moment->level >= flow->rule.levels)
		moment->level = flow->rule.levels - 1;
	job->weight = job->spec.weight * flow->weights[moment->level] * job->fortune;
}

/*
 * What a link carries. One that isn't full, or that one job fills, loses nothing; else the windows
 * of many flows don't fit its queue, and it idles while some of them wait for a time-out.
 */
static double room(const struct flow_rule *rule, double rate, double packets, double flows,
		   bool crowded)
{
	if (!crowded || rule->loss <= 0)
		return rate;
	return rate * fmax(LEAST_USE, 1 - rule->loss * pow(flows / packets, rule->crowd));
}

static void open_links(struct flow *flow)
{
	struct fill *fill = &flow->fill;

	for (uint32_t i = 0; i < flow->near.count; i++) {
		for (uint32_t k = fill->first[i]; k < fill->first[i + 1]; k++) {
			struct filled *link = &fill->links[fill->crossings[k].link];

			link->active++;
			link->flows += flow->jobs[flow->near.items[i]].spec.flows;
			link->wanted += fill->lone[i] * fill->crossings[k].times;
		}
	}
	for (uint32_t i = 0; i < fill->link_count; i++) {
		struct filled *link = &fill->links[i];

		link->room = room(&flow->rule, link->rate, link->packets, link->flows,
				  link->active > 1 && link->wanted > link->rate);
		link->left = link->room;
	}
}

void measure_room(const struct flow *flow, struct link *link)
{
	double flows = 0, wanted = 0;

	for (uint32_t i = 0; i < link->sender_count; i++) {
		const struct job *job = &flow->jobs[link->senders[i].job];

		flows += job->spec.flows;
		wanted += job->alone * link->senders[i].times;
	}
	link->room = room(&flow->rule, link->rate, link->packets, flows,
			  link->sender_count > 1 && wanted > link->rate);
}

/* Keeps those links in `asked` that somebody who takes part is on. */
static void drop_idle(struct fill *fill)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < fill->asked_count; i++) {
		struct filled *link = &fill->links[fill->asked[i]];

		link->full = false;
		if (link->active)
			fill->asked[kept++] = fill->asked[i];
	}
	fill->asked_count = kept;
}

/* The class's jobs take part in the filling, and their weights are what its links' are divided by. */
static void open_class(struct flow *flow, uint32_t class)
{
	struct fill *fill = &flow->fill;

	flow->open.count = 0;
	for (uint32_t i = 0; i < fill->link_count; i++)
		fill->links[i].wanted = fill->links[i].active = 0;
	for (uint32_t i = 0; i < flow->near.count; i++) {
		if (flow->jobs[flow->near.items[i]].spec.priority != class)
			continue;
		push(&flow->open, i);
		for (uint32_t k = fill->first[i]; k < fill->first[i + 1]; k++) {
			struct filled *link = &fill->links[fill->crossings[k].link];

			link->active++;
			link->wanted += fill->weight[i] * fill->crossings[k].times;
		}
	}
	for (uint32_t i = 0; i < fill->link_count; i++)
		fill->asked[i] = i;
	fill->asked_count = fill->link_count;
	drop_idle(fill);
}

/* Takes a job's rate from its links; from then on it takes no part in the filling. */
static void fix(struct fill *fill, uint32_t near, double rate)
{
	for (uint32_t k = fill->first[near]; k < fill->first[near + 1]; k++) {
		struct filled *link = &fill->links[fill->crossings[k].link];
		double taken = rate * fill->crossings[k].times;

		link->left = link->left > taken ? link->left - taken : 0;
		link->wanted -= fill->weight[near] * fill->crossings[k].times;
		/* What rounding leaves when the last one goes is nobody's. */
		if (!--link->active)
			link->wanted = 0;
	}
}

/* The speed per weight at which the first link is full, or the first job has all it can take. */
static double next_stop(const struct flow *flow)
{
	const struct fill *fill = &flow->fill;
	double stop = INFINITY;

	for (uint32_t i = 0; i < flow->open.count; i++) {
		uint32_t near = flow->open.items[i];

		if (fill->lone[near] < stop * fill->weight[near])
			stop = fill->lone[near] / fill->weight[near];
	}
	for (uint32_t i = 0; i < fill->asked_count; i++) {
		const struct filled *link = &fill->links[fill->asked[i]];

		if (link->left < stop * link->wanted)
			stop = link->left / link->wanted;
	}
	return stop;
}

/* How many full links the job crosses. */
static uint32_t count_full(const struct fill *fill, uint32_t near)
{
	uint32_t count = 0;

	for (uint32_t k = fill->first[near]; k < fill->first[near + 1]; k++)
		count += fill->links[fill->crossings[k].link].full;
	return count;
}

/*
 * Notes links that are full at nearly the same level. False: no job crosses all of them, so that
 * change.c, which goes from jobs to their links, wouldn't find the one from the other.
 */
static bool note_tie(struct flow *flow, double stop, double edge)
{
	struct fill *fill = &flow->fill;
	uint32_t full = 0, capped = 0;
	bool exact = true, joined = false;

	for (uint32_t i = 0; i < fill->asked_count; i++) {
		const struct filled *link = &fill->links[fill->asked[i]];

		full += link->full;
		exact = exact && (!link->full || link->left / link->wanted == stop);
	}
	for (uint32_t i = 0; i < flow->open.count; i++) {
		uint32_t near = flow->open.items[i];

		if (fill->lone[near] > fill->weight[near] * edge)
			continue;
		capped++;
		exact = exact && fill->lone[near] / fill->weight[near] == stop;
	}
	if (exact)
		return true;
	for (uint32_t i = 0; i < fill->asked_count; i++)
		fill->links[fill->asked[i]].tied = fill->links[fill->asked[i]].full;
	for (uint32_t i = 0; i < flow->open.count && capped < 2 && !joined; i++) {
		uint32_t near = flow->open.items[i];

		joined = count_full(fill, near) == full &&
			 (!capped || fill->lone[near] <= fill->weight[near] * edge);
	}
	return joined;
}

/* Fixes those that can't go faster than at the stop; there is always one. */
static void stop_at(struct flow *flow, double stop)
{
	struct fill *fill = &flow->fill;
	double edge = stop * (1 + TIE);
	uint32_t kept = 0;

	for (uint32_t i = 0; i < fill->asked_count; i++) {
		struct filled *link = &fill->links[fill->asked[i]];

		link->full = link->left <= link->wanted * edge;
		if (link->full)
			link->level = stop;
	}
	fill->tied = !note_tie(flow, stop, edge) || stop <= fill->last * (1 + NEARLY) || fill->tied;
	fill->last = stop;
	for (uint32_t i = 0; i < flow->open.count; i++) {
		uint32_t near = flow->open.items[i];
		double lone = fill->lone[near], rate = stop * fill->weight[near];

		if (lone <= fill->weight[near] * edge || count_full(fill, near)) {
			struct job *job = &flow->jobs[flow->near.items[near]];

			job->share = rate < lone ? rate : lone;
			job->level = stop;
			fix(fill, near, job->share);
		} else {
			flow->open.items[kept++] = near;
		}
	}
	flow->open.count = kept;
	drop_idle(fill);
}

static uint32_t next_class(const struct flow *flow, uint32_t after)
{
	uint32_t next = UINT32_MAX;

	for (uint32_t i = 0; i < flow->near.count; i++) {
		uint32_t class = flow->jobs[flow->near.items[i]].spec.priority;

		if (class > after && class < next)
			next = class;
	}
	return next;
}

static void fill_by_class(struct flow *flow)
{
	uint32_t class = 0;

	do {
		open_class(flow, class);
		while (flow->open.count)
			stop_at(flow, next_stop(flow));
		class = next_class(flow, class);
	} while (class != UINT32_MAX);
}

/* With the links to themselves, who would be done first? Of equals, who asked first. */
static int goes_before(const void *a, const void *b)
{
	const struct turn *x = a, *y = b;

	if (x->wait != y->wait)
		return x->wait < y->wait ? -1 : 1;
	if (x->asked != y->asked)
		return x->asked < y->asked ? -1 : 1;
	return (x->near > y->near) - (x->near < y->near);
}

/* All that the job can take of what those before it left. */
static void fill_one(struct flow *flow, uint32_t near)
{
	struct fill *fill = &flow->fill;
	double weight = fill->weight[near], stop = fill->lone[near] / weight, rate;

	for (uint32_t k = fill->first[near]; k < fill->first[near + 1]; k++) {
		double wanted = weight * fill->crossings[k].times;
		double left = fill->links[fill->crossings[k].link].left;

		if (left < stop * wanted)
			stop = left / wanted;
	}
	rate = stop * weight;
	rate = rate < fill->lone[near] ? rate : fill->lone[near];
	flow->jobs[flow->near.items[near]].share = rate;
	fix(fill, near, rate);
}

static void fill_in_order(struct flow *flow)
{
	struct fill *fill = &flow->fill;

	for (uint32_t i = 0; i < flow->near.count; i++) {
		const struct job *job = &flow->jobs[flow->near.items[i]];

		fill->turns[i] =
			(struct turn){(double)job->moment.left / job->alone, job->moment.asked, i};
	}
	qsort(fill->turns, flow->near.count, sizeof(*fill->turns), goes_before);
	for (uint32_t i = 0; i < flow->near.count; i++)
		fill_one(flow, fill->turns[i].near);
}

/* Shares of all jobs of the chain from nothing. */
static void fill_whole(struct flow *flow, const struct list *chain)
{
	struct fill *fill = &flow->fill;

	flow->near.count = 0;
	for (uint32_t i = 0; i < chain->count; i++)
		push(&flow->near, chain->items[i]);
	sort(&flow->near);
	flow->mark++;
	gather(flow);
	open_links(flow);
	fill->last = 0;
	fill->tied = false;
	if (flow->rule.order)
		fill_in_order(flow);
	else
		fill_by_class(flow);
	for (uint32_t i = 0; i < flow->near.count; i++) {
		struct job *job = &flow->jobs[flow->near.items[i]];

		job->whole = fill->tied;
		count_share(flow, flow->near.items[i]);
		for (uint32_t k = 0; k < job->short_count; k++) {
			struct link *link = &flow->links[job->shorts[k].link];

			link->room = fill->links[link->place].room;
			link->level = fill->links[link->place].level;
			link->tied = fill->links[link->place].tied;
		}
	}
}

/*
 * Sums go over jobs in ascending order: they must not depend on how jobs were found, or a state
 * that comes back wouldn't be the same.
 */
void fill_around(struct flow *flow, uint32_t number, uint64_t now)
{
	const struct list *chain = &flow->chains[flow->jobs[number].chain];
	bool whole = flow->rule.order || flow->rule.whole;

	flow->counters.fills++;
	for (uint32_t i = 0; i < chain->count; i++) {
		struct job *job = &flow->jobs[chain->items[i]];
		double weight = job->weight;

		refresh(flow, job, now);
		if (job->weight != weight || job->again)
			push(&flow->changing, chain->items[i]);
		job->again = false;
		whole = whole || job->whole || job->spec.priority;
	}
	if (whole || !change_shares(flow, chain))
		fill_whole(flow, chain);
	flow->changing.count = 0;
	for (uint32_t i = 0; i < chain->count; i++) {
		struct job *job = &flow->jobs[chain->items[i]];

		job->moment.rate = job->share;
		set_next(flow, job, now, chain->count == 1);
	}
}
