// SPDX-License-Identifier: GPL-2.0-only
/* The receiving end of a flow. */
#include "internal.h"

#define DELAYED_ACK_NS (40 * NS_PER_MS) /* TCP_ATO_MIN */
#define QUICK_ACKS 16 /* TCP_MAX_QUICKACKS */

static void send_ack(struct sim *sim, struct flow *flow, bool duplicate)
{
	add_event(sim, (struct event){.time = sim->now + sim->link->rtt_ns / 2,
				      .kind = ACK,
				      .owner = flow_index(sim, flow),
				      .seq = flow->expected,
				      .news = {flow->news[0], flow->news[1]},
				      .news_count = flow->news_count,
				      .duplicate = duplicate,
				      .hop = flow->hop});
	flow->news_count = 0;
	flow->delayed_ack_ns = 0;
}

/* Account for a segment that came for the first time. True: it, or others, came out of order. */
static bool take(struct sim *sim, struct flow *flow, uint64_t seq)
{
	bool out_of_order = seq != flow->expected || flow->out_of_order;

	segment_at(flow, seq)->received = true;
	sim->result->counters.received_bytes += segment_at(flow, seq)->bytes;
	flow->news[flow->news_count++] = seq;
	flow->out_of_order++;
	while (flow->expected < flow->nxt && segment_at(flow, flow->expected)->received) {
		flow->expected++;
		flow->out_of_order--;
	}
	return out_of_order;
}

/*
 * A segment comes. It is acknowledged at once where it is the second one since the last ACK, where
 * something is or was missing, and at the end of the burst, which the application answers. So it
 * is at the start of a burst after a long pause: the kernel then helps slow start.
 */
void receive(struct sim *sim, struct flow *flow, uint64_t seq)
{
	bool out_of_order;

	if (!flow->last_received_ns || sim->now - flow->last_received_ns > RTO_MIN_NS)
		flow->quick_acks = QUICK_ACKS;
	flow->last_received_ns = sim->now;
	flow->hop = segment_at(flow, seq)->hop;
	if (seq < flow->expected || segment_at(flow, seq)->received) {
		send_ack(sim, flow, true);
		return;
	}
	out_of_order = take(sim, flow, seq);
	if (flow->quick_acks || out_of_order || flow->news_count == 2 || seq + 1 == flow->end) {
		if (flow->quick_acks)
			flow->quick_acks--;
		send_ack(sim, flow, false);
		return;
	}
	flow->delayed_ack_ns = sim->now + DELAYED_ACK_NS;
	add_event(sim, (struct event){.time = flow->delayed_ack_ns,
				      .kind = DELAYED_ACK_TIMER,
				      .owner = flow_index(sim, flow)});
}

/* The time is over in which a second segment could have come, unless one has. */
void delayed_ack(struct sim *sim, struct flow *flow)
{
	if (flow->delayed_ack_ns == sim->now)
		send_ack(sim, flow, false);
}
