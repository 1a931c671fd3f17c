// SPDX-License-Identifier: BSD-2-Clause
/*
 * Congestion control: Reno (RFC 5681) and DCTCP (RFC 8257), as the kernel has them, and MLTCP on top
 * of them and of CUBIC (cubic.c). The functions are those of kmod/mltcp_cc.c with the simulator's
 * flow in place of the kernel's socket.
 */
#include "internal.h"
#include "mltcp_loss.h"
#include "mltcp_step.h"
#include "mltcp_yield.h"

/* The flows of a job are a path's: no other flow looks at their slot, so any key does. */
#define PATH_KEY 1

#define SSTHRESH_NONE 0x7fffffffU /* of a connection that has lost nothing yet */

#define DCTCP_ALPHA_MAX 1024U
#define DCTCP_GAIN 16U /* the estimate moves by one part of so many */

static bool is_cubic(const struct flow *flow)
{
	return flow->job->spec->base == SIM_CUBIC;
}

void start_congestion_control(struct sim *sim, struct flow *flow)
{
	flow->cwnd = INITIAL_CWND;
	flow->ssthresh = SSTHRESH_NONE;
	flow->dctcp_alpha = DCTCP_ALPHA_MAX;
	cubic_reset(sim, flow);
	mltcp_reset(&flow->mltcp, flow->job->number + 1, 0, 0);
}

/*
 * So many segments were delivered, so many of them marked. Once for each window the share of marked
 * ones moves DCTCP's estimate by a sixteenth (RFC 8257, 3.3).
 */
void count_marks(struct flow *flow, uint32_t delivered, uint32_t marks)
{
	uint32_t alpha = flow->dctcp_alpha, share;

	flow->dctcp_acked += delivered;
	flow->dctcp_marked += marks;
	if (flow->una < flow->dctcp_end)
		return;
	share = flow->dctcp_acked
			? DCTCP_ALPHA_MAX / DCTCP_GAIN * flow->dctcp_marked / flow->dctcp_acked
			: 0;
	alpha -= alpha / DCTCP_GAIN ? alpha / DCTCP_GAIN : alpha;
	alpha += share;
	flow->dctcp_alpha = alpha < DCTCP_ALPHA_MAX ? alpha : DCTCP_ALPHA_MAX;
	flow->dctcp_acked = 0;
	flow->dctcp_marked = 0;
	flow->dctcp_end = flow->nxt;
}

/* The slow-start threshold after a loss, segments; after a mark, where marked. */
uint32_t reduced_ssthresh(struct flow *flow, bool marked)
{
	bool dctcp = flow->job->spec->base == SIM_DCTCP;
	uint32_t ssthresh = flow->cwnd / 2;

	/* To losses, DCTCP answers as Reno does (RFC 8257, 3.5). */
	if (marked && dctcp)
		ssthresh = flow->cwnd -
			   (uint64_t)flow->cwnd * flow->dctcp_alpha / (2 * DCTCP_ALPHA_MAX);
	if (is_cubic(flow))
		ssthresh = cubic_ssthresh(flow);
	if (ssthresh < 2)
		ssthresh = 2;
	if (flow->job->spec->mltcp)
		mltcp_on_loss(&flow->mltcp, flow->srtt_ns / 1000, flow->min_rtt_ns / 1000,
			      &flow->path->full, PATH_KEY);
	return ssthresh;
}

/* One segment more for each `pace` that are acknowledged. */
static void increase_additively(struct flow *flow, uint32_t pace, uint32_t acked)
{
	if (flow->acked_in_avoidance >= pace) {
		flow->acked_in_avoidance = 0;
		flow->cwnd++;
	}
	flow->acked_in_avoidance += acked;
	if (flow->acked_in_avoidance >= pace) {
		flow->cwnd += flow->acked_in_avoidance / pace;
		flow->acked_in_avoidance %= pace;
	}
}

/* Slow start, then congestion avoidance as the base has it. */
static void increase(struct sim *sim, struct flow *flow, uint32_t acked)
{
	uint32_t room;

	if (flow->cwnd < flow->ssthresh) {
		room = flow->ssthresh - flow->cwnd;
		room = acked < room ? acked : room;
		flow->cwnd += room;
		acked -= room;
	}
	if (acked)
		increase_additively(
			flow, is_cubic(flow) ? cubic_pace(sim, flow, acked) : flow->cwnd, acked);
	if (flow->cwnd > flow->window)
		flow->cwnd = flow->window;
}

static struct mltcp_rate_ack ack_of(const struct flow *flow)
{
	return (struct mltcp_rate_ack){
		.now = flow->mltcp.last_ns,
		.cwnd = flow->cwnd,
		.mss = flow->mss,
		.rtt_us = flow->srtt_ns / 1000,
		.min_rtt_us = flow->min_rtt_ns / 1000,
	};
}

/* Set the window by the network's feedback; false where there is none. */
static bool follow(struct flow *flow)
{
	struct way *way = flow->way;
	struct mltcp_rate_ack ack = ack_of(flow);
	uint32_t window;

	if (!mltcp_rate_fresh(&way->path, ack.now, ack.min_rtt_us)) {
		mltcp_rate_lose(&flow->rate);
		return false;
	}
	window = mltcp_rate_window(&flow->rate, &flow->job->spec->rate, &way->path, &way->sent,
				   &flow->mltcp, &ack);
	flow->cwnd = window < flow->window ? window : flow->window;
	return true;
}

/* The window may grow: so many segments were delivered. */
void avoid_congestion(struct sim *sim, struct flow *flow, uint32_t acked)
{
	struct mltcp_flow *state = &flow->mltcp;
	uint32_t before;
	bool yields;

	if (!flow->job->spec->mltcp || (mltcp_is_base(&flow->mltcp) && !flow->job->spec->follows)) {
		increase(sim, flow, acked);
		return;
	}
	if (flow->job->spec->follows && follow(flow))
		return;
	yields = mltcp_yield_or_resume(state, flow->srtt_ns / 1000, flow->min_rtt_ns / 1000,
				       &flow->cwnd, &flow->ssthresh);
	/* CUBIC's window makes for where it was before, so it must not grow meanwhile. */
	if (yields && is_cubic(flow))
		return;
	/* Slow start stays the base's own. */
	before = flow->cwnd;
	increase(sim, flow, flow->cwnd < flow->ssthresh ? acked : mltcp_scaled_acked(state, acked));
	flow->cwnd = mltcp_bounded_cwnd(before, flow->cwnd, acked);
}

/* Sending begins with nothing outstanding; the module learns this from CA_EVENT_TX_START. */
void begin_sending(struct sim *sim, struct flow *flow)
{
	if (is_cubic(flow))
		cubic_begin_sending(sim, flow);
	if (!flow->job->spec->mltcp)
		return;
	mltcp_on_send(&flow->mltcp, sim->now, flow->retransmits);
	mltcp_begin_small(&flow->mltcp, flow->srtt_ns / 1000, flow->min_rtt_ns / 1000, &flow->cwnd,
			  &flow->ssthresh);
}

/* What the link has told a segment came back with an ACK. */
void hear(struct sim *sim, struct flow *flow, uint16_t said)
{
	const struct sim_job *spec = flow->job->spec;

	if (said && spec->follows && !spec->rate.host)
		mltcp_rate_hear(&flow->way->path, sim->now, said, flow->min_rtt_ns / 1000);
}

/* An ACK has given a round-trip time. */
void hear_rtt(struct sim *sim, struct flow *flow, uint64_t rtt_ns)
{
	if (is_cubic(flow))
		cubic_hear(sim, flow, rtt_ns);
}

/* A time-out: everything under way is taken for lost, and the threshold is set. */
void lost_all(struct sim *sim, struct flow *flow)
{
	if (is_cubic(flow))
		cubic_reset(sim, flow);
	if (flow->job->spec->mltcp)
		mltcp_on_time_out(&flow->mltcp, sim->now);
}

/* The host's own estimate of the path, from the flow's round trips. */
static void guess(struct sim *sim, struct flow *flow, uint32_t rtt_us)
{
	struct way *way = flow->way;
	struct mltcp_rate_ack ack = ack_of(flow);

	ack.rtt_us = rtt_us;
	mltcp_rate_hear(&way->path, sim->now, mltcp_rate_guess(&way->sent, &ack), ack.min_rtt_us);
}

/* What mltcp_step() asks of the simulator. */
struct mltcp_env {
	struct sim *sim;
	struct flow *flow;
	int32_t rtt_us; /* the ACK's sample, 0 without one */
};

static __s32 mltcp_env_rtt(const struct mltcp_env *env, __u32 *min_us)
{
	*min_us = env->flow->min_rtt_ns / 1000;
	return env->rtt_us;
}

static const struct mltcp_params *mltcp_env_params(struct mltcp_env *env, struct mltcp_flow *state,
						   uint32_t *mechanisms)
{
	const struct mltcp_params *params = &env->flow->job->spec->params;

	(void)state; /* a flow stays with its job */
	*mechanisms = params->mechanisms;
	return params;
}

static void mltcp_env_report(struct mltcp_env *env, const struct mltcp_flow *state)
{
	struct sim_result *result = env->sim->result;

	if (!mltcp_is_reported(state, 0))
		return;
	result->events = grow(result->events, sizeof(*result->events), result->event_count,
			      &env->sim->event_room);
	result->events[result->event_count++] = (struct sim_event){
		.first_ack_ns = state->start_ns,
		.last_ack_ns = state->last_ns,
		.bytes = mltcp_sent(state),
		.job = env->flow->job->number,
		.flow = env->flow->number,
		.iteration = state->iteration,
		.retransmits = state->retransmits - state->start_retransmits,
		.srtt_us = state->srtt_us,
		.cwnd = state->cwnd,
		.ratio = state->ratio,
	};
}

static __u64 mltcp_env_received(const struct mltcp_env *env)
{
	return env->flow->peer ? env->flow->peer->received_bytes : 0;
}

/* Hosts of a job without tasks send one way, and its connections tell what comes the other way. */
static struct mltcp_host mltcp_env_host(const struct mltcp_env *env, __u64 now)
{
	const struct sim_host *host = env->flow->host;

	(void)now;
	if (!host)
		return (struct mltcp_host){};
	return (struct mltcp_host){.rx_kib = mltcp_kib(host->came),
				   .tx_kib = mltcp_kib(host->sent)};
}

static __u64 *mltcp_env_path(const struct mltcp_env *env, uint32_t job, uint32_t *key)
{
	*key = PATH_KEY;
	return job ? &env->flow->path->ratio : &env->flow->path->full;
}

static void mltcp_env_note(const struct mltcp_env *env, struct mltcp_flow *state)
{
	const struct flow *flow = env->flow;

	mltcp_note(state, flow->cwnd, flow->srtt_ns / 1000, flow->retransmits);
}

static __u8 mltcp_env_is_off(const struct mltcp_env *env)
{
	(void)env;
	return 0;
}

/* The run ends, and with it the iteration. */
void last_report(struct sim *sim, struct flow *flow)
{
	struct mltcp_env env = {.sim = sim, .flow = flow};

	if (!flow->job->spec->mltcp)
		return;
	mltcp_env_note(&env, &flow->mltcp);
	mltcp_env_report(&env, &flow->mltcp);
}

/*
 * Every ACK, before the window is looked at. sent_ns: when the latest segment that it delivered was
 * sent, 0 where that can't be told.
 */
void account(struct sim *sim, struct flow *flow, uint64_t sent_ns)
{
	struct mltcp_flow *state = &flow->mltcp;
	struct mltcp_env env = {
		.sim = sim,
		.flow = flow,
		.rtt_us = sent_ns ? sim->now / 1000 - sent_ns / 1000 : 0,
	};
	uint64_t acked = flow->acked_bytes - state->acked_bytes;
	uint32_t old = state->iteration;

	if (!flow->job->spec->mltcp)
		return;
	mltcp_step(&env, state, sim->now, flow->acked_bytes);
	mltcp_rate_job_ack(&flow->way->sent, sim->now, acked,
			   state->iteration != old ? state->iteration : 0, 1000ULL * state->gap_us);
	if (flow->job->spec->rate.host && env.rtt_us > 0)
		guess(sim, flow, env.rtt_us);
}
