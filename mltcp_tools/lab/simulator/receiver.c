// SPDX-License-Identifier: BSD-2-Clause
/* The receiving end of a flow. */
#include "internal.h"

#define DELAYED_ACK_NS (40 * NS_PER_MS) /* TCP_ATO_MIN */
#define QUICK_ACKS 16 /* TCP_MAX_QUICKACKS */

static void send_ack(struct sim *sim, struct flow *flow, bool duplicate)
{
	return_ack(sim, flow,
		   (struct event){.seq = flow->expected,
				  .news = {flow->news[0], flow->news[1]},
				  .news_count = flow->news_count,
				  .marks = flow->marks,
				  .said = flow->said,
				  .duplicate = duplicate});
	flow->news_count = 0;
	flow->unacknowledged = 0;
	flow->marks = 0;
	flow->said = 0;
	flow->delayed_ack_ns = 0;
	flow->join_ns = 0;
}

/* Account for a segment that came for the first time. True: it, or others, came out of order. */
static bool take(struct sim *sim, struct flow *flow, uint64_t seq)
{
	bool out_of_order = seq != flow->expected || flow->out_of_order;

	segment_at(flow, seq)->received = true;
	sim->result->counters.received_bytes += segment_at(flow, seq)->bytes;
	if (out_of_order)
		flow->news[flow->news_count++] = seq;
	flow->unacknowledged++;
	flow->out_of_order++;
	while (flow->expected < flow->nxt && segment_at(flow, flow->expected)->received) {
		flow->received_bytes += segment_at(flow, flow->expected)->bytes;
		flow->expected++;
		flow->out_of_order--;
	}
	return out_of_order;
}

/* Whether the segment is the last one of the message that is coming. */
static bool ends_message(const struct flow *flow, uint64_t seq)
{
	return flow->message_coming < flow->message_count &&
	       seq + 1 == flow->messages[flow->message_coming].end;
}

/* Whether this segment is the last one of what the application waits for. */
static bool is_awaited(const struct sim *sim, const struct flow *flow, uint64_t seq)
{
	uint64_t chunk = flow->job->spec->chunk;

	if (flow->job->spec->tasks)
		return ends_message(flow, seq);
	return seq + 1 == flow->end ||
	       (chunk && (seq + 1 - flow->begin) % segments_of(sim, chunk) == 0);
}

static void delay_ack(struct sim *sim, struct flow *flow)
{
	flow->delayed_ack_ns = sim->now + DELAYED_ACK_NS;
	add_event(sim, (struct event){.time = flow->delayed_ack_ns,
				      .kind = DELAYED_ACK_TIMER,
				      .owner = flow_index(sim, flow)});
}

/* In-order segments may still be joined by others (GRO), so that one ACK serves them all. */
static void join(struct sim *sim, struct flow *flow)
{
	if ((flow->unacknowledged + 1) * flow->mss > JOINED_MAX) {
		send_ack(sim, flow, false);
	} else if (!flow->join_ns) {
		flow->join_ns = sim->now + sim->options->join_ns;
		add_event(sim, (struct event){.time = flow->join_ns,
					      .kind = JOIN_TIMER,
					      .owner = flow_index(sim, flow)});
	}
}

/* No more segments came in time to be joined. */
void joined(struct sim *sim, struct flow *flow)
{
	if (flow->join_ns != sim->now)
		return;
	flow->join_ns = 0;
	if (flow->unacknowledged > 1 || flow->quick_acks)
		send_ack(sim, flow, false);
	else
		delay_ack(sim, flow);
}

/*
 * A segment comes. One that had come before is acknowledged now; others are once the application
 * has heard of them, see acknowledge().
 */
enum arrival receive(struct sim *sim, struct flow *flow, uint64_t seq, bool marked)
{
	bool turned = marked != flow->last_marked;

	if (!flow->last_received_ns || sim->now - flow->last_received_ns > sim->options->rto_min_ns)
		flow->quick_acks = QUICK_ACKS;
	flow->last_received_ns = sim->now;
	if (flow->host) {
		flow->host->sent += segment_at(flow, seq)->bytes;
		flow->peer_host->came += segment_at(flow, seq)->bytes;
	}
	if (seq < flow->expected || segment_at(flow, seq)->received) {
		send_ack(sim, flow, true);
		return REPEATED;
	}
	/* What came before has its ACK of its own, so that the count of marks is exact. */
	if (turned && flow->unacknowledged)
		send_ack(sim, flow, false);
	flow->last_marked = marked;
	flow->marks += marked;
	return take(sim, flow, seq) ? OUT_OF_ORDER : IN_ORDER;
}

/*
 * Acknowledge a new segment: at once where it is the second one since the last ACK, where
 * something is or was missing, where marks begin or end (RFC 8257, 3.2), and at the end of what
 * the application waits for, which it answers. So it is at the start of a burst after a long pause:
 * the kernel then helps slow start.
 */
void acknowledge(struct sim *sim, struct flow *flow, uint64_t seq, enum arrival arrival)
{
	if (flow->quick_acks || arrival == OUT_OF_ORDER || is_awaited(sim, flow, seq)) {
		if (flow->quick_acks)
			flow->quick_acks--;
		send_ack(sim, flow, false);
	} else if (sim->options->join_ns) {
		join(sim, flow);
	} else if (flow->unacknowledged >= 2) {
		send_ack(sim, flow, false);
	} else {
		delay_ack(sim, flow);
	}
}

/* The time is over in which a second segment could have come, unless one has. */
void delayed_ack(struct sim *sim, struct flow *flow)
{
	if (flow->delayed_ack_ns == sim->now)
		send_ack(sim, flow, false);
}
