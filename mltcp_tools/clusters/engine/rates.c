// SPDX-License-Identifier: BSD-2-Clause
/*
 * Rates of jobs that send. An event concerns only the jobs that a chain of short links joins to its
 * own: a link is short where those that send over it ask for more than it carries.
 */
#include <math.h>
#include "state.h"

/* However many flows, a link carries this share of its rate. */
#define LEAST_USE 0.3

/* Whether those that send ask for more than the link carries. If not, none of them slows another. */
static bool asks_too_much(const struct link *link)
{
	/* Parts are rounded, so that jobs that just fit may seem to ask for a little more. */
	return link->asked > WHOLE + 4;
}

/* The link is short from now on, or isn't any more, for all that send over it. */
static void set_short(struct flow *flow, uint32_t number, bool is_short)
{
	struct link *link = &flow->links[number];

	link->is_short = is_short;
	for (uint32_t i = 0; i < link->senders.count; i++) {
		struct job *job = &flow->jobs[link->senders.items[i]];
		uint32_t at = 0;

		while (job->crossings[at].link != number)
			at++;
		if (is_short)
			push(&job->shorts, at);
		else
			drop(&job->shorts, at);
	}
}

void rates_enter(struct flow *flow, uint32_t number)
{
	struct job *job = &flow->jobs[number];

	job->shorts.count = 0;
	for (uint32_t i = 0; i < job->spec.links; i++) {
		struct link *link = &flow->links[job->crossings[i].link];

		link->asked += job->crossings[i].asks;
		push(&link->senders, number);
		if (link->is_short)
			push(&job->shorts, i);
		else if (asks_too_much(link))
			set_short(flow, job->crossings[i].link, true);
	}
}

void rates_leave(struct flow *flow, uint32_t number)
{
	struct job *job = &flow->jobs[number];

	for (uint32_t i = 0; i < job->spec.links; i++)
		drop(&flow->links[job->crossings[i].link].senders, number);
	flow->near.count = 0;
	for (uint32_t i = 0; i < job->shorts.count; i++) {
		const struct link *link = &flow->links[job->crossings[job->shorts.items[i]].link];

		for (uint32_t j = 0; j < link->senders.count; j++)
			push(&flow->near, link->senders.items[j]);
	}
	for (uint32_t i = 0; i < job->spec.links; i++) {
		struct link *link = &flow->links[job->crossings[i].link];

		link->asked -= job->crossings[i].asks;
		if (link->is_short && !asks_too_much(link))
			set_short(flow, job->crossings[i].link, false);
	}
}

void rates_find_chain(struct flow *flow, uint32_t number)
{
	struct list *chain = &flow->chain;

	flow->jobs[number].mark = ++flow->mark;
	chain->count = 0;
	push(chain, number);
	for (uint32_t i = 0; i < chain->count; i++) {
		const struct job *job = &flow->jobs[chain->items[i]];

		for (uint32_t j = 0; j < job->shorts.count; j++) {
			struct link *link = &flow->links[job->crossings[job->shorts.items[j]].link];

			if (link->mark == flow->mark)
				continue;
			link->mark = flow->mark;
			for (uint32_t k = 0; k < link->senders.count; k++) {
				struct job *other = &flow->jobs[link->senders.items[k]];

				if (other->mark == flow->mark)
					continue;
				other->mark = flow->mark;
				push(chain, link->senders.items[k]);
			}
		}
	}
}

/* For so many users and crossings. */
static void make_room(struct flow *flow, uint32_t needed)
{
	struct filling *filling = &flow->filling;

	if (needed <= flow->room)
		return;
	flow->room = 2 * needed;
	RESIZE(filling->first, flow->room);
	RESIZE(filling->asked, flow->room);
	RESIZE(filling->on, flow->room);
	RESIZE(filling->open, flow->room);
	RESIZE(filling->most, flow->room);
	RESIZE(filling->weight, flow->room);
	RESIZE(filling->share, flow->room);
	RESIZE(filling->crossings, flow->room);
	RESIZE(filling->links, flow->room);
}

/*
 * What a link carries. One that isn't full, or that one job fills, loses nothing; else the windows
 * of many flows don't fit its queue, and it idles while some of them wait for a time-out.
 */
static double carries(const struct flow *flow, const struct link *link)
{
	double flows = 0;

	if (link->senders.count < 2 || flow->rule.loss <= 0)
		return link->rate;
	for (uint32_t i = 0; i < link->senders.count; i++)
		flows += flow->jobs[link->senders.items[i]].spec.flows;
	return link->rate *
	       fmax(LEAST_USE, 1 - flow->rule.loss * pow(flows / link->packets, flow->rule.crowd));
}

/* Shares of the chain's jobs, side by side in memory, as filling goes over them often. */
static void fill_chain(struct flow *flow)
{
	const struct list *chain = &flow->chain;
	struct filling *filling = &flow->filling;
	uint32_t crossings = 0, total = chain->count + 1;

	for (uint32_t i = 0; i < chain->count; i++)
		total += flow->jobs[chain->items[i]].shorts.count;
	make_room(flow, total);
	flow->mark++;
	filling->link_count = 0;
	filling->open_count = chain->count;
	for (uint32_t i = 0; i < chain->count; i++) {
		const struct job *job = &flow->jobs[chain->items[i]];

		filling->first[i] = crossings;
		filling->open[i] = i;
		filling->most[i] = job->lone;
		filling->weight[i] = job->weight;
		for (uint32_t k = 0; k < job->shorts.count; k++) {
			const struct crossing *crossing = &job->crossings[job->shorts.items[k]];
			struct link *link = &flow->links[crossing->link];

			if (link->mark != flow->mark) {
				link->mark = flow->mark;
				link->place = filling->link_count++;
				filling->links[link->place] =
					(struct filling_link){.left = carries(flow, link)};
			}
			filling->crossings[crossings++] =
				(struct filling_crossing){crossing->times, link->place};
		}
	}
	filling->first[chain->count] = crossings;
	fill(filling);
}

/* Of the job's links that are short the one with least left, if it slows the job. */
static uint32_t full_crossing(const struct flow *flow, const struct job *job)
{
	uint32_t found = NONE;
	double least = INFINITY;

	if (job->rate >= job->lone * (1 - 1e-9))
		return NONE;
	for (uint32_t k = 0; k < job->shorts.count; k++) {
		const struct link *link = &flow->links[job->crossings[job->shorts.items[k]].link];
		double left = flow->filling.links[link->place].left / link->rate;

		if (left < least - 1e-9) {
			least = left;
			found = job->shorts.items[k];
		}
	}
	return found;
}

void rates_share(struct flow *flow)
{
	const struct list *chain = &flow->chain;

	if (chain->count > 1)
		fill_chain(flow);
	for (uint32_t i = 0; i < chain->count; i++) {
		struct job *job = &flow->jobs[chain->items[i]];

		job->rate = chain->count > 1 ? flow->filling.share[i] : job->lone;
		job->full = full_crossing(flow, job);
	}
}

void rates_free(struct flow *flow)
{
	struct filling *filling = &flow->filling;
	void *arrays[] = {
		filling->first,	 filling->asked, filling->on,	     filling->open,  filling->most,
		filling->weight, filling->share, filling->crossings, filling->links,
	};

	for (size_t i = 0; i < sizeof(arrays) / sizeof(*arrays); i++)
		free(arrays[i]);
}
