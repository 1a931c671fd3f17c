// SPDX-License-Identifier: BSD-2-Clause
/*
 * Jobs that meet nobody: none of their links could be asked for more than it carries. Their
 * iterations follow from their compute times, so that whole cycles of their rows are counted.
 */
#include <math.h>
#include "internal.h"

static double most_on(const struct job *job, uint32_t link)
{
	for (uint32_t i = 0; i < job->link_count; i++)
		if (job->all_links[i] == link)
			return job->most[i];
	return 0;
}

static bool meets_nobody(const struct flow *flow, const struct job *job)
{
	for (uint32_t i = 0; i < job->link_count; i++)
		if (flow->links[job->all_links[i]].contended)
			return false;
	return true;
}

/* How long its iterations take, once through its rows. */
static uint64_t cycle(const struct job *job)
{
	const struct flow_job *spec = &job->spec;
	uint64_t took = 0;

	for (uint32_t i = 0; i < spec->rows * spec->phases; i++) {
		uint32_t phase = i % spec->phases;

		took += spec->compute_ns[i];
		if (spec->bytes[phase])
			took = after(took + spec->lag_ns, (double)spec->bytes[phase],
				     job->lone[phase]);
	}
	return took;
}

void consider_counting(struct flow *flow, uint32_t number, uint64_t now)
{
	struct job *job = &flow->jobs[number];
	const struct moment *moment = &job->moment;

	/* At the beginning of an iteration, before its first event. */
	if (!flow->rule.count || job->spec.period_ns || job->ended || moment->row ||
	    moment->phase || moment->state != COMPUTING || moment->began != now ||
	    !meets_nobody(flow, job))
		return;
	job->cycles = (job->spec.iterations - job->stats.done - 1) / job->spec.rows;
	if (!job->cycles)
		return;
	job->cycle_ns = cycle(job);
	job->counting = true;
	job->since = now;
	set_at(flow, number, now + job->cycles * job->cycle_ns);
}

/* Adds the cycles that passed until now; what is left to now is less than one, and is simulated. */
void bring_up(struct flow *flow, uint32_t number, uint64_t now)
{
	struct job *job = &flow->jobs[number];
	uint64_t cycles, bursts = 0;

	if (!job->counting)
		return;
	cycles = now > job->since ? (now - job->since) / job->cycle_ns : 0;
	if (cycles > job->cycles)
		cycles = job->cycles;
	job->counting = false;
	job->stats.done += cycles * job->spec.rows;
	job->stats.sum_ns += cycles * job->cycle_ns;
	for (uint32_t phase = 0; phase < job->spec.phases; phase++)
		bursts += job->spec.bytes[phase] > 0;
	job->moment.burst =
		(job->moment.burst + cycles * job->spec.rows % LUCK_BURSTS * bursts) % LUCK_BURSTS;
	job->moment.began = job->since + cycles * job->cycle_ns;
	flow->counters.counted += cycles * job->spec.rows;
	begin_phase(flow, number, job->moment.began);
	while (job->moment.at <= now && !job->ended)
		happen(flow, number, job->moment.at);
}

/* Whether those on the link could ask for more than it carries; they are brought up to now. */
static void judge(struct flow *flow, uint32_t number)
{
	struct link *link = &flow->links[number];
	double wanted = 0;

	for (uint32_t i = 0; i < link->jobs.count; i++)
		wanted += most_on(&flow->jobs[link->jobs.items[i]], number);
	link->contended = link->jobs.count > 1 && wanted > link->rate * (1 + 1e-9);
	for (uint32_t i = 0; link->contended && i < link->jobs.count; i++)
		bring_up(flow, link->jobs.items[i], flow->now);
}

void placed(struct flow *flow, uint32_t number)
{
	const struct job *job = &flow->jobs[number];

	for (uint32_t i = 0; i < job->link_count; i++) {
		push(&flow->links[job->all_links[i]].jobs, number);
		judge(flow, job->all_links[i]);
	}
}

void unplaced(struct flow *flow, uint32_t number)
{
	const struct job *job = &flow->jobs[number];

	for (uint32_t i = 0; i < job->link_count; i++) {
		drop(&flow->links[job->all_links[i]].jobs, number);
		judge(flow, job->all_links[i]);
	}
}
