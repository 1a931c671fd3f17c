// SPDX-License-Identifier: BSD-2-Clause
/* The simulator as its caller sees it: jobs come and go, time passes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "internal.h"

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

		flow->weights[i] = pow(rule->intercept + rule->slope * progress, rule->power);
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
	free(job->lone);
	free(job->asks);
	free(job->lost_ns);
	free(job->shorts.items);
	*job = (struct job){0};
}

static void free_fill(struct fill *fill)
{
	free(fill->first);
	free(fill->asked);
	free(fill->on);
	free(fill->open);
	free(fill->most);
	free(fill->weight);
	free(fill->share);
	free(fill->crossings);
	free(fill->links);
}

void flow_free(struct flow *flow)
{
	for (uint32_t i = 0; i < flow->job_count; i++)
		free_job(&flow->jobs[i]);
	for (uint32_t i = 0; i < flow->link_count; i++)
		free(flow->links[i].senders.items);
	free_fill(&flow->fill);
	free(flow->links);
	free(flow->weights);
	free(flow->jobs);
	free(flow->free_jobs.items);
	free(flow->heap.items);
	free(flow->chain.items);
	free(flow->near.items);
	free(flow->ended.items);
	free(flow);
}

/* How fast each phase is with its links to itself, and what that asks of each link. */
static void measure(struct flow *flow, struct job *job)
{
	const struct flow_job *spec = &job->spec;
	uint32_t total = spec->first[spec->phases];

	job->lone = must(calloc(spec->phases, sizeof(*job->lone)));
	job->asks = must(calloc(total ? total : 1, sizeof(*job->asks)));
	job->lost_ns = must(calloc(total ? total : 1, sizeof(*job->lost_ns)));
	for (uint32_t phase = 0; phase < spec->phases; phase++) {
		double lone = INFINITY;

		for (uint32_t i = spec->first[phase]; i < spec->first[phase + 1]; i++)
			lone = fmin(lone, flow->links[spec->link[i]].rate / spec->crossings[i]);
		/* Bytes that cross no link take the shortest time there is. */
		job->lone[phase] = lone < INFINITY ? lone : 0x1p60;
		for (uint32_t i = spec->first[phase]; i < spec->first[phase + 1]; i++) {
			double part = lone * spec->crossings[i] / flow->links[spec->link[i]].rate;

			job->asks[i] = (uint64_t)llround(part * (double)WHOLE);
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

uint32_t flow_add(struct flow *flow, const struct flow_job *spec)
{
	uint32_t number = new_job(flow), phases = spec->phases, crossings = spec->first[phases];
	struct job *job = &flow->jobs[number];

	*job = (struct job){.spec = *spec};
	job->spec.compute_ns =
		copied(spec->compute_ns, (size_t)spec->rows * phases, sizeof(*spec->compute_ns));
	job->spec.bytes = copied(spec->bytes, phases, sizeof(*spec->bytes));
	job->spec.first = copied(spec->first, phases + 1, sizeof(*spec->first));
	job->spec.link = copied(spec->link, crossings, sizeof(*spec->link));
	job->spec.crossings = copied(spec->crossings, crossings, sizeof(*spec->crossings));
	measure(flow, job);
	job->moment.began = spec->start_ns > flow->now ? spec->start_ns : flow->now;
	heap_add(flow, number);
	begin_phase(flow, number, job->moment.began);
	return number;
}

void flow_remove(struct flow *flow, uint32_t number)
{
	struct job *job = &flow->jobs[number];

	if (job->moment.state == SENDING)
		stop_burst(flow, number, flow->now);
	heap_remove(flow, number);
	drop(&flow->ended, number);
	free_job(job);
	push(&flow->free_jobs, number);
}

void flow_time_shifts(struct flow *flow, uint32_t number, uint64_t period_ns, uint64_t due_ns,
		      uint64_t slack_ns)
{
	struct moment *moment = &flow->jobs[number].moment;

	moment->period = period_ns;
	moment->due = due_ns;
	moment->slack = slack_ns;
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
	while (flow->heap.count) {
		uint32_t first = flow->heap.items[0];
		uint64_t next = flow->jobs[first].moment.at;

		/* Whatever else happens when a job ends does so before the caller acts. */
		if (next > until || next == NEVER || (flow->ended.count && next > flow->now))
			break;
		flow->now = next;
		happen(flow, first, next);
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

void flow_stats(const struct flow *flow, uint32_t number, struct flow_stats *stats)
{
	*stats = flow->jobs[number].stats;
}

void flow_lost(const struct flow *flow, uint32_t number, double *lost_ns)
{
	const struct job *job = &flow->jobs[number];
	uint32_t crossings = job->spec.first[job->spec.phases];

	memcpy(lost_ns, job->lost_ns, crossings * sizeof(*lost_ns));
}
