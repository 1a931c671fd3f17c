// SPDX-License-Identifier: GPL-2.0-only
/* From the sender's host through the bottleneck: a queue that drops what finds it full. */
#include "internal.h"

/* A host sends this many times as fast as the link, and takes up to that much longer at times. */
#define HOST_SPEED 20
#define HOST_JITTER (1.0 / 12)

/*
 * What a paced flow waits between two segments: the kernel's internal pacing sends twice as fast as
 * a window per round trip in slow start, and 1.2 times as fast else (tcp_update_pacing_rate()).
 */
static uint64_t pace_ns(const struct flow *flow)
{
	uint64_t window_ns = flow->srtt_ns / (flow->cwnd ? flow->cwnd : 1);

	if (!flow->job->spec->follows)
		return 0;
	return flow->cwnd < flow->ssthresh / 2 ? window_ns / 2 : window_ns * 5 / 6;
}

/*
 * A host hands a segment over. How long that takes varies, as it does on real hosts; without that,
 * drops would fall on the same flow again and again (phase effects: Floyd and Jacobson, 1992).
 */
void hand_to_link(struct sim *sim, struct flow *flow, uint64_t seq)
{
	uint64_t wire = wire_ns(sim, MSS), pace = pace_ns(flow);
	uint64_t from = flow->host_ns > sim->now ? flow->host_ns : sim->now;

	flow->host_ns = from + (pace > wire / HOST_SPEED ? pace : wire / HOST_SPEED);
	flow->host_ns += random_share(sim) * wire * HOST_JITTER;
	sim->result->counters.sent++;
	add_event(sim, (struct event){.time = flow->host_ns,
				      .kind = ARRIVE,
				      .owner = flow_index(sim, flow),
				      .seq = seq});
}

/* A segment comes to the queue. */
void arrive(struct sim *sim, struct flow *flow, uint64_t seq)
{
	struct sim_counters *counters = &sim->result->counters;
	uint32_t payload = segment_at(flow, seq)->bytes;
	uint64_t waits = 0, queued;

	segment_at(flow, seq)->hop = mltcp_hop_pass(&sim->hop, sim->now, payload + HEADERS,
						    1024 * 8e9 / sim->link->rate);
	if (sim->link->loss > 0 && random_share(sim) < sim->link->loss) {
		counters->lost++;
		return;
	}
	if (sim->link->levels) {
		enqueue(sim, flow, seq);
		return;
	}
	if (sim->link_free_ns > sim->now)
		waits = sim->link_free_ns - sim->now;
	queued = waits * sim->link->rate / 8e9 + payload + HEADERS;
	if (queued > sim->link->queue) {
		counters->dropped++;
		return;
	}
	if (queued > counters->largest_queue)
		counters->largest_queue = queued;
	counters->forwarded++;
	counters->forwarded_bytes += payload + HEADERS;
	sim->link_free_ns = sim->now + waits + wire_ns(sim, payload);
	add_event(sim, (struct event){.time = sim->link_free_ns + sim->link->rtt_ns / 2,
				      .kind = RECEIVE,
				      .owner = flow_index(sim, flow),
				      .seq = seq});
}
