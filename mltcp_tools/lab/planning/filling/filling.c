// SPDX-License-Identifier: BSD-2-Clause
#include "filling.h"

#include <math.h>

/* Levels that are as close as that are taken for one. */
#define TIE 1e-9

/* Takes a user's share from its links; from then on it takes no part. */
static void fix(struct filling *filling, uint32_t user, double share)
{
	filling->share[user] = share;
	for (uint32_t k = filling->first[user]; k < filling->first[user + 1]; k++) {
		struct filling_link *link = &filling->links[filling->crossings[k].link];
		double taken = share * filling->crossings[k].times;

		link->left = link->left > taken ? link->left - taken : 0;
		link->wanted -= filling->weight[user] * filling->crossings[k].times;
		/* What rounding leaves when the last one goes is nobody's. */
		if (link->active && !--link->active)
			link->wanted = 0;
	}
}

/* The speed per weight at which the first link is full, or the first user has all it can take. */
static double next_stop(const struct filling *filling, uint32_t asked)
{
	double stop = INFINITY;

	for (uint32_t i = 0; filling->most && i < filling->open_count; i++) {
		uint32_t user = filling->open[i];

		if (filling->most[user] < stop * filling->weight[user])
			stop = filling->most[user] / filling->weight[user];
	}
	for (uint32_t i = 0; i < asked; i++) {
		const struct filling_link *link = &filling->links[filling->asked[i]];

		if (link->left < stop * link->wanted)
			stop = link->left / link->wanted;
	}
	return stop;
}

/* Fixes those that have all they can take, and lets go of those that are fixed. */
static void stop_capped(struct filling *filling, double stop, double edge)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < filling->open_count; i++) {
		uint32_t user = filling->open[i];

		if (filling->share[user] >= 0)
			continue;
		if (filling->most[user] <= filling->weight[user] * edge)
			fix(filling, user, fmin(stop * filling->weight[user], filling->most[user]));
		else
			filling->open[kept++] = user;
	}
	filling->open_count = kept;
}

/* Fixes those on links that are full at the stop; the links that anybody is left on remain. */
static uint32_t stop_full(struct filling *filling, uint32_t asked, double stop, double edge)
{
	uint32_t kept = 0, full = 0;

	for (uint32_t i = 0; i < asked; i++) {
		const struct filling_link *link = &filling->links[filling->asked[i]];
		uint32_t number = filling->asked[i];

		if (link->left > link->wanted * edge)
			continue;
		/* Full ones come first: fixing changes what is left of the others. */
		filling->asked[i] = filling->asked[full];
		filling->asked[full++] = number;
	}
	for (uint32_t i = 0; i < full; i++) {
		const struct filling_link *link = &filling->links[filling->asked[i]];

		for (uint32_t k = link->first; k < link->end; k++) {
			uint32_t user = filling->on[k];
			double share = stop * filling->weight[user];

			if (filling->share[user] < 0)
				fix(filling, user,
				    filling->most ? fmin(share, filling->most[user]) : share);
		}
	}
	for (uint32_t i = 0; i < asked; i++)
		if (filling->links[filling->asked[i]].active)
			filling->asked[kept++] = filling->asked[i];
	return kept;
}

/* Who takes part is noted at their links. Says how many links these are. */
static uint32_t open_links(struct filling *filling)
{
	uint32_t asked = 0, end = 0;

	for (uint32_t i = 0; i < filling->link_count; i++)
		filling->links[i].wanted = filling->links[i].active = 0;
	for (uint32_t i = 0; i < filling->open_count; i++) {
		uint32_t user = filling->open[i];

		filling->share[user] = -1;
		for (uint32_t k = filling->first[user]; k < filling->first[user + 1]; k++) {
			struct filling_link *link = &filling->links[filling->crossings[k].link];

			link->active++;
			link->wanted += filling->weight[user] * filling->crossings[k].times;
		}
	}
	for (uint32_t i = 0; i < filling->link_count; i++) {
		filling->links[i].first = filling->links[i].end = end;
		end += filling->links[i].active;
		if (filling->links[i].active)
			filling->asked[asked++] = i;
	}
	for (uint32_t i = 0; i < filling->open_count; i++) {
		uint32_t user = filling->open[i];

		for (uint32_t k = filling->first[user]; k < filling->first[user + 1]; k++)
			filling->on[filling->links[filling->crossings[k].link].end++] = user;
	}
	return asked;
}

void fill(struct filling *filling)
{
	uint32_t asked = open_links(filling);

	for (;;) {
		double stop = next_stop(filling, asked);

		if (stop == INFINITY)
			return;
		asked = stop_full(filling, asked, stop, stop * (1 + TIE));
		if (filling->most)
			stop_capped(filling, stop, stop * (1 + TIE));
	}
}

void fill_one(struct filling *filling, uint32_t user)
{
	double share = filling->most[user];

	for (uint32_t k = filling->first[user]; k < filling->first[user + 1]; k++)
		share = fmin(share, filling->links[filling->crossings[k].link].left /
					    filling->crossings[k].times);
	fix(filling, user, share);
}
