// SPDX-License-Identifier: GPL-2.0
/* Coflows under per-flow fairness: flows between the same two ports all get one rate.
 *
 * Rates are max-min fair: all rise alike, and where a port is full those of its flows stay
 * (Bertsekas and Gallager, Data Networks, section 6.5.2). As the flows of a pair of ports progress
 * alike, only the one with the least left can be the next to end.
 */
#include "fabric.h"

#include <math.h>
#include <stdlib.h>

/* Flows between two ports, an interval of the array. head: the next to end. end: behind the last.
 * rate: of each, a share of a port's. served: seconds that each has been served. */
struct pair {
	uint32_t ports[2], head, end;
	double rate, served;
};

struct shares {
	struct pair *pairs;
	uint32_t *first, *list; /* port -> index in `list` of its pairs; egress follows ingress */
	double *room; /* port -> rate that is not given away */
	uint32_t *rising; /* port -> flows whose rate is not final */
	uint32_t port_count, pair_count;
};

static void find_pairs(struct shares *s, const struct fabric_flow *flows, uint32_t count)
{
	struct pair *pair = NULL;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t egress = s->port_count / 2 + flows[i].egress;

		if (!pair || pair->ports[0] != flows[i].ingress || pair->ports[1] != egress) {
			pair = &s->pairs[s->pair_count++];
			*pair = (struct pair){{flows[i].ingress, egress}, i, i, 0, 0};
		}
		pair->end = i + 1;
	}
	for (uint32_t i = 0; i < s->pair_count; i++)
		for (int side = 0; side < 2; side++)
			s->first[s->pairs[i].ports[side]]++;
	for (uint32_t port = 0, sum = 0; port <= s->port_count; port++)
		s->first[port] = sum += s->first[port];
	for (uint32_t i = 0; i < s->pair_count; i++)
		for (int side = 0; side < 2; side++)
			s->list[--s->first[s->pairs[i].ports[side]]] = i;
}

/* Max-min fair rates of all pairs: the fullest port decides first. */
static void share(struct shares *s)
{
	for (uint32_t port = 0; port < s->port_count; port++) {
		s->room[port] = 1;
		s->rising[port] = 0;
	}
	for (uint32_t i = 0; i < s->pair_count; i++) {
		struct pair *pair = &s->pairs[i];

		pair->rate = -1;
		for (int side = 0; side < 2; side++)
			s->rising[pair->ports[side]] += pair->end - pair->head;
	}
	for (;;) {
		double least = INFINITY;
		uint32_t fullest = 0;

		for (uint32_t port = 0; port < s->port_count; port++)
			if (s->rising[port] && s->room[port] < least * s->rising[port]) {
				least = s->room[port] / s->rising[port];
				fullest = port;
			}
		if (least == INFINITY)
			return;
		for (uint32_t i = s->first[fullest]; i < s->first[fullest + 1]; i++) {
			struct pair *pair = &s->pairs[s->list[i]];
			uint32_t flows = pair->end - pair->head;

			if (pair->rate >= 0)
				continue;
			pair->rate = least;
			for (int side = 0; side < 2; side++) {
				double *room = &s->room[pair->ports[side]];

				*room = fmax(0, *room - least * flows);
				s->rising[pair->ports[side]] -= flows;
			}
		}
	}
}

/* How long until the first flow ends, s. */
static double soonest(const struct shares *s, const struct fabric_flow *flows)
{
	double next = INFINITY;

	for (uint32_t i = 0; i < s->pair_count; i++) {
		const struct pair *pair = &s->pairs[i];

		if (pair->head < pair->end)
			next = fmin(next, (flows[pair->head].left - pair->served) / pair->rate);
	}
	return fmax(0, next);
}

static double serve(struct shares *s, struct fabric_flow *flows, uint32_t *unfinished,
		    double *finished, double now, double until, double grain)
{
	for (;;) {
		double next, step;

		share(s);
		next = soonest(s, flows);
		if (next == INFINITY)
			return now;
		step = fmin(next, until - now);
		now += step;
		for (uint32_t i = 0; i < s->pair_count; i++) {
			struct pair *pair = &s->pairs[i];
			double ended;

			pair->served += pair->rate * step;
			ended = pair->served + pair->rate * grain * now + 1e-15;
			for (; step == next && pair->head < pair->end &&
			       flows[pair->head].left <= ended;
			     pair->head++) {
				struct fabric_flow *flow = &flows[pair->head];

				flow->left = 0;
				if (!--unfinished[flow->coflow])
					finished[flow->coflow] = now;
			}
		}
		if (step < next)
			return until;
	}
}

double fabric_fairly(struct fabric_flow *flows, uint32_t count, uint32_t ports,
		     uint32_t *unfinished, double *finished, double now, double until, double grain)
{
	size_t p = 2 * (size_t)ports + 1, n = count ? count : 1;
	struct shares s = {
		.pairs = calloc(n, sizeof(struct pair)),
		.list = calloc(2 * n, sizeof(uint32_t)),
		.first = calloc(p, sizeof(uint32_t)),
		.room = calloc(p, sizeof(double)),
		.rising = calloc(p, sizeof(uint32_t)),
		.port_count = 2 * ports,
	};
	double stopped = NAN;

	if (s.pairs && s.list && s.first && s.room && s.rising) {
		find_pairs(&s, flows, count);
		stopped = serve(&s, flows, unfinished, finished, now, until, grain);
		for (uint32_t i = 0; i < s.pair_count; i++)
			for (uint32_t flow = s.pairs[i].head; flow < s.pairs[i].end; flow++)
				flows[flow].left -= s.pairs[i].served;
	}
	free(s.pairs);
	free(s.list);
	free(s.first);
	free(s.room);
	free(s.rising);
	return stopped;
}
