// SPDX-License-Identifier: BSD-2-Clause
/* The sending end of a flow: what is sent when, round-trip times, and the timer. */
#include "internal.h"

/*
 * What a tail loss probe waits beyond two round trips: two ticks of a kernel of 250 Hz
 * (TCP_TIMEOUT_MIN); for the ACK of a lone segment, which a receiver may delay, the shortest
 * time-out.
 */
#define PROBE_NS (8 * NS_PER_MS)

/* RFC 6298, with the kernel's bound on the variation rather than on the sum. */
static uint64_t time_out(const struct sim *sim, const struct flow *flow)
{
	uint64_t variation = 4 * flow->rttvar_ns;

	if (variation < sim->options->rto_min_ns)
		variation = sim->options->rto_min_ns;
	return (flow->srtt_ns + variation) << flow->backoff;
}

/* A connection has been made, and its handshake has given the first round-trip time. */
void start_sender(struct sim *sim, struct flow *flow)
{
	uint32_t i;

	flow->oldest = NOBODY;
	flow->newest = NOBODY;
	for (i = 0; i < flow->ahead_count; i++)
		flow->srtt_ns += sim->links[flow->ahead[i]].rtt_ns;
	flow->rttvar_ns = flow->srtt_ns / 2;
	start_congestion_control(sim, flow);
}

void sample_rtt(struct flow *flow, uint64_t rtt_ns)
{
	uint64_t off = rtt_ns > flow->srtt_ns ? rtt_ns - flow->srtt_ns : flow->srtt_ns - rtt_ns;

	flow->rttvar_ns = (3 * flow->rttvar_ns + off) / 4;
	flow->srtt_ns = (7 * flow->srtt_ns + rtt_ns) / 8;
}

void add_timer_event(struct sim *sim, struct flow *flow)
{
	flow->timer_event_ns = flow->deadline_ns;
	add_event(sim, (struct event){.time = flow->deadline_ns,
				      .kind = RETRANSMIT_TIMER,
				      .owner = flow_index(sim, flow)});
}

static void set_timer(struct sim *sim, struct flow *flow, uint64_t deadline, bool probe)
{
	flow->deadline_ns = deadline;
	flow->deadline_is_probe = probe;
	/* An event that comes too early adds the next one, so that most ACKs add none. */
	if (!flow->timer_event_ns || flow->timer_event_ns > deadline)
		add_timer_event(sim, flow);
}

void set_time_out(struct sim *sim, struct flow *flow)
{
	set_timer(sim, flow, sim->now + time_out(sim, flow), false);
}

/*
 * What to do if nothing comes any more: a probe where nothing is known to be missing (with gaps in
 * what was delivered, the kernel is in TCP_CA_Disorder and sends none), else all is lost.
 */
void rearm_timer(struct sim *sim, struct flow *flow)
{
	uint64_t wait = time_out(sim, flow), probe = 2 * flow->srtt_ns;

	probe += flow->nxt - flow->una == 1 ? sim->options->rto_min_ns : PROBE_NS;
	if (flow->una == flow->nxt)
		flow->deadline_ns = 0;
	else if (flow->recovery == OPEN && !flow->sacked)
		set_timer(sim, flow, sim->now + (probe < wait ? probe : wait), true);
	else
		set_time_out(sim, flow);
}

/* The outstanding segment is no longer: it was delivered, is lost, or is sent once more. */
void forget_transmission(struct flow *flow, uint64_t seq)
{
	struct segment *segment = segment_at(flow, seq);

	if (segment->older == NOBODY)
		flow->oldest = segment->newer;
	else
		segment_at(flow, segment->older)->newer = segment->newer;
	if (segment->newer == NOBODY)
		flow->newest = segment->older;
	else
		segment_at(flow, segment->newer)->older = segment->older;
}

/* The segment counts neither as lost nor as in flight any more. */
void uncount(struct flow *flow, uint64_t seq)
{
	if (segment_at(flow, seq)->state == LOST) {
		flow->lost--;
	} else {
		flow->in_flight--;
		forget_transmission(flow, seq);
	}
}

static void transmit(struct sim *sim, struct flow *flow, uint64_t seq)
{
	struct segment *segment = segment_at(flow, seq);

	segment->sent_ns = sim->now;
	segment->order = ++flow->order;
	segment->state = OUTSTANDING;
	segment->older = flow->newest;
	segment->newer = NOBODY;
	if (flow->newest == NOBODY)
		flow->oldest = seq;
	else
		segment_at(flow, flow->newest)->newer = seq;
	flow->newest = seq;
	flow->in_flight++;
	flow->last_sent_ns = sim->now;
	if (flow->recovery == RECOVERY || flow->recovery == MARKED)
		flow->prr_out++;
	hand_to_link(sim, flow, seq);
	if (flow->job->spec->follows)
		segment->sent_ns = flow->host_ns; /* the kernel's time stamp is that of leaving */
}

/* Payload of a segment of the burst. */
static uint32_t payload_of(const struct sim *sim, const struct flow *flow, uint64_t seq)
{
	uint64_t chunk = flow->job->spec->chunk ? flow->job->spec->chunk : flow->burst_bytes;
	uint64_t each = segments_of(sim, chunk), number = (seq - flow->begin) / each;
	uint64_t left = flow->burst_bytes - number * chunk;

	if (left > chunk)
		left = chunk;
	left -= (seq - flow->begin) % each * sim->options->mss;
	return left < sim->options->mss ? left : sim->options->mss;
}

/* Payload of a segment that is sent for the first time, and so the next one. */
static uint32_t message_payload(const struct sim *sim, struct flow *flow, uint64_t seq)
{
	const struct message *message;
	uint64_t before;

	while (seq >= flow->messages[flow->message_sending].end)
		flow->message_sending++;
	message = &flow->messages[flow->message_sending];
	before = (seq - message->begin) * sim->options->mss;
	return message->bytes - before < sim->options->mss ? message->bytes - before
							   : sim->options->mss;
}

void send_new(struct sim *sim, struct flow *flow)
{
	if (flow->una == flow->nxt)
		begin_sending(sim, flow);
	*segment_at(flow, flow->nxt) = (struct segment){
		.bytes = flow->job->spec->tasks ? message_payload(sim, flow, flow->nxt)
						: payload_of(sim, flow, flow->nxt)};
	transmit(sim, flow, flow->nxt++);
}

void retransmit(struct sim *sim, struct flow *flow, uint64_t seq)
{
	struct segment *segment = segment_at(flow, seq);

	uncount(flow, seq);
	segment->retransmitted = true;
	flow->retransmits++;
	sim->result->counters.retransmitted++;
	transmit(sim, flow, seq);
}

bool may_send_new(const struct flow *flow)
{
	return flow->nxt < flow->allowed && flow->nxt - flow->una < flow->window;
}

/* Send what the window allows, what was lost first. */
void send_allowed(struct sim *sim, struct flow *flow)
{
	uint64_t seq = flow->first_lost > flow->una ? flow->first_lost : flow->una;

	for (; flow->lost && flow->in_flight < flow->cwnd; seq++)
		if (segment_at(flow, seq)->state == LOST)
			retransmit(sim, flow, seq);
	flow->first_lost = seq;
	while (may_send_new(flow) && flow->in_flight < flow->cwnd)
		send_new(sim, flow);
}

/* RFC 5681, 4.1, as tcp_cwnd_restart(): half the window for each time-out without sending. */
static void restart_after_idle(struct sim *sim, struct flow *flow)
{
	uint64_t step = time_out(sim, flow), idle = sim->now - flow->last_sent_ns;
	uint32_t restart = flow->cwnd < INITIAL_CWND ? flow->cwnd : INITIAL_CWND;
	uint32_t share = flow->cwnd / 2 + flow->cwnd / 4;

	if (!flow->last_sent_ns || idle <= step)
		return;
	if (share > flow->ssthresh)
		flow->ssthresh = share;
	for (; idle > step && flow->cwnd > restart; idle -= step)
		flow->cwnd /= 2;
	if (flow->cwnd < restart)
		flow->cwnd = restart;
}

/* Make segments of a burst of so many bytes, and begin to send them. */
void send_burst(struct sim *sim, struct flow *flow, uint64_t bytes)
{
	uint64_t chunk = flow->job->spec->chunk ? flow->job->spec->chunk : bytes;
	uint64_t each = segments_of(sim, chunk);

	flow->begin = flow->nxt;
	flow->end = flow->nxt + bytes / chunk * each + segments_of(sim, bytes % chunk);
	flow->allowed = flow->nxt + each < flow->end ? flow->nxt + each : flow->end;
	flow->burst_bytes = bytes;
	flow->burst_acked_bytes = flow->acked_bytes;
	flow->done = false;
	if (sim->options->slow_start_after_idle)
		restart_after_idle(sim, flow);
	send_allowed(sim, flow);
	rearm_timer(sim, flow);
}

/* Send a message behind those that are there; with nothing under way, that is a burst. */
void send_message(struct sim *sim, struct flow *flow, uint64_t task, uint32_t bytes)
{
	bool idle = flow->una == flow->nxt && flow->una == flow->end;

	flow->messages = grow(flow->messages, sizeof(*flow->messages), flow->message_count,
			      &flow->message_room);
	flow->messages[flow->message_count++] =
		(struct message){.begin = flow->end,
				 .end = flow->end + segments_of(sim, bytes),
				 .task = task,
				 .bytes = bytes};
	flow->end += segments_of(sim, bytes);
	flow->allowed = flow->end;
	flow->done = false;
	if (!idle) {
		send_allowed(sim, flow);
		return;
	}
	flow->burst_acked_bytes = flow->acked_bytes;
	if (sim->options->slow_start_after_idle)
		restart_after_idle(sim, flow);
	send_allowed(sim, flow);
	rearm_timer(sim, flow);
}

/* The application hands over what comes before that segment. */
void hand_over(struct sim *sim, struct flow *flow, uint64_t allowed)
{
	bool idle = flow->una == flow->nxt;

	flow->allowed = allowed;
	send_allowed(sim, flow);
	if (idle)
		rearm_timer(sim, flow);
}
