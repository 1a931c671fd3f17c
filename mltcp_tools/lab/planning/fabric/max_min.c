// SPDX-License-Identifier: BSD-2-Clause
/* Coflows under per-flow fairness: flows between the same two ports all get one rate.
 *
 * Rates are max-min fair (filling.c). As the flows of a pair of ports progress alike, only the one
 * with the least left can be the next to end.
 */
#include "fabric.h"

#include <math.h>
#include <stdlib.h>

#include "filling.h"

/* Flows between two ports, an interval of the array. head: the next to end. end: behind the last.
 * served: seconds that each has been served. */
struct pair {
	uint32_t head, end;
	double served;
};

struct shares {
	struct pair *pairs;
	uint32_t *first; /* of each pair, of its two crossings */
	struct filling_crossing *crossings;
	struct filling_link *ports; /* egress follows ingress */
	double *weight, *share; /* of each pair; its weight is its flows */
	uint32_t *open, *asked, *on;
	uint32_t port_count, pair_count;
};

static void find_pairs(struct shares *s, const struct fabric_flow *flows, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		struct filling_crossing *ports = &s->crossings[2 * s->pair_count];
		uint32_t egress = s->port_count / 2 + flows[i].egress;

		if (!i || flows[i].ingress != flows[i - 1].ingress ||
		    flows[i].egress != flows[i - 1].egress) {
			ports[0] = (struct filling_crossing){1, flows[i].ingress};
			ports[1] = (struct filling_crossing){1, egress};
			s->pairs[s->pair_count++] = (struct pair){i, i, 0};
			s->first[s->pair_count] = 2 * s->pair_count;
		}
		s->pairs[s->pair_count - 1].end = i + 1;
	}
}

static void share(struct shares *s)
{
	struct filling filling = {
		.first = s->first,
		.crossings = s->crossings,
		.weight = s->weight,
		.share = s->share,
		.links = s->ports,
		.link_count = s->port_count,
		.asked = s->asked,
		.on = s->on,
		.open = s->open,
	};

	for (uint32_t port = 0; port < s->port_count; port++)
		s->ports[port].left = 1;
	for (uint32_t i = 0; i < s->pair_count; i++) {
		s->weight[i] = s->pairs[i].end - s->pairs[i].head;
		if (s->weight[i] > 0)
			s->open[filling.open_count++] = i;
	}
	fill(&filling);
}

/* The rate of each flow of a pair that isn't done, a share of a port's. */
static double rate(const struct shares *s, uint32_t pair)
{
	return s->weight[pair] > 0 ? s->share[pair] / s->weight[pair] : 0;
}

/* How long until the first flow ends, s. */
static double soonest(const struct shares *s, const struct fabric_flow *flows)
{
	double next = INFINITY;

	for (uint32_t i = 0; i < s->pair_count; i++) {
		const struct pair *pair = &s->pairs[i];

		if (pair->head < pair->end)
			next = fmin(next, (flows[pair->head].left - pair->served) / rate(s, i));
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

			pair->served += rate(s, i) * step;
			ended = pair->served;
			if (step == next)
				ended += rate(s, i) * grain * now + 1e-15;
			for (; pair->head < pair->end && flows[pair->head].left <= ended;
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
	size_t n = (size_t)count + 1, p = 2 * (size_t)ports + 1;
	struct shares s = {
		.pairs = calloc(n, sizeof(struct pair)),
		.first = calloc(n, sizeof(uint32_t)),
		.crossings = calloc(2 * n, sizeof(struct filling_crossing)),
		.ports = calloc(p, sizeof(struct filling_link)),
		.weight = calloc(2 * n, sizeof(double)),
		.open = calloc(3 * n + p, sizeof(uint32_t)),
		.port_count = 2 * ports,
	};
	double stopped = NAN;

	if (s.pairs && s.first && s.crossings && s.ports && s.weight && s.open) {
		s.share = s.weight + n;
		s.asked = s.open + n;
		s.on = s.asked + p;
		find_pairs(&s, flows, count);
		stopped = serve(&s, flows, unfinished, finished, now, until, grain);
		for (uint32_t i = 0; i < s.pair_count; i++)
			for (uint32_t flow = s.pairs[i].head; flow < s.pairs[i].end; flow++)
				flows[flow].left -= s.pairs[i].served;
	}
	free(s.pairs);
	free(s.first);
	free(s.crossings);
	free(s.ports);
	free(s.weight);
	free(s.open);
	return stopped;
}
