// SPDX-License-Identifier: BSD-2-Clause
/*
 * How long queues are, measured from themselves: over all of the time for which their link is busy,
 * in bytes on the wire that wait or are being sent. A link sends all the time while anything waits,
 * whatever it sends first, so its queue shrinks at its rate between two packets that come.
 */
#include <math.h>
#include "internal.h"

/* The queue needed the link for from_ns, and after that for less, down to to_ns. */
static void count_queue(const struct sim_link *link, struct sim_queue *queue, double from_ns,
			double to_ns)
{
	double rate = link->rate / 8e9; /* bytes per nanosecond */
	double bin_ns = link->queue / 100.0 / rate, upper, lower;
	int bin;

	queue->busy_ns += from_ns - to_ns;
	queue->byte_ns += rate * (from_ns * from_ns - to_ns * to_ns) / 2;
	for (bin = to_ns / bin_ns; bin <= from_ns / bin_ns; bin++) {
		lower = fmax(to_ns, bin * bin_ns);
		upper = fmin(from_ns, (bin + 1) * bin_ns);
		if (upper > lower)
			queue->bin_ns[bin < SIM_QUEUE_BINS ? bin : SIM_QUEUE_BINS - 1] +=
				upper - lower;
	}
}

/* A packet of so many bytes on the wire has joined the queue. */
void watch_queue(struct sim *sim, uint32_t number, uint32_t wire)
{
	const struct sim_link *link = &sim->links[number];
	struct link_state *state = &sim->states[number];
	double rest_ns = fmax(0, state->left_ns - (sim->now - state->watched_ns));

	count_queue(link, &sim->result->queues[number], state->left_ns, rest_ns);
	state->left_ns = rest_ns + wire * 8e9 / link->rate;
	state->watched_ns = sim->now;
}

/* The run ends. */
void watch_queues(struct sim *sim)
{
	uint32_t i;

	for (i = 0; i < sim->link_count; i++)
		watch_queue(sim, i, 0);
}
