// SPDX-License-Identifier: BSD-2-Clause
/*
 * Between the hosts: queues that drop what finds them full, and mark what finds them long, or one
 * for each level of priority.
 */
#include "internal.h"

/* A host sends this many times as fast as its first link, and takes up to that much longer. */
#define HOST_SPEED 20
#define HOST_JITTER (1.0 / 12)

/*
 * What a paced flow waits between two segments: the kernel's internal pacing sends twice as fast as
 * a window per round trip in slow start, and 1.2 times as fast else (tcp_update_pacing_rate()).
 */
static uint64_t pace_ns(const struct flow *flow)
{
	uint64_t window_ns = flow->srtt_ns / (flow->cwnd ? flow->cwnd : 1), rate;

	if (!flow->job->spec->follows)
		return 0;
	rate = mltcp_rate_pacing(&flow->rate, flow->mss);
	if (rate)
		return flow->mss * NS_PER_MS * 1000 / rate;
	return flow->cwnd < flow->ssthresh / 2 ? window_ns / 2 : window_ns * 5 / 6;
}

/*
 * A host hands a segment over. How long that takes varies, as it does on real hosts; without that,
 * drops would fall on the same flow again and again (phase effects: Floyd and Jacobson, 1992).
 */
void hand_to_link(struct sim *sim, struct flow *flow, uint64_t seq)
{
	uint64_t wire = wire_ns(&sim->links[flow->ahead[0]], sim->options->mss);
	uint64_t pace = pace_ns(flow);
	uint64_t from = flow->host_ns > sim->now ? flow->host_ns : sim->now;
	bool asks;

	flow->host_ns = from + (pace > wire / HOST_SPEED ? pace : wire / HOST_SPEED);
	flow->host_ns += random_share(sim) * wire * HOST_JITTER;
	sim->result->counters.sent++;
	asks = mltcp_rate_asks(flow->host_ns, flow->asked_ns, flow->rate.rtt_us);
	if (asks)
		flow->asked_ns = flow->host_ns;
	add_event(sim, (struct event){.time = flow->host_ns,
				      .kind = ARRIVE,
				      .asks = asks,
				      .owner = flow_index(sim, flow),
				      .seq = seq});
}

static bool is_marked(struct sim *sim, const struct sim_link *link, uint64_t queued)
{
	if (!link->mark_max || queued <= link->mark_min)
		return false;
	if (queued >= link->mark_max)
		return true;
	return random_share(sim) * (link->mark_max - link->mark_min) < queued - link->mark_min;
}

/*
 * A packet with so much payload comes to the queue of a link. When the link has sent it, or 0 where
 * the queue is full; marked: the queue was long.
 */
static uint64_t enqueue(struct sim *sim, uint32_t number, uint32_t payload, bool *marked)
{
	struct sim_counters *counters = &sim->result->counters;
	const struct sim_link *link = &sim->links[number];
	uint64_t saved_ns = link->bucket * 8e9 / link->rate, waits = 0, queued;
	uint64_t free_ns = sim->free_ns[number];

	if (free_ns + saved_ns < sim->now)
		free_ns = sim->now - saved_ns;
	if (free_ns > sim->now)
		waits = free_ns - sim->now;
	queued = waits * link->rate / 8e9 + payload + HEADERS;
	if (queued > link->queue) {
		counters->dropped++;
		return 0;
	}
	if (queued > counters->largest_queue)
		counters->largest_queue = queued;
	*marked =
		payload && is_marked(sim, link, queued); /* pure ACKs can't be (RFC 3168, 6.1.4) */
	sim->free_ns[number] = free_ns + wire_ns(link, payload);
	return sim->free_ns[number] > sim->now ? sim->free_ns[number] : sim->now;
}

/* When an end hears of a packet that comes at a time; heard_ns: its latest interrupt. */
static uint64_t heard(struct sim *sim, uint64_t *heard_ns, uint64_t time)
{
	uint64_t most_ns = sim->options->coalescing_ns;

	if (!most_ns)
		return time;
	if (time > *heard_ns)
		*heard_ns = time + most_ns * (0.2 + 0.8 * random_share(sim));
	return *heard_ns;
}

/* A link has sent a packet, or will have by the time `sent`: on to the next one, or its end. */
static void pass_on(struct sim *sim, struct flow *flow, struct event next, uint64_t sent)
{
	struct sim_counters *counters = &sim->result->counters;
	bool ack = next.kind == ARRIVE_ACK;
	uint32_t hops = ack ? flow->back_count : flow->ahead_count;
	uint32_t number = (ack ? flow->back : flow->ahead)[next.hop];
	uint32_t payload = carried_by(flow, &next);

	next.time = sent + sim->links[number].rtt_ns / 2;
	next.hop++;
	if (next.hop == hops) {
		next.kind = ack ? ACK : RECEIVE;
		next.time = heard(sim, ack ? &flow->acks_heard_ns : &flow->segments_heard_ns,
				  next.time);
		/* Of jobs that send both ways, one way is enough. */
		if (!ack && flow->number < flow->job->spec->flows) {
			counters->forwarded++;
			counters->forwarded_bytes += payload + HEADERS;
		}
	}
	add_event(sim, next);
}

/*
 * The level whose packet is next: the best, but for one that is sure of a share of the link and has
 * waited for its slot. The count of levels: nothing waits.
 */
static uint32_t next_level(const struct sim *sim, const struct link_state *state)
{
	uint32_t levels = sim->options->levels, level, best = levels;

	for (level = 0; level < levels; level++) {
		if (!state->waiting[level].count)
			continue;
		if (best == levels)
			best = level;
		else if (sim->options->floor > 0 && state->waiting[level].due_ns <= sim->now)
			return level;
	}
	return best;
}

/* The link is free. */
void send_next(struct sim *sim, uint32_t number)
{
	struct link_state *state = &sim->states[number];
	uint32_t level = next_level(sim, state);
	struct waiting *queue = &state->waiting[level];
	struct event packet;
	struct flow *flow;
	uint32_t payload;
	uint64_t sent;

	state->sending = level < sim->options->levels;
	if (!state->sending)
		return;
	packet = queue->packets[queue->first++];
	if (!--queue->count)
		queue->first = 0;
	flow = &sim->flows[packet.owner];
	payload = carried_by(flow, &packet);
	queue->bytes -= payload + HEADERS;
	sent = sim->now + wire_ns(&sim->links[number], payload);
	if (sim->options->floor > 0)
		queue->due_ns = sim->now + (sent - sim->now) / sim->options->floor;
	add_event(sim, (struct event){.time = sent, .kind = SENT, .owner = number});
	pass_on(sim, flow, packet, sent);
}

/* A packet comes to the queue of its job's level. */
static void wait_for_slot(struct sim *sim, uint32_t number, struct flow *flow,
			  const struct event *event)
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

/* A segment or an ACK comes to the queue of the next link of its path. */
void arrive(struct sim *sim, struct flow *flow, const struct event *event)
{
	struct sim_counters *counters = &sim->result->counters;
	bool ack = event->kind == ARRIVE_ACK, marked = false;
	uint32_t number = (ack ? flow->back : flow->ahead)[event->hop];
	uint32_t payload = carried_by(flow, event), said;
	const struct sim_link *link = &sim->links[number];
	const struct mltcp_hop_link told = {
		.ns_per_kib = 1024 * 8e9 / link->rate,
		.queue_ns = link->queue * 8e9 / link->rate,
	};
	struct event next = *event;
	uint64_t sent;

	if (!ack && link->loss > 0 && random_share(sim) < link->loss) {
		counters->lost++;
		return;
	}
	said = mltcp_hop_pass(&sim->states[number].hop, &told, sim->now, payload + HEADERS);
	if (event->asks && said > next.said)
		next.said = said;
	if (sim->options->levels) {
		wait_for_slot(sim, number, flow, &next);
		return;
	}
	sent = enqueue(sim, number, payload, &marked);
	if (!sent)
		return;
	if (marked) {
		counters->marked += !next.marked;
		next.marked = true;
	}
	pass_on(sim, flow, next, sent);
}

/* The receiver sends an ACK. */
void return_ack(struct sim *sim, struct flow *flow, struct event ack)
{
	uint32_t i;

	ack.time = sim->now;
	ack.owner = flow_index(sim, flow);
	ack.kind = flow->back_count ? ARRIVE_ACK : ACK;
	for (i = 0; !flow->back_count && i < flow->ahead_count; i++)
		ack.time += sim->links[flow->ahead[i]].rtt_ns / 2;
	if (ack.kind == ACK)
		ack.time = heard(sim, &flow->acks_heard_ns, ack.time);
	add_event(sim, ack);
}
