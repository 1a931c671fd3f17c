// SPDX-License-Identifier: BSD-2-Clause
/*
 * Priorities from an order of the bursts; link.c keeps to them.
 *
 * The order is Sincronia's (BSSI), as live/priorities/coflows.py has it; a test compares the two. What a
 * burst asks of a link is the time that the link takes for what the burst has left to send over it.
 */
#include <math.h>
#include <string.h>
#include "internal.h"

/* A weight of zero would put a burst last whatever it has left. */
#define LEAST_WEIGHT 1e-6

/* Levels will follow what bursts there are. */
void bursts_changed(struct sim *sim)
{
	if (sim->options->levels)
		add_event(sim, (struct event){.time = sim->now + sim->options->control_ns,
					      .kind = CONTROL});
}

/* Bytes of the flow's burst that aren't acknowledged. */
static uint64_t left_of(const struct flow *flow)
{
	return flow->done ? 0 : flow->burst_bytes - (flow->acked_bytes - flow->burst_acked_bytes);
}

/* What the job's burst asks of each link, nanoseconds. */
static void add_demands(const struct sim *sim, const struct job *job, double *demands)
{
	uint32_t i, hop;

	for (i = 0; i < flows_of(job->spec); i++) {
		const struct flow *flow = &job->flows[i];

		for (hop = 0; hop < flow->ahead_count; hop++)
			demands[flow->ahead[hop]] +=
				left_of(flow) * 8e9 / sim->links[flow->ahead[hop]].rate;
	}
}

/* The larger, the earlier. */
static double weight_of(const struct sim *sim, const struct job *job)
{
	const struct sim_job *spec = job->spec;
	uint32_t layer = spec->bursts - 1 - job->burst % spec->bursts, i;
	uint64_t left = 0, all = 0;
	double weight = 1;

	for (i = 0; i < flows_of(spec); i++) {
		left += left_of(&job->flows[i]);
		all += job->sizes[i % spec->flows];
	}
	switch (sim->options->weight) {
	case SIM_WEIGHT_REMAINING_MORE:
		weight = (double)left / all;
		break;
	case SIM_WEIGHT_REMAINING_LESS:
		weight = 1 - (double)left / all;
		break;
	case SIM_WEIGHT_LAYER: /* the last burst of an iteration is that of the front layers */
		weight = 1 - (double)layer / spec->bursts;
		break;
	case SIM_WEIGHT_IDLE:
		weight = (sim->now - job->bursts[job->burst].start_ns) * 1e-9;
		break;
	}
	return weight > LEAST_WEIGHT ? weight : LEAST_WEIGHT;
}

/* Of equal ones the last, as in live/priorities/coflows.py. */
static uint32_t most_loaded(const struct sim *sim, const double *demands, uint32_t count)
{
	uint32_t found = 0, link, i;
	double most = 0, load;

	for (link = 0; link < sim->link_count; link++) {
		load = 0;
		for (i = 0; i < count; i++)
			load += demands[i * sim->link_count + link];
		if (load < most)
			continue;
		most = load;
		found = link;
	}
	return found;
}

/*
 * Sort the bursts, given in the order in which they began: the one with the least weight for what
 * it asks of the most loaded link goes last, the others pay for it with weight, and so on.
 */
static void order_bursts(const struct sim *sim, struct job **order, uint32_t count)
{
	uint32_t links = sim->link_count, i, k, last, link;
	double demands[count ? count * links : 1], weights[count ? count : 1], least, ratio;
	struct job *chosen;

	memset(demands, 0, sizeof(demands));
	for (i = 0; i < count; i++) {
		add_demands(sim, order[i], demands + i * links);
		weights[i] = weight_of(sim, order[i]);
	}
	for (k = count; k > 1; k--) {
		link = most_loaded(sim, demands, k);
		last = k - 1;
		least = INFINITY;
		for (i = 0; i < k; i++) {
			if (demands[i * links + link] <= 0)
				continue;
			ratio = weights[i] / demands[i * links + link];
			if (ratio > least)
				continue;
			least = ratio;
			last = i;
		}
		for (i = 0; i < k && least < INFINITY; i++) {
			weights[i] -= least * demands[i * links + link];
			weights[i] = weights[i] > 0 ? weights[i] : 0;
		}
		chosen = order[last];
		for (i = last; i + 1 < k; i++) {
			order[i] = order[i + 1];
			weights[i] = weights[i + 1];
			memcpy(demands + i * links, demands + (i + 1) * links,
			       links * sizeof(*demands));
		}
		order[k - 1] = chosen;
	}
}

static bool began_before(const struct job *a, const struct job *b)
{
	uint64_t one = a->bursts[a->burst].start_ns, other = b->bursts[b->burst].start_ns;

	return one != other ? one < other : a->number < b->number;
}

/*
 * Give each burst a level, in their order. A level is kept where the order allows it, and else
 * becomes a worse one: packets that go to a better one overtake those that wait. Only where there
 * are not enough levels are they dealt anew, and the last is shared.
 */
void assign_levels(struct sim *sim)
{
	uint32_t i, k, next = 0, count = 0, levels = sim->options->levels;
	struct job *order[sim->job_count];

	for (i = 0; i < sim->job_count; i++) {
		struct job *job = &sim->jobs[i];

		if (job->spec->neighbour)
			continue;
		if (!job->sending) {
			job->level = 0;
			continue;
		}
		for (k = count++; k && began_before(job, order[k - 1]); k--)
			order[k] = order[k - 1];
		order[k] = job;
	}
	order_bursts(sim, order, count);
	for (i = 0; i < count; i++, next++) {
		if (order[i]->level > next)
			next = order[i]->level;
		order[i]->level = next;
	}
	if (next <= levels)
		return;
	for (i = 0; i < count; i++)
		order[i]->level = i < levels ? i : levels - 1;
}
