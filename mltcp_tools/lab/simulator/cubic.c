// SPDX-License-Identifier: BSD-2-Clause
/*
 * CUBIC (RFC 9438) with HyStart, with the constants and the granularity that Linux gives them: the
 * curve is looked at in ticks of 4 ms (CONFIG_HZ=250), and HyStart's ACK trains and delays have the
 * bounds of net/ipv4/tcp_cubic.c in 6.x. Written from the RFC; the arithmetic is in floating point.
 */
#include <math.h>
#include "internal.h"

#define SCALE 0.4 /* C of RFC 9438, 4.1, segments per second^3 */
#define KEPT (717 / 1024.0) /* beta: the share of the window that a loss leaves */
#define TICK_NS (4 * NS_PER_MS)
#define LOOK_TICKS 7 /* a window that doesn't change is looked at anew after so many */
#define FIRST_PACE 20 /* segments per increase at most, before the first loss */
#define LEAST_PACE 2
#define FLAT 100 /* windows, where the curve doesn't rise */

#define TRAIN_GAP_NS (2 * NS_PER_MS) /* ACKs that are further apart are no train */
#define TRAIN_SEND_NS NS_PER_MS /* what sending four super-packets takes, at most */
#define SUPER_PACKETS (4 * 65536.0) /* bytes */
#define HYSTART_CWND 16 /* segments, below which slow start goes on in any case */
#define DELAY_SAMPLES 8
#define DELAY_MIN_NS (4 * NS_PER_MS)
#define DELAY_MAX_NS (16 * NS_PER_MS)
#define FRESH_LOSS_NS (1000 * NS_PER_MS) /* delays aren't looked at for so long after one */

static void begin_round(struct sim *sim, struct flow *flow)
{
	struct cubic *cubic = &flow->cubic;

	cubic->round_ns = sim->now;
	cubic->train_ns = sim->now;
	cubic->round_end = flow->nxt;
	cubic->round_rtt_ns = UINT64_MAX;
	cubic->samples = 0;
}

/* All is forgotten: at the start, and after a time-out. */
void cubic_reset(struct sim *sim, struct flow *flow)
{
	flow->cubic = (struct cubic){0};
	begin_round(sim, flow);
}

/* The slow-start threshold after a loss, and what the curve will go for (RFC 9438, 4.6 and 4.7). */
uint32_t cubic_ssthresh(struct flow *flow)
{
	struct cubic *cubic = &flow->cubic;

	cubic->climbs = false;
	if (flow->cwnd < cubic->most)
		cubic->most = flow->cwnd * (1 + KEPT) / 2;
	else
		cubic->most = flow->cwnd;
	return flow->cwnd * KEPT;
}

/* Sending begins after a pause, for which the curve has stood still. */
void cubic_begin_sending(struct sim *sim, struct flow *flow)
{
	struct cubic *cubic = &flow->cubic;

	if (cubic->climbs && flow->last_sent_ns)
		cubic->epoch += sim->now / TICK_NS - flow->last_sent_ns / TICK_NS;
}

/* HyStart: do ACKs come in a train as long as half of the empty round trip, or do delays grow? */
static bool path_is_full(struct sim *sim, struct flow *flow, uint64_t rtt_ns)
{
	struct cubic *cubic = &flow->cubic;
	uint64_t bound = cubic->least_rtt_ns / 8, send_ns;

	if (flow->una > cubic->round_end)
		begin_round(sim, flow);
	if (flow->cwnd < HYSTART_CWND)
		return false;
	if (sim->now - cubic->train_ns <= TRAIN_GAP_NS) {
		cubic->train_ns = sim->now;
		/* The kernel's pacing rate in slow start is twice a window per round trip. */
		send_ns = SUPER_PACKETS * flow->srtt_ns / (2.0 * flow->cwnd * flow->mss);
		send_ns = send_ns < TRAIN_SEND_NS ? send_ns : TRAIN_SEND_NS;
		if (sim->now - cubic->round_ns > (cubic->least_rtt_ns + send_ns) / 2)
			return true;
	}
	if (rtt_ns < cubic->round_rtt_ns)
		cubic->round_rtt_ns = rtt_ns;
	if (cubic->samples < DELAY_SAMPLES) {
		cubic->samples++;
		return false;
	}
	bound = bound < DELAY_MIN_NS ? DELAY_MIN_NS : bound;
	bound = bound > DELAY_MAX_NS ? DELAY_MAX_NS : bound;
	return cubic->round_rtt_ns > cubic->least_rtt_ns + bound;
}

/* An ACK has given a round-trip time. */
void cubic_hear(struct sim *sim, struct flow *flow, uint64_t rtt_ns)
{
	struct cubic *cubic = &flow->cubic;

	if (cubic->climbs && sim->now - cubic->epoch * TICK_NS < FRESH_LOSS_NS)
		return;
	if (!cubic->least_rtt_ns || rtt_ns < cubic->least_rtt_ns)
		cubic->least_rtt_ns = rtt_ns;
	if (cubic->found || flow->cwnd >= flow->ssthresh || !path_is_full(sim, flow, rtt_ns))
		return;
	cubic->found = true;
	flow->ssthresh = flow->cwnd;
}

/* A curve begins at the present window (RFC 9438, 4.2). */
static void begin_climb(struct flow *flow, uint64_t tick, uint32_t acked)
{
	struct cubic *cubic = &flow->cubic;

	cubic->climbs = true;
	cubic->epoch = tick;
	cubic->acked = acked;
	cubic->reno_cwnd = flow->cwnd;
	cubic->plateau = flow->cwnd > cubic->most ? flow->cwnd : cubic->most;
	cubic->rise_s = cbrt((cubic->plateau - flow->cwnd) / SCALE);
}

/* Acknowledged segments for each by which the window grows, by the curve. */
static double pace_of_curve(const struct flow *flow, uint64_t tick)
{
	const struct cubic *cubic = &flow->cubic;
	/* Where the curve is a round trip ahead. */
	uint64_t ahead = (cubic->least_rtt_ns + TICK_NS - 1) / TICK_NS;
	double past_s = (tick - cubic->epoch + ahead) * (TICK_NS * 1e-9) - cubic->rise_s;
	double above = cubic->plateau + SCALE * past_s * past_s * past_s - flow->cwnd;
	double pace = above > 1.0 / FLAT ? flow->cwnd / above : FLAT * (double)flow->cwnd;

	return !cubic->most && pace > FIRST_PACE ? FIRST_PACE : pace;
}

/* What Reno would have by now (RFC 9438, 4.3); the window isn't to grow slower than that. */
static void follow_reno(struct flow *flow)
{
	struct cubic *cubic = &flow->cubic;
	double each = flow->cwnd * (1 + KEPT) / (3 * (1 - KEPT)), lead;

	if (cubic->acked > each) {
		cubic->reno_cwnd += floor(cubic->acked / each);
		cubic->acked = fmod(cubic->acked, each);
	}
	lead = cubic->reno_cwnd - flow->cwnd;
	if (lead > 0 && cubic->pace > flow->cwnd / lead)
		cubic->pace = flow->cwnd / lead;
}

/* How many segments must be acknowledged for the window to grow by one, in congestion avoidance. */
uint32_t cubic_pace(struct sim *sim, struct flow *flow, uint32_t acked)
{
	struct cubic *cubic = &flow->cubic;
	uint64_t tick = sim->now / TICK_NS;

	cubic->acked += acked;
	if (cubic->cwnd == flow->cwnd && tick - cubic->looked <= LOOK_TICKS && cubic->pace)
		return cubic->pace;
	if (!cubic->climbs || tick != cubic->looked) {
		cubic->cwnd = flow->cwnd;
		cubic->looked = tick;
		if (!cubic->climbs)
			begin_climb(flow, tick, acked);
		cubic->pace = pace_of_curve(flow, tick);
	}
	follow_reno(flow);
	if (cubic->pace < LEAST_PACE)
		cubic->pace = LEAST_PACE;
	return cubic->pace;
}
