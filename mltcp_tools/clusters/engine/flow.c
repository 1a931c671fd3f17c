// SPDX-License-Identifier: BSD-2-Clause
/*
 * Events of jobs that compute and send.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "state.h"

/* The first whole nanosecond, at least one from now, at which so many bytes are sent. */
static uint64_t after(uint64_t now, double bytes, double rate)
{
	double wait = fmax(1, ceil(bytes / rate));

	return wait < 0x1p62 ? now + (uint64_t)wait : NEVER;
}

/* When a job that sends is done, or where others are near, when its weight changes. */
static uint64_t next_event(const struct flow *flow, const struct job *job, bool alone)
{
	uint64_t total = job->spec.bytes, at, step;
	double edge;

	if (job->rate <= 0)
		return NEVER;
	at = after(flow->now, (double)job->left, job->rate);
	if (alone || job->level + 1 >= flow->rule.levels)
		return at;
	/* A whole number, or what rounding leaves of it would never be sent. */
	edge = ceil((double)total * (job->level + 1) / flow->rule.levels);
	step = after(flow->now, edge - (double)(total - job->left), job->rate);
	return step < at ? step : at;
}

/* What was sent until now at the rate before. Says whether that is all. */
static bool settle(struct job *job, uint64_t now)
{
	double took = (double)(now - job->updated), exact = job->rate * took;
	uint64_t sent = exact < 0x1p62 ? (uint64_t)llround(exact) : NEVER;
	bool all = sent >= job->left;

	if (job->full != NONE)
		job->crossings[job->full].lost_ns += took * (1 - job->rate / job->lone);
	job->left = all ? 1 : job->left - sent;
	job->updated = now;
	return all;
}

/* New speeds for the job and all that short links join it to, from now on. */
static void refill(struct flow *flow, uint32_t number)
{
	const struct list *chain = &flow->chain;

	rates_find_chain(flow, number);
	for (uint32_t i = 0; i < chain->count; i++) {
		struct job *job = &flow->jobs[chain->items[i]];
		uint32_t levels = flow->rule.levels;

		settle(job, flow->now);
		if (levels > 1) {
			double sent = (double)(job->spec.bytes - job->left);

			job->level = (uint32_t)(sent / (double)job->spec.bytes * (levels + 1e-9));
			if (job->level >= levels)
				job->level = levels - 1;
		}
		job->weight = flow->weights[job->level] * job->fortune;
	}
	rates_share(flow);
	flow->fills++;
	for (uint32_t i = 0; i < chain->count; i++) {
		struct job *job = &flow->jobs[chain->items[i]];

		job->filled = flow->fills;
		flow->at[chain->items[i]] = next_event(flow, job, chain->count == 1);
	}
}

/* The instant at which a burst that is ready may begin. */
static uint64_t take_slot(struct job *job, uint64_t ready)
{
	uint64_t period = job->period, at;

	if (ready > job->due && ready - job->due > job->slack)
		job->due += (ready - job->due + period - 1) / period * period;
	at = ready > job->due ? ready : job->due;
	job->due += period;
	return at;
}

/* The job computes, and then waits until its burst begins. */
static void begin_iteration(struct flow *flow, uint32_t number, uint64_t now)
{
	struct job *job = &flow->jobs[number];
	uint64_t ready = now + job->compute_ns[job->stats.done % job->spec.rows];

	job->began = now;
	if (job->period)
		ready = take_slot(job, ready);
	flow->at[number] = ready + (job->spec.bytes ? job->spec.lag_ns : 0);
}

static void end_iteration(struct flow *flow, uint32_t number)
{
	struct job *job = &flow->jobs[number];

	job->stats.done++;
	job->stats.sum_ns += flow->now - job->began;
	job->ended = job->stats.done == job->spec.iterations;
	if (!job->ended) {
		begin_iteration(flow, number, flow->now);
		return;
	}
	flow->at[number] = NEVER;
	push(&flow->ended, number);
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

static double draw_fortune(const struct job *job)
{
	uint64_t draw = 2 * (uint64_t)(job->burst / job->spec.lasting);
	double radius, angle;

	if (job->spec.luck <= 0)
		return 1;
	radius = sqrt(-2 * log(uniform(job->spec.seed, draw)));
	angle = 2 * M_PI * uniform(job->spec.seed, draw + 1);
	return exp(job->spec.luck * radius * cos(angle));
}

static void begin_burst(struct flow *flow, uint32_t number)
{
	struct job *job = &flow->jobs[number];

	job->sends = true;
	job->left = job->spec.bytes;
	job->updated = flow->now;
	job->rate = 0;
	job->level = 0;
	job->full = NONE;
	job->burst++;
	job->fortune = draw_fortune(job);
	rates_enter(flow, number);
	refill(flow, number);
}

static void stop_burst(struct flow *flow, uint32_t number)
{
	uint64_t fills = flow->fills;

	flow->jobs[number].sends = false;
	rates_leave(flow, number);
	/* Those that it slowed go faster, each chain that is left of its own. */
	for (uint32_t i = 0; i < flow->near.count; i++)
		if (flow->jobs[flow->near.items[i]].filled <= fills)
			refill(flow, flow->near.items[i]);
}

/* What is due for the job now. */
static void happen(struct flow *flow, uint32_t number)
{
	struct job *job = &flow->jobs[number];

	if (!job->sends && job->spec.bytes) {
		begin_burst(flow, number);
	} else if (!job->sends) {
		end_iteration(flow, number);
	} else if (settle(job, flow->now)) {
		stop_burst(flow, number);
		end_iteration(flow, number);
	} else {
		refill(flow, number);
	}
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
	for (uint32_t i = 0; i < links; i++)
		flow->links[i] = (struct link){.rate = rates[i], .packets = packets[i]};
	return flow;
}

static void free_job(struct job *job)
{
	free(job->compute_ns);
	free(job->crossings);
	free(job->shorts.items);
	*job = (struct job){0};
}

void flow_free(struct flow *flow)
{
	void *arrays[] = {
		flow->links,	       flow->weights,	 flow->jobs,	    flow->at,
		flow->chain.items,     flow->near.items, flow->ended.items, flow,
		flow->free_jobs.items,
	};

	for (uint32_t i = 0; i < flow->job_count; i++)
		free_job(&flow->jobs[i]);
	for (uint32_t i = 0; i < flow->link_count; i++)
		free(flow->links[i].senders.items);
	rates_free(flow);
	for (size_t i = 0; i < sizeof(arrays) / sizeof(*arrays); i++)
		free(arrays[i]);
}

static uint32_t new_job(struct flow *flow)
{
	if (flow->free_jobs.count)
		return flow->free_jobs.items[--flow->free_jobs.count];
	if (flow->job_count == flow->job_room) {
		flow->job_room = flow->job_room ? 2 * flow->job_room : 64;
		RESIZE(flow->jobs, flow->job_room);
		RESIZE(flow->at, flow->job_room);
	}
	return flow->job_count++;
}

uint32_t flow_add(struct flow *flow, const struct flow_job *spec)
{
	uint32_t number = new_job(flow);
	struct job *job = &flow->jobs[number];
	double lone = INFINITY;

	*job = (struct job){.spec = *spec};
	job->compute_ns = must(calloc(spec->rows, sizeof(*job->compute_ns)));
	memcpy(job->compute_ns, spec->compute_ns, spec->rows * sizeof(*job->compute_ns));
	job->crossings = must(calloc(spec->links ? spec->links : 1, sizeof(*job->crossings)));
	for (uint32_t i = 0; i < spec->links; i++)
		lone = fmin(lone, flow->links[spec->link[i]].rate / spec->crossings[i]);
	for (uint32_t i = 0; i < spec->links; i++) {
		double part = lone * spec->crossings[i] / flow->links[spec->link[i]].rate;

		job->crossings[i] = (struct crossing){
			.link = spec->link[i],
			.times = spec->crossings[i],
			.asks = (uint64_t)llround(part * (double)WHOLE),
		};
	}
	/* Bytes that cross no link take the shortest time there is. */
	job->lone = lone < INFINITY ? lone : 0x1p60;
	begin_iteration(flow, number, spec->start_ns > flow->now ? spec->start_ns : flow->now);
	return number;
}

void flow_remove(struct flow *flow, uint32_t number)
{
	struct job *job = &flow->jobs[number];

	if (job->sends)
		stop_burst(flow, number);
	flow->at[number] = NEVER;
	drop(&flow->ended, number);
	free_job(job);
	push(&flow->free_jobs, number);
}

void flow_time_shifts(struct flow *flow, uint32_t number, uint64_t period_ns, uint64_t due_ns,
		      uint64_t slack_ns)
{
	struct job *job = &flow->jobs[number];

	job->period = period_ns;
	job->due = due_ns;
	job->slack = slack_ns;
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
	for (;;) {
		uint64_t next = NEVER;
		uint32_t first = 0;

		/* Of equal events, that of the lowest number. */
		for (uint32_t i = 0; i < flow->job_count; i++) {
			if (flow->at[i] < next) {
				next = flow->at[i];
				first = i;
			}
		}
		/* Whatever else happens when a job ends does so before the caller acts. */
		if (next > until || next == NEVER || (flow->ended.count && next > flow->now))
			break;
		flow->now = next;
		happen(flow, first);
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

	for (uint32_t i = 0; i < job->spec.links; i++)
		lost_ns[i] = job->crossings[i].lost_ns;
}
