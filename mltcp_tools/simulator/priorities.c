// SPDX-License-Identifier: GPL-2.0-only
/*
 * Priorities from an order of the bursts, and a link that keeps to them.
 *
 * On one link Sincronia's order is Smith's rule: each step takes the same share off every weight
 * per byte, so the order is that of weight / bytes from the start, the largest first. Equal ones go
 * in the order in which they came. planning/coflows.py has the whole of it, and a test compares.
 */
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

/* Bytes of the burst that aren't acknowledged. */
static uint64_t left_of(const struct job *job, uint64_t *all)
{
	uint32_t flows = job->spec->both ? 2 * job->spec->flows : job->spec->flows, i;
	uint64_t left = 0;

	*all = 0;
	for (i = 0; i < flows; i++) {
		const struct flow *flow = &job->flows[i];

		if (flow->done)
			continue;
		left += flow->burst_bytes - (flow->acked_bytes - flow->burst_acked_bytes);
	}
	for (i = 0; i < flows; i++)
		*all += job->spec->bytes[(size_t)job->burst * job->spec->flows +
					 i % job->spec->flows];
	return left;
}

/* Weight per byte that is left: the larger, the earlier. */
static double precedence(const struct sim *sim, const struct job *job)
{
	uint64_t all, left = left_of(job, &all);
	uint32_t layer = job->spec->bursts - 1 - job->burst % job->spec->bursts;
	double weight = 1;

	switch (sim->options->weight) {
	case SIM_WEIGHT_REMAINING_MORE:
		weight = (double)left / all;
		break;
	case SIM_WEIGHT_REMAINING_LESS:
		weight = 1 - (double)left / all;
		break;
	case SIM_WEIGHT_LAYER: /* the last burst of an iteration is that of the front layers */
		weight = 1 - (double)layer / job->spec->bursts;
		break;
	case SIM_WEIGHT_IDLE:
		weight = (sim->now - job->bursts[job->burst].start_ns) * 1e-9;
		break;
	}
	return (weight > LEAST_WEIGHT ? weight : LEAST_WEIGHT) / (left ? left : 1);
}

static bool goes_before(const struct sim *sim, const struct job *a, const struct job *b)
{
	double one = precedence(sim, a), other = precedence(sim, b);
	uint64_t began = a->bursts[a->burst].start_ns, later = b->bursts[b->burst].start_ns;

	if (one != other)
		return one > other;
	return began != later ? began < later : a->number < b->number;
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

		if (!job->sending) {
			job->level = 0;
			continue;
		}
		for (k = count++; k && goes_before(sim, job, order[k - 1]); k--)
			order[k] = order[k - 1];
		order[k] = job;
	}
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

/* A packet comes to the queue of its job's level. */
void wait_for_turn(struct sim *sim, uint32_t number, struct flow *flow, const struct event *event)
{
	struct sim_counters *counters = &sim->result->counters;
	struct link_state *state = &sim->states[number];
	struct waiting *queue = &state->waiting[flow->job->level];
	uint64_t wire = carried_by(flow, event) + HEADERS;

	if (queue->bytes + wire > sim->links[number].queue) {
		counters->dropped++;
		return;
	}
	/* What has left is forgotten when nothing waits, so the list stays short. */
	queue->packets = grow(queue->packets, sizeof(*queue->packets), queue->first + queue->count,
			      &queue->room);
	queue->packets[queue->first + queue->count++] = *event;
	queue->bytes += wire;
	if (queue->bytes > counters->largest_queue)
		counters->largest_queue = queue->bytes;
	if (!state->sending)
		send_next(sim, number);
}

/* The link is free: the first packet of the best level is next. */
void send_next(struct sim *sim, uint32_t number)
{
	struct link_state *state = &sim->states[number];
	struct waiting *queue = state->waiting, *end = queue + sim->options->levels;
	struct event packet;
	struct flow *flow;
	uint32_t payload;
	uint64_t sent;

	while (queue < end && !queue->count)
		queue++;
	state->sending = queue < end;
	if (!state->sending)
		return;
	packet = queue->packets[queue->first++];
	if (!--queue->count)
		queue->first = 0;
	flow = &sim->flows[packet.owner];
	payload = carried_by(flow, &packet);
	queue->bytes -= payload + HEADERS;
	sent = sim->now + wire_ns(&sim->links[number], payload);
	add_event(sim, (struct event){.time = sent, .kind = SENT, .owner = number});
	pass_on(sim, flow, packet, sent);
}
