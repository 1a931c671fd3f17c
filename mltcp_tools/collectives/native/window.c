// SPDX-License-Identifier: BSD-2-Clause
/*
 * How much a worker has on the way, and when it asks for answers that are late.
 *
 * The window follows TCP: slow start, then one packet more in four RTTs, half of it after a loss.
 * RFC 5681 adds one in each RTT, but a worker loses less beside TCP: it learns of a loss an RTT
 * later, and what TCP sends then meets a full queue. A packet without values asks for what has no
 * answer while later packets have theirs, or for the RTO (RFC 6298). The aggregator says whether
 * ours is missing (a loss: send it again), its answer got lost (a loss too), or other workers' are
 * missing (no loss: wait).
 */
#include <math.h>
#include "internal.h"

static uint64_t rto_ns(const struct worker *w, uint32_t polls)
{
	double rto = w->srtt_ns ? w->srtt_ns + 4 * w->rttvar_ns : FIRST_RTO_NS;

	if (rto < w->config.min_rto_us * 1e3)
		rto = w->config.min_rto_us * 1e3;
	rto *= 1u << (polls < 6 ? polls : 6);
	return rto < MAX_RTO_NS ? (uint64_t)rto : MAX_RTO_NS;
}

void sample_rtt(struct worker *w, double rtt)
{
	if (!w->srtt_ns) {
		w->srtt_ns = rtt;
		w->rttvar_ns = rtt / 2;
		return;
	}
	w->rttvar_ns += (fabs(w->srtt_ns - rtt) - w->rttvar_ns) / 4;
	w->srtt_ns += (rtt - w->srtt_ns) / 8;
}

void set_timer(struct worker *w, struct slot *slot, uint64_t now)
{
	slot->wakes_ns = now + rto_ns(w, slot->polls);
	if (slot->wakes_ns < w->wakes_ns)
		w->wakes_ns = slot->wakes_ns;
}

/* At most once for all packets that were in flight together. */
void note_loss(struct worker *w, const struct slot *slot)
{
	w->counters.losses++;
	w->later = w->later / 2 > LATER_ANSWERS ? w->later / 2 : LATER_ANSWERS;
	if (slot->order < w->recovery)
		return;
	w->counters.windows_cut++;
	w->ssthresh = w->cwnd / 2 > 2 ? w->cwnd / 2 : 2;
	w->cwnd = w->ssthresh;
	w->recovery = w->order;
}

/* Ask for those whose time is up. */
void run_timers(struct worker *w, uint64_t now)
{
	uint32_t i;

	if (now < w->wakes_ns)
		return;
	w->wakes_ns = UINT64_MAX;
	for (i = 0; i < w->config.slots; i++) {
		struct slot *slot = &w->slots[i];

		if (slot->state != SLOT_FLYING)
			continue;
		if (slot->wakes_ns <= now && !slot->urgent) {
			/* Polls without an answer: the path is worse than half a window helps. */
			if (slot->polls == DEAF_POLLS && !slot->held) {
				note_loss(w, slot);
				w->cwnd = w->cwnd < 2 ? w->cwnd : 2;
			}
			make_urgent(w, i, false);
		} else if (slot->wakes_ns < w->wakes_ns) {
			w->wakes_ns = slot->wakes_ns;
		}
	}
}

/* Ask for packets that several later ones have overtaken. */
void look_for_holes(struct worker *w)
{
	while (w->scanned + w->later <= w->answered) {
		uint32_t index = w->by_order[w->scanned % ORDERS];
		struct slot *slot = &w->slots[index];

		if (slot->state == SLOT_FLYING && slot->order == w->scanned && !slot->held &&
		    !slot->polls)
			make_urgent(w, index, false);
		w->scanned++;
	}
}

/* Packets that may go to the kernel as one message. A queue may drop it whole, so it is a part of
 * the window, as TCP's is, and of the last few packets none. */
uint32_t worker_train(const struct worker *w)
{
	uint32_t train = (uint32_t)w->cwnd / TRAINS_OF_WINDOW;

	return train ? train : 1;
}

void grow_window(struct worker *w)
{
	if (w->flying + w->urgent.count + 1 < (uint32_t)w->cwnd)
		return; /* it wasn't the window that held us back */
	w->cwnd += w->cwnd < w->ssthresh ? 1 : GROWTH / w->cwnd;
	if (w->cwnd > w->stride)
		w->cwnd = w->stride;
}
