// SPDX-License-Identifier: BSD-2-Clause
/* What happens to a job: it computes, waits for its slot, sends, and begins again. */
#include <math.h>
#include "internal.h"

/* The first whole nanosecond, at least one from now, at which so many bytes are sent. */
uint64_t after(uint64_t now, double bytes, double rate)
{
	double wait = bytes / rate;
	uint64_t whole;

	if (!(wait < 0x1p52))
		return wait < 0x1p62 ? now + (uint64_t)wait : NEVER;
	whole = (uint64_t)wait;
	whole += (double)whole < wait;
	return now + (whole ? whole : 1);
}

/* When a job that sends is done, or where others are near, when its weight changes. */
static void set_next(struct flow *flow, uint32_t number, uint64_t now, bool alone)
{
	const struct job *job = &flow->jobs[number];
	const struct moment *moment = &job->moment;
	uint64_t total = job->spec.bytes[moment->phase], at = NEVER;

	if (moment->rate > 0) {
		at = after(now, (double)moment->left, moment->rate);
		if (!alone && moment->level + 1 < flow->rule.levels) {
			/* A whole number, or what rounding leaves of it would never be sent. */
			double edge = ceil((double)total * (moment->level + 1) / flow->rule.levels);
			double sent = (double)(total - moment->left);
			uint64_t step = after(now, edge - sent, moment->rate);

			if (step < at)
				at = step;
		}
	}
	set_at(flow, number, at);
}

/* What was sent until now at the rate before. Says whether that is all. */
static bool settle(struct job *job, uint64_t now)
{
	double took = (double)(now - job->moment.updated), exact = job->moment.rate * took;
	uint64_t sent = exact < 0x1p62 ? (uint64_t)exact : NEVER;
	bool all;

	if (job->full != NONE)
		job->lost_ns[job->full] +=
			took * (1 - job->moment.rate / job->lone[job->moment.phase]);
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
	if (flow->rule.levels > 1) {
		moment->level = (uint32_t)((double)(total - moment->left) / (double)total *
					   (flow->rule.levels + 1e-9));
		if (moment->level >= flow->rule.levels)
			moment->level = flow->rule.levels - 1;
	}
	job->weight = flow->weights[moment->level] * job->fortune;
}

/* New speeds for the job and all that short links join it to, from now on. */
static void refill(struct flow *flow, uint32_t number, uint64_t now)
{
	const struct list *chain = &flow->chain;

	find_chain(flow, number);
	for (uint32_t i = 0; i < chain->count; i++)
		refresh(flow, &flow->jobs[chain->items[i]], now);
	fill_chain(flow);
	for (uint32_t i = 0; i < chain->count; i++) {
		struct job *job = &flow->jobs[chain->items[i]];

		job->moment.rate = job->share;
		job->filled = flow->fills;
		set_next(flow, chain->items[i], now, chain->count == 1);
	}
}

/* The instant at which a burst that is ready may begin. */
static uint64_t take_slot(struct moment *moment, uint64_t ready)
{
	uint64_t period = moment->period, at;

	if (ready > moment->due && ready - moment->due > moment->slack)
		moment->due += (ready - moment->due + period - 1) / period * period;
	at = ready > moment->due ? ready : moment->due;
	moment->due += period;
	return at;
}

void begin_phase(struct flow *flow, uint32_t number, uint64_t now)
{
	struct job *job = &flow->jobs[number];
	struct moment *moment = &job->moment;
	const struct flow_job *spec = &job->spec;
	uint64_t ready = now + spec->compute_ns[moment->row * spec->phases + moment->phase];

	moment->state = COMPUTING;
	if (!moment->phase && moment->period)
		ready = take_slot(moment, ready);
	set_at(flow, number, ready + (spec->bytes[moment->phase] ? spec->lag_ns : 0));
}

static void end_iteration(struct flow *flow, uint32_t number, uint64_t now)
{
	struct job *job = &flow->jobs[number];
	struct moment *moment = &job->moment;
	struct flow_stats *stats = &job->stats;

	stats->done++;
	stats->sum_ns += now - moment->began;
	moment->phase = 0;
	moment->row = (moment->row + 1) % job->spec.rows;
	moment->began = now;
	if (stats->done == job->spec.iterations) {
		job->ended = true;
		set_at(flow, number, NEVER);
		push(&flow->ended, number);
	}
}

static void end_phase(struct flow *flow, uint32_t number, uint64_t now)
{
	struct job *job = &flow->jobs[number];

	if (++job->moment.phase == job->spec.phases)
		end_iteration(flow, number, now);
	if (!job->ended)
		begin_phase(flow, number, now);
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

static void draw_fortune(struct job *job)
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

static void begin_burst(struct flow *flow, uint32_t number, uint64_t now)
{
	struct job *job = &flow->jobs[number];
	struct moment *moment = &job->moment;

	moment->state = SENDING;
	moment->left = job->spec.bytes[moment->phase];
	moment->updated = now;
	moment->rate = 0;
	moment->level = 0;
	job->full = NONE;
	moment->burst++;
	draw_fortune(job);
	enter(flow, number);
	refill(flow, number, now);
}

void stop_burst(struct flow *flow, uint32_t number, uint64_t now)
{
	uint64_t fills = flow->fills;

	flow->jobs[number].moment.state = COMPUTING;
	leave(flow, number);
	/* Those that it slowed go faster, each chain that is left of its own. */
	for (uint32_t i = 0; i < flow->near.count; i++)
		if (flow->jobs[flow->near.items[i]].filled <= fills)
			refill(flow, flow->near.items[i], now);
}

void happen(struct flow *flow, uint32_t number, uint64_t now)
{
	struct job *job = &flow->jobs[number];

	if (job->moment.state == COMPUTING) {
		if (job->spec.bytes[job->moment.phase])
			begin_burst(flow, number, now);
		else
			end_phase(flow, number, now);
	} else if (settle(job, now)) {
		stop_burst(flow, number, now);
		end_phase(flow, number, now);
	} else {
		refill(flow, number, now);
	}
}
