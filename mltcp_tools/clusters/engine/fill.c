// SPDX-License-Identifier: BSD-2-Clause
/* Shares of short links among the jobs of a chain. */
#include <math.h>
#include <stdlib.h>
#include "internal.h"

/* However many flows, a link carries this share of its rate. */
#define LEAST_USE 0.3

#define RESIZE(array, count) ((array) = must(realloc(array, (count) * sizeof(*(array)))))

/* For all jobs of the chain, and all links that they cross. */
static void make_room(struct fill *fill, const struct flow *flow, const struct list *chain)
{
	uint32_t crossings = 0;

	for (uint32_t i = 0; i < chain->count; i++)
		crossings += flow->jobs[chain->items[i]].shorts.count;
	if (chain->count >= fill->job_room) {
		fill->job_room = 2 * chain->count + 8;
		RESIZE(fill->first, fill->job_room);
		RESIZE(fill->open, fill->job_room);
		RESIZE(fill->most, fill->job_room);
		RESIZE(fill->weight, fill->job_room);
		RESIZE(fill->share, fill->job_room);
	}
	if (crossings >= fill->crossing_room) {
		fill->crossing_room = 2 * crossings + 8;
		RESIZE(fill->crossings, fill->crossing_room);
		RESIZE(fill->on, fill->crossing_room);
		RESIZE(fill->links, fill->crossing_room);
		RESIZE(fill->asked, fill->crossing_room);
	}
}

/*
 * What a link carries. One that isn't full, or that one job fills, loses nothing; else the windows
 * of many flows don't fit its queue, and it idles while some of them wait for a time-out.
 */
static double room(const struct flow *flow, const struct link *link)
{
	double flows = 0;

	if (link->senders.count < 2 || flow->rule.loss <= 0)
		return link->rate;
	for (uint32_t i = 0; i < link->senders.count; i++)
		flows += flow->jobs[link->senders.items[i]].spec.flows;
	return link->rate *
	       fmax(LEAST_USE, 1 - flow->rule.loss * pow(flows / link->packets, flow->rule.crowd));
}

/* The jobs and the short links between them, side by side in memory: filling goes over them often. */
static void gather(struct flow *flow, const struct list *chain)
{
	struct fill *fill = &flow->fill;
	uint32_t links = 0, crossings = 0;

	make_room(fill, flow, chain);
	flow->mark++;
	for (uint32_t i = 0; i < chain->count; i++) {
		const struct job *job = &flow->jobs[chain->items[i]];

		fill->first[i] = crossings;
		fill->open[i] = i;
		fill->most[i] = job->lone[job->moment.phase];
		fill->weight[i] = job->weight;
		for (uint32_t k = 0; k < job->shorts.count; k++) {
			uint32_t crossing = job->shorts.items[k];
			struct link *link = &flow->links[job->spec.link[crossing]];

			if (link->mark != flow->mark) {
				link->mark = flow->mark;
				link->place = links;
				fill->links[links++] =
					(struct filling_link){.left = room(flow, link)};
			}
			fill->crossings[crossings++] = (struct filling_crossing){
				job->spec.crossings[crossing], link->place};
		}
	}
	fill->first[chain->count] = crossings;
	fill->filling = (struct filling){
		.first = fill->first,
		.crossings = fill->crossings,
		.most = fill->most,
		.weight = fill->weight,
		.share = fill->share,
		.links = fill->links,
		.link_count = links,
		.asked = fill->asked,
		.on = fill->on,
		.open = fill->open,
		.open_count = chain->count,
	};
}

/* Of the job's links that are short the one with least left, if it slows the job. */
static uint32_t full_crossing(const struct flow *flow, const struct job *job)
{
	uint32_t found = NONE;
	double least = INFINITY;

	if (job->share >= job->lone[job->moment.phase] * (1 - 1e-9))
		return NONE;
	for (uint32_t k = 0; k < job->shorts.count; k++) {
		const struct link *link = &flow->links[job->spec.link[job->shorts.items[k]]];
		double left = flow->fill.links[link->place].left / link->rate;

		if (left < least - 1e-9) {
			least = left;
			found = job->shorts.items[k];
		}
	}
	return found;
}

void fill_chain(struct flow *flow)
{
	const struct list *chain = &flow->chain;
	struct job *only = &flow->jobs[chain->items[0]];

	flow->fills++;
	if (chain->count == 1) {
		only->share = only->lone[only->moment.phase];
		only->full = NONE;
		return;
	}
	gather(flow, chain);
	fill(&flow->fill.filling);
	for (uint32_t i = 0; i < chain->count; i++) {
		struct job *job = &flow->jobs[chain->items[i]];

		job->share = flow->fill.share[i];
		job->full = full_crossing(flow, job);
	}
}
