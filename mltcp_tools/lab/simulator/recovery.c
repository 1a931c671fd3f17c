// SPDX-License-Identifier: BSD-2-Clause
/* What a sender makes of ACKs, and of their absence: what is lost, and what to do about it. */
#include "internal.h"

#define BACKOFF_MAX 6

/* What an ACK has told. */
struct news {
	uint32_t delivered; /* segments, for the first time */
	uint32_t lost; /* segments found to be lost */
	uint64_t oldest_ns,
		latest_ns; /* when the first and the last of those sent once were sent */
	bool advanced; /* una has */
};

static void mark_delivered(struct flow *flow, uint64_t seq, struct news *news)
{
	struct segment *segment = segment_at(flow, seq);

	if (segment->state == SACKED)
		return;
	uncount(flow, seq);
	segment->state = SACKED;
	flow->sacked++;
	news->delivered++;
	if (segment->order > flow->delivered_order)
		flow->delivered_order = segment->order;
	/* Karn: an ACK doesn't say which of several transmissions it is for. */
	if (segment->retransmitted)
		return;
	if (!news->oldest_ns || segment->sent_ns < news->oldest_ns)
		news->oldest_ns = segment->sent_ns;
	if (segment->sent_ns > news->latest_ns)
		news->latest_ns = segment->sent_ns;
}

static struct news read_ack(struct flow *flow, const struct event *ack)
{
	struct news news = {.advanced = ack->seq > flow->una};
	uint64_t seq;
	int i;

	for (seq = flow->una; seq < ack->seq; seq++)
		mark_delivered(flow, seq, &news);
	for (i = 0; i < ack->news_count; i++)
		if (ack->news[i] >= ack->seq)
			mark_delivered(flow, ack->news[i], &news);
	for (; flow->una < ack->seq; flow->una++) {
		flow->acked_bytes += segment_at(flow, flow->una)->bytes;
		flow->sacked--;
	}
	return news;
}

static void take_for_lost(struct flow *flow, uint64_t seq)
{
	forget_transmission(flow, seq);
	segment_at(flow, seq)->state = LOST;
	flow->in_flight--;
	flow->lost++;
	if (seq < flow->first_lost)
		flow->first_lost = seq;
}

/*
 * RACK (RFC 8985) without a reordering window: whatever was sent before a segment that has been
 * delivered, and hasn't, is lost. This finds lost retransmissions as well.
 */
static uint32_t find_losses(struct flow *flow)
{
	uint32_t lost = 0;

	while (flow->oldest != NOBODY &&
	       segment_at(flow, flow->oldest)->order < flow->delivered_order) {
		take_for_lost(flow, flow->oldest);
		lost++;
	}
	return lost;
}

/* Proportional rate reduction (RFC 6937), as tcp_cwnd_reduction(). */
static void reduce_window(struct flow *flow, const struct news *news)
{
	int room = (int)flow->ssthresh - (int)flow->in_flight, send;
	uint64_t share;

	if (!news->delivered)
		return;
	flow->prr_delivered += news->delivered;
	if (room < 0) {
		share = (uint64_t)flow->ssthresh * flow->prr_delivered + flow->prior_cwnd - 1;
		send = (int)(share / flow->prior_cwnd) - (int)flow->prr_out;
	} else {
		send = (int)flow->prr_delivered - (int)flow->prr_out;
		if (send < (int)news->delivered)
			send = news->delivered;
		if (news->advanced && !news->lost)
			send++;
		if (send > room)
			send = room;
	}
	if (send < 0)
		send = 0;
	/* The first thing is a retransmission, in any case. */
	if (!send && !flow->prr_out)
		send = 1;
	flow->cwnd = flow->in_flight + send;
}

/* The window is about to be reduced: for losses (RECOVERY), or for a mark (MARKED). */
static void begin_reduction(struct flow *flow, enum recovery why)
{
	flow->recovery_point = flow->nxt;
	flow->probe_end = 0;
	flow->acked_in_avoidance = 0;
	/* A window that is being reduced for a mark isn't reduced again for a loss. */
	if (flow->recovery != MARKED) {
		flow->prior_cwnd = flow->cwnd;
		flow->prr_delivered = 0;
		flow->prr_out = 0;
		flow->ssthresh = reduced_ssthresh(flow, why == MARKED);
	}
	flow->recovery = why;
}

/*
 * A probe that was a retransmission and came alone has repaired a loss that nobody noticed, so the
 * window is reduced for it (RFC 8985, 7.4); that can be told once later segments are acknowledged.
 */
static void answer_to_probe(struct flow *flow, const struct event *ack)
{
	if (!flow->probe_end || flow->una < flow->probe_end)
		return;
	if (flow->probe_retransmitted && !ack->duplicate) {
		if (flow->una == flow->probe_end)
			return;
		flow->ssthresh = reduced_ssthresh(flow, false);
		flow->cwnd = flow->ssthresh;
	}
	flow->probe_end = 0;
}

/* The window after an ACK, and the end of recovery. */
static void adjust_window(struct sim *sim, struct flow *flow, const struct news *news,
			  uint32_t marks)
{
	if (flow->recovery != OPEN && flow->una >= flow->recovery_point) {
		if (flow->recovery != LOSS)
			flow->cwnd = flow->ssthresh;
		flow->recovery = OPEN;
	}
	if (news->lost && (flow->recovery == OPEN || flow->recovery == MARKED))
		begin_reduction(flow, RECOVERY);
	else if (marks && flow->recovery == OPEN)
		begin_reduction(flow, MARKED);
	if (flow->recovery == RECOVERY || flow->recovery == MARKED)
		reduce_window(flow, news);
	else if (news->delivered)
		avoid_congestion(sim, flow, news->delivered);
}

/* In the order of the kernel's tcp_ack(). Says whether the flow's burst is now acknowledged. */
bool receive_ack(struct sim *sim, struct flow *flow, const struct event *ack)
{
	uint64_t rtt_ns;
	struct news news = read_ack(flow, ack);

	if (news.latest_ns) {
		rtt_ns = sim->now - news.latest_ns;
		if (!flow->min_rtt_ns || rtt_ns < flow->min_rtt_ns)
			flow->min_rtt_ns = rtt_ns;
		sample_rtt(flow, sim->now - news.oldest_ns);
		hear_rtt(sim, flow, rtt_ns);
	}
	if (news.advanced)
		flow->backoff = 0;
	hear(sim, flow, ack->said);
	if (news.delivered)
		account(sim, flow, news.latest_ns);
	if (flow->recovery == OPEN)
		answer_to_probe(flow, ack);
	count_marks(flow, news.delivered, ack->marks);
	news.lost = find_losses(flow);
	adjust_window(sim, flow, &news, ack->marks);
	send_allowed(sim, flow);
	if (news.delivered)
		rearm_timer(sim, flow);
	return news.advanced && flow->una == flow->end;
}

/* Tail loss probe (RFC 8985, 7.3): a new segment, else the last one again. */
static void probe(struct sim *sim, struct flow *flow)
{
	if (!flow->probe_end) {
		flow->probe_retransmitted = !may_send_new(flow);
		if (flow->probe_retransmitted)
			retransmit(sim, flow, flow->nxt - 1);
		else
			send_new(sim, flow);
		flow->probe_end = flow->nxt;
	}
	set_time_out(sim, flow);
}

/* Everything that isn't known to have arrived is taken for lost (RFC 5681, 3.1). */
static void time_is_out(struct sim *sim, struct flow *flow)
{
	sim->result->counters.timeouts++;
	if (flow->recovery == OPEN || flow->recovery == MARKED)
		flow->ssthresh = reduced_ssthresh(flow, false);
	lost_all(sim, flow);
	flow->recovery = LOSS;
	flow->recovery_point = flow->nxt;
	flow->probe_end = 0;
	flow->acked_in_avoidance = 0;
	flow->cwnd = 1;
	while (flow->oldest != NOBODY)
		take_for_lost(flow, flow->oldest);
	if (flow->backoff < BACKOFF_MAX)
		flow->backoff++;
	send_allowed(sim, flow);
	set_time_out(sim, flow);
}

void retransmit_timer(struct sim *sim, struct flow *flow)
{
	if (flow->timer_event_ns != sim->now)
		return; /* a deadline that was before this one has replaced it */
	flow->timer_event_ns = 0;
	if (!flow->deadline_ns)
		return;
	if (flow->deadline_ns > sim->now)
		add_timer_event(sim, flow);
	else if (flow->deadline_is_probe)
		probe(sim, flow);
	else
		time_is_out(sim, flow);
}
