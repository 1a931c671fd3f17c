// SPDX-License-Identifier: GPL-2.0-only
/*
 * Shares after an event, worked out only where they change. Filling (fill.c) raises everybody's speed
 * per weight, the level, until links are full, one after the other. What an event changes is felt
 * from the level on at which a link of its job's is or was full, and only by links that jobs with
 * another level than before cross. These are filled again in the order of their levels, to the last
 * bit as if all were: a link's sums go over the same jobs in the same order. A link that wasn't full
 * is left out until shares would take more of it than there is.
 *
 * Filling takes levels that are nearly equal for one. Where that could matter, all is filled.
 */
#include <math.h>
#include <string.h>
#include "internal.h"

/* Only links that are full, or that were found to be fuller than they can be, decide. */
static void look_again(struct flow *flow, uint32_t number, bool asked)
{
	struct change *change = &flow->change;
	struct link *link = &flow->links[number];

	if (link->mark != flow->mark && link->level == INFINITY && !asked)
		return;
	if (link->mark != flow->mark) {
		link->mark = flow->mark;
		link->done = link->pending = false;
		push(&change->links, number);
	}
	if (link->done || link->pending)
		return;
	link->pending = true;
	push(&change->pending, number);
}

/* The job's level is to be found. */
static void reopen(struct flow *flow, uint32_t number)
{
	struct job *job = &flow->jobs[number];

	job->mark = flow->mark;
	job->level = INFINITY;
	job->top = job->alone / job->weight;
	push(&flow->change.open, number);
	push(&flow->change.touched, number);
	for (uint32_t i = 0; i < job->short_count; i++)
		look_again(flow, job->shorts[i].link, false);
}

static void settle_at(struct flow *flow, uint32_t number, double level)
{
	struct job *job = &flow->jobs[number];
	double rate = level * job->weight;

	if (job->mark != flow->mark)
		push(&flow->change.touched, number);
	job->mark = flow->mark;
	job->level = level;
	job->share = rate < job->alone ? rate : job->alone;
	for (uint32_t i = 0; i < job->short_count; i++)
		look_again(flow, job->shorts[i].link, false);
}

/* Jobs on a link that stop below its level, by their levels. */
static void sort_slower(struct flow *flow, const struct link *link)
{
	struct list *slower = &flow->change.slower;

	slower->count = 0;
	for (uint32_t i = 0; i < link->sender_count; i++) {
		const struct job *job = &flow->jobs[link->senders[i].job];
		uint32_t at = slower->count;

		if (job->level == INFINITY ||
		    (job->mark != flow->mark && job->level >= link->level))
			continue;
		push(slower, i);
		for (;
		     at && flow->jobs[link->senders[slower->items[at - 1]].job].level > job->level;
		     at--)
			slower->items[at] = slower->items[at - 1];
		slower->items[at] = i;
	}
}

/* The level at which the link is full as things stand, into `next`. False: too close to another. */
static bool fill_link(struct flow *flow, struct link *link)
{
	const struct list *slower = &flow->change.slower;
	double left = link->room, wanted = 0;
	uint32_t active = link->sender_count;

	for (uint32_t i = 0; i < link->sender_count; i++)
		wanted += flow->jobs[link->senders[i].job].weight * link->senders[i].times;
	sort_slower(flow, link);
	for (uint32_t i = 0; i < slower->count;) {
		double level = flow->jobs[link->senders[slower->items[i]].job].level;

		if (left <= level * (1 + NEARLY) * wanted) {
			link->left = left;
			link->wanted = wanted;
			link->next = left / wanted;
			return left < level * (1 - NEARLY) * wanted;
		}
		for (; i < slower->count; i++) {
			const struct sender *sender = &link->senders[slower->items[i]];
			const struct job *job = &flow->jobs[sender->job];
			double taken = job->share * sender->times;

			if (job->level != level)
				break;
			left = left > taken ? left - taken : 0;
			wanted -= job->weight * sender->times;
			active--;
		}
	}
	link->left = left;
	link->wanted = wanted;
	link->next = active ? left / wanted : INFINITY;
	return !active || wanted > 0;
}

static bool fill_pending(struct flow *flow)
{
	struct change *change = &flow->change;

	while (change->pending.count) {
		struct link *link = &flow->links[change->pending.items[--change->pending.count]];

		link->pending = false;
		if (!fill_link(flow, link))
			return false;
		if (!link->tied && link->next <= link->level)
			continue;
		/* It no longer stops those that it stopped, or they are to find those that it is tied to. */
		for (uint32_t i = 0; i < link->sender_count; i++) {
			const struct job *job = &flow->jobs[link->senders[i].job];

			if (job->mark != flow->mark && job->level >= link->level)
				reopen(flow, link->senders[i].job);
		}
	}
	return true;
}

/* The lowest level at which a link is full or a job has all it can take. */
static double lowest(struct flow *flow)
{
	struct change *change = &flow->change;
	double least = INFINITY;
	uint32_t kept = 0;

	for (uint32_t i = 0; i < change->links.count; i++) {
		const struct link *link = &flow->links[change->links.items[i]];

		if (!link->done && link->next < least)
			least = link->next;
	}
	for (uint32_t i = 0; i < change->open.count; i++) {
		const struct job *job = &flow->jobs[change->open.items[i]];

		if (job->level != INFINITY)
			continue;
		change->open.items[kept++] = change->open.items[i];
		if (job->top < least)
			least = job->top;
	}
	change->open.count = kept;
	return least;
}

static bool nearly(double a, double b)
{
	return a != b && fabs(a - b) <= NEARLY * b;
}

static bool crosses(const struct link *link, uint32_t number)
{
	for (uint32_t i = 0; i < link->sender_count; i++)
		if (link->senders[i].job == number)
			return true;
	return false;
}

/* A job without a level before the stop that crosses all links of the tie. */
static bool is_joined(struct flow *flow, double level, uint32_t capped)
{
	const struct list *tie = &flow->change.tie;
	const struct link *first = &flow->links[tie->items[0]];

	for (uint32_t i = 0; i < first->sender_count; i++) {
		uint32_t number = first->senders[i].job, at = 1;

		if (flow->jobs[number].level <= level || (capped != NOBODY && capped != number))
			continue;
		while (at < tie->count && crosses(&flow->links[tie->items[at]], number))
			at++;
		if (at == tie->count)
			return true;
	}
	return false;
}

/* fill.c goes over links in the order in which their first jobs cross them. */
static bool goes_first(const struct link *a, const struct link *b)
{
	if (a->senders[0].job != b->senders[0].job)
		return a->senders[0].job < b->senders[0].job;
	return a->senders[0].place < b->senders[0].place;
}

/* The level of a tie, as fill.c's next_stop() has it. */
static double tied_level(struct flow *flow, uint32_t capped)
{
	const struct list *tie = &flow->change.tie;
	double stop = capped == NOBODY ? INFINITY : flow->jobs[capped].top;

	for (uint32_t i = 0; i < tie->count; i++) {
		const struct link *link = &flow->links[tie->items[i]];

		if (link->left < stop * link->wanted)
			stop = link->next;
	}
	return stop;
}

/*
 * Collects what stops at the level, or at nearly the same one, in `tie`, and says at which level
 * all of that stops; 0: that is for fill.c to say.
 */
static double find_tie(struct flow *flow, double level)
{
	struct change *change = &flow->change;
	bool exact = true, apart = false;
	uint32_t capped = NOBODY, count = 0;

	change->tie.count = 0;
	for (uint32_t i = 0; i < change->open.count; i++) {
		double most = flow->jobs[change->open.items[i]].top;

		if (most > level * (1 + NEARLY))
			continue;
		exact = exact && most == level;
		apart = apart || most > level * (1 + TIE / 2);
		capped = change->open.items[i];
		count++;
	}
	for (uint32_t i = 0; i < change->links.count; i++) {
		const struct link *link = &flow->links[change->links.items[i]];
		uint32_t at = change->tie.count;

		if (link->done || link->next > level * (1 + NEARLY))
			continue;
		exact = exact && link->next == level;
		apart = apart || link->next > level * (1 + TIE / 2);
		push(&change->tie, change->links.items[i]);
		for (; at && goes_first(link, &flow->links[change->tie.items[at - 1]]); at--)
			change->tie.items[at] = change->tie.items[at - 1];
		change->tie.items[at] = change->links.items[i];
	}
	for (uint32_t i = 0; i < change->tie.count; i++)
		flow->links[change->tie.items[i]].tied = !exact;
	if (exact)
		return level;
	if (count > 1 || apart || !is_joined(flow, level, capped))
		return 0;
	return tied_level(flow, capped);
}

/* Jobs that can't go faster stop at this level. False: others nearly do, too. */
static bool stop_at_level(struct flow *flow, double level)
{
	struct change *change = &flow->change;
	double stop = find_tie(flow, level);

	if (stop <= 0)
		return false;
	for (uint32_t i = 0; i < change->tie.count; i++) {
		flow->links[change->tie.items[i]].done = true;
		flow->links[change->tie.items[i]].level = stop;
	}
	for (uint32_t i = 0; i < change->tie.count; i++) {
		struct link *link = &flow->links[change->tie.items[i]];

		for (uint32_t j = 0; j < link->sender_count; j++) {
			uint32_t number = link->senders[j].job;

			if (flow->jobs[number].level > stop)
				settle_at(flow, number, stop);
		}
	}
	for (uint32_t i = 0; i < change->open.count; i++) {
		const struct job *job = &flow->jobs[change->open.items[i]];

		if (job->level == INFINITY && job->top <= level * (1 + NEARLY))
			settle_at(flow, change->open.items[i], stop);
	}
	change->levels[change->level_count++] = stop;
	return true;
}

/* Levels that are nearly equal are in the same bucket, or in neighbouring ones. */
static uint64_t bucket(double level)
{
	uint64_t bits;

	memcpy(&bits, &level, sizeof(bits));
	return bits >> 26;
}

/* Whether a level that is new, or that came to the chain, is close to another one's of the chain. */
static bool levels_meet(struct flow *flow, const struct list *chain)
{
	struct change *change = &flow->change;
	uint64_t marks[16] = {0};

	for (uint32_t i = 0; i < flow->joined.count; i++) {
		if (change->level_count == MOST_LEVELS)
			return true;
		change->levels[change->level_count++] = flow->jobs[flow->joined.items[i]].level;
	}
	for (uint32_t i = 0; i < change->level_count; i++)
		for (uint64_t at = bucket(change->levels[i]) - 1, end = at + 3; at < end; at++)
			marks[at / 64 % 16] |= UINT64_C(1) << at % 64;
	for (uint32_t i = 0; i < chain->count; i++) {
		double level = flow->jobs[chain->items[i]].level;
		uint64_t at = bucket(level);

		if (!(marks[at / 64 % 16] >> at % 64 & 1))
			continue;
		for (uint32_t j = 0; j < change->level_count; j++)
			if (nearly(level, change->levels[j]))
				return true;
	}
	return false;
}

void count_share(struct flow *flow, uint32_t number)
{
	struct job *job = &flow->jobs[number];
	double more = job->share - job->counted;

	job->counted = job->share;
	for (uint32_t i = 0; i < job->short_count; i++)
		flow->links[job->shorts[i].link].used += more * job->shorts[i].times;
}

/* Collects links that weren't full and now may be more than that. */
static void find_full(struct flow *flow)
{
	struct change *change = &flow->change;

	change->full.count = 0;
	for (uint32_t i = 0; i < change->touched.count; i++)
		count_share(flow, change->touched.items[i]);
	for (uint32_t i = 0; i < change->touched.count; i++) {
		const struct job *job = &flow->jobs[change->touched.items[i]];

		for (uint32_t j = 0; j < job->short_count; j++) {
			const struct link *link = &flow->links[job->shorts[j].link];

			if (link->level == INFINITY && link->mark != flow->mark &&
			    link->used > link->room * (1 - SPARE))
				push(&change->full, job->shorts[j].link);
		}
	}
}

/* Levels are found from the lowest on until nobody is without one. False: all is to be filled. */
static bool find_levels(struct flow *flow)
{
	struct change *change = &flow->change;
	double last = 0;

	while (fill_pending(flow)) {
		double level = lowest(flow);

		if (level == INFINITY) {
			for (uint32_t i = 0; i < change->links.count; i++) {
				struct link *link = &flow->links[change->links.items[i]];

				if (!link->done)
					link->level = INFINITY;
			}
			return true;
		}
		if (level <= last * (1 + NEARLY) || change->level_count == MOST_LEVELS ||
		    !stop_at_level(flow, level))
			return false;
		last = change->levels[change->level_count - 1];
	}
	return false;
}

static void begin_change(struct flow *flow)
{
	struct change *change = &flow->change;

	flow->mark++;
	change->links.count = change->pending.count = change->open.count = 0;
	change->touched.count = 0;
}

bool change_shares(struct flow *flow, const struct list *chain)
{
	struct change *change = &flow->change;

	begin_change(flow);
	change->level_count = 0;
	for (uint32_t i = 0; i < flow->changing.count; i++) {
		const struct job *job = &flow->jobs[flow->changing.items[i]];

		if (job->moment.state == SENDING) {
			reopen(flow, flow->changing.items[i]);
			continue;
		}
		for (uint32_t j = 0; j < job->short_count; j++)
			look_again(flow, job->shorts[j].link, false);
	}
	for (;;) {
		if (!find_levels(flow))
			return false;
		find_full(flow);
		if (!change->full.count)
			return !levels_meet(flow, chain);
		begin_change(flow);
		for (uint32_t i = 0; i < change->full.count; i++)
			look_again(flow, change->full.items[i], true);
	}
}
