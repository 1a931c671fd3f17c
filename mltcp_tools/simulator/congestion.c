// SPDX-License-Identifier: GPL-2.0-only
/*
 * Congestion control: Reno (RFC 5681), as the kernel has it, and MLTCP on top of it. The functions
 * are those of kmod/mltcp_cc.c with the simulator's flow in place of the kernel's socket.
 */
#include "internal.h"

/* The flows of a job are a path's: no other flow looks at their slot, so any key does. */
#define PATH_KEY 1

void start_congestion_control(struct flow *flow)
{
	flow->cwnd = INITIAL_CWND;
	flow->ssthresh = MLTCP_SSTHRESH_NONE;
	mltcp_reset(&flow->mltcp, flow->job->number + 1, 0, 0);
}

/* The slow-start threshold after a loss, segments. */
uint32_t reduced_ssthresh(const struct sim *sim, struct flow *flow)
{
	uint32_t ssthresh = flow->cwnd / 2 > 2 ? flow->cwnd / 2 : 2;

	if (!flow->job->spec->mltcp)
		return ssthresh;
	mltcp_delay_ask(&flow->mltcp.delay, sim->now, &flow->job->path, PATH_KEY);
	ssthresh = mltcp_on_loss(&flow->mltcp, flow->cwnd, ssthresh, flow->srtt_ns / 1000,
				 flow->min_rtt_ns / 1000);
	mltcp_delay_tell(&flow->mltcp.delay, &flow->job->path, PATH_KEY);
	return ssthresh;
}

/* One segment more for each window that is acknowledged. */
static void increase_additively(struct flow *flow, uint32_t acked)
{
	uint32_t window = flow->cwnd;

	if (flow->acked_in_avoidance >= window) {
		flow->acked_in_avoidance = 0;
		flow->cwnd++;
	}
	flow->acked_in_avoidance += acked;
	if (flow->acked_in_avoidance >= window) {
		flow->cwnd += flow->acked_in_avoidance / window;
		flow->acked_in_avoidance %= window;
	}
}

static void reno(struct flow *flow, uint32_t acked)
{
	uint32_t room;

	if (flow->cwnd < flow->ssthresh) {
		room = flow->ssthresh - flow->cwnd;
		room = acked < room ? acked : room;
		flow->cwnd += room;
		acked -= room;
	}
	if (acked)
		increase_additively(flow, acked);
	if (flow->cwnd > WINDOW)
		flow->cwnd = WINDOW;
}

/* The window may grow: so many segments were delivered. */
void avoid_congestion(struct flow *flow, uint32_t acked)
{
	struct mltcp_flow *state = &flow->mltcp;

	if (!flow->job->spec->mltcp) {
		reno(flow, acked);
		return;
	}
	mltcp_yield_or_resume(state, flow->srtt_ns / 1000, &flow->cwnd, &flow->ssthresh);
	/* Slow start stays Reno's own. */
	if (flow->cwnd >= flow->ssthresh)
		acked = mltcp_scaled_acked(state, acked);
	reno(flow, acked);
}

/* The iteration that has ended. */
static void report(struct sim *sim, struct flow *flow)
{
	struct sim_result *result = sim->result;
	const struct mltcp_flow *state = &flow->mltcp;

	if (!flow->job->spec->mltcp || !mltcp_is_reported(state, 0))
		return;
	result->events = grow(result->events, sizeof(*result->events), result->event_count,
			      &sim->event_room);
	result->events[result->event_count++] = (struct sim_event){
		.first_ack_ns = state->start_ns,
		.last_ack_ns = state->last_ns,
		.bytes = mltcp_sent(state),
		.job = flow->job->number,
		.flow = flow->number,
		.iteration = state->iteration,
		.retransmits = state->retransmits - state->start_retransmits,
		.srtt_us = state->srtt_us,
		.cwnd = state->cwnd,
		.ratio = state->ratio,
	};
}

static void note(struct flow *flow)
{
	mltcp_note(&flow->mltcp, flow->cwnd, flow->srtt_ns / 1000, flow->retransmits);
}

/* The run ends, and with it the iteration. */
void last_report(struct sim *sim, struct flow *flow)
{
	note(flow);
	report(sim, flow);
}

/*
 * Every ACK, before the window is looked at. sent_ns: when the latest segment that it delivered was
 * sent, 0 where that can't be told; segments, acked: what it acknowledged.
 */
void account(struct sim *sim, struct flow *flow, uint64_t sent_ns, uint32_t segments,
	     uint64_t acked)
{
	const struct mltcp_params *params = &flow->job->spec->params;
	struct mltcp_flow *state = &flow->mltcp;
	struct mltcp_rtt rtt = {
		.now_us = sim->now / 1000,
		.rtt_us = sent_ns ? sim->now / 1000 - sent_ns / 1000 : 0,
		.min_us = flow->min_rtt_ns / 1000,
		.segments = segments,
		.bytes = acked,
		.outstanding = flow->nxt - flow->una,
		.retransmitted = flow->retransmits,
	};

	if (!flow->job->spec->mltcp)
		return;
	if (mltcp_was_idle(state) && mltcp_is_boundary(state, params, sim->now)) {
		report(sim, flow);
		mltcp_begin(state, params, sim->now, 0);
	}
	mltcp_delay_rtt(&state->delay, &rtt);
	if (mltcp_on_ack(state, sim->now, flow->acked_bytes)) {
		note(flow);
		mltcp_delay_ask(&state->delay, sim->now, &flow->job->path, PATH_KEY);
		mltcp_decide(state, params, params->mechanisms, sim->now);
	}
}
