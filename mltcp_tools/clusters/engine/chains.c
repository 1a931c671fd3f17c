// SPDX-License-Identifier: GPL-2.0-only
/*
 * Who slows whom now: chains of jobs that send, joined by links that are short. They change only
 * where a burst begins or ends, and are kept rather than looked for.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "internal.h"

/* Whether those that send ask for more than the link carries. If not, none of them slows another. */
static bool asks_too_much(const struct link *link)
{
	/* Parts are rounded, so that jobs that just fit may seem to ask for a little more. */
	return link->asked > WHOLE + 4;
}

static void add_sender(struct link *link, struct sender sender)
{
	uint32_t at = link->sender_count;

	if (link->sender_count == link->sender_room) {
		link->sender_room = link->sender_room ? 2 * link->sender_room : 4;
		link->senders =
			must(realloc(link->senders, link->sender_room * sizeof(*link->senders)));
	}
	for (; at && link->senders[at - 1].job > sender.job; at--)
		link->senders[at] = link->senders[at - 1];
	link->senders[at] = sender;
	link->sender_count++;
}

static void drop_sender(struct link *link, uint32_t job)
{
	uint32_t at = 0;

	while (link->senders[at].job != job)
		at++;
	link->sender_count--;
	memmove(&link->senders[at], &link->senders[at + 1],
		(link->sender_count - at) * sizeof(*link->senders));
}

static void drop_short(struct job *job, uint32_t link)
{
	uint32_t at = 0;

	while (job->shorts[at].link != link)
		at++;
	job->shorts[at] = job->shorts[--job->short_count];
}

static void become_short(struct flow *flow, uint32_t number)
{
	struct link *link = &flow->links[number];

	link->is_short = true;
	link->level = INFINITY;
	link->tied = false;
	link->used = 0;
	for (uint32_t i = 0; i < link->sender_count; i++) {
		const struct sender *sender = &link->senders[i];
		struct job *job = &flow->jobs[sender->job];

		job->shorts[job->short_count++] = (struct use){sender->times, number};
		link->used += job->counted * sender->times;
	}
}

static void become_wide(struct flow *flow, uint32_t number)
{
	struct link *link = &flow->links[number];

	link->is_short = false;
	for (uint32_t i = 0; i < link->sender_count; i++) {
		struct job *job = &flow->jobs[link->senders[i].job];

		drop_short(job, number);
		/* The next filling is without the link, though by rounding only it may have decided. */
		job->again = job->again || job->level == link->level;
	}
}

static uint32_t new_chain(struct flow *flow)
{
	if (flow->free_chains.count)
		return flow->free_chains.items[--flow->free_chains.count];
	if (flow->chain_count == flow->chain_room) {
		flow->chain_room = flow->chain_room ? 2 * flow->chain_room : 64;
		flow->chains =
			must(realloc(flow->chains, flow->chain_room * sizeof(*flow->chains)));
		memset(&flow->chains[flow->chain_count], 0,
		       (flow->chain_room - flow->chain_count) * sizeof(*flow->chains));
	}
	return flow->chain_count++;
}

static void enter_chain(struct flow *flow, uint32_t number, uint32_t chain)
{
	flow->jobs[number].chain = chain;
	flow->jobs[number].chain_place = flow->chains[chain].count;
	push(&flow->chains[chain], number);
}

static void leave_chain(struct flow *flow, uint32_t number)
{
	struct list *chain = &flow->chains[flow->jobs[number].chain];
	uint32_t place = flow->jobs[number].chain_place, last = chain->items[--chain->count];

	chain->items[place] = last;
	flow->jobs[last].chain_place = place;
}

/* One chain of two; those that came to the longer one are noted. */
static void join(struct flow *flow, uint32_t a, uint32_t b)
{
	uint32_t to = flow->chains[a].count < flow->chains[b].count ? b : a, from = a ^ b ^ to;

	for (uint32_t i = 0; i < flow->chains[from].count; i++) {
		enter_chain(flow, flow->chains[from].items[i], to);
		push(&flow->joined, flow->chains[from].items[i]);
	}
	flow->chains[from].count = 0;
	push(&flow->free_chains, from);
}

void enter(struct flow *flow, uint32_t number)
{
	struct job *job = &flow->jobs[number];
	uint32_t phase = job->moment.phase;

	job->short_count = 0;
	job->counted = 0;
	for (uint32_t i = job->spec.first[phase]; i < job->spec.first[phase + 1]; i++) {
		struct link *link = &flow->links[job->spec.link[i]];

		link->asked += job->asks[i];
		add_sender(link, (struct sender){job->spec.crossings[i], number, i});
		if (link->is_short)
			job->shorts[job->short_count++] =
				(struct use){job->spec.crossings[i], job->spec.link[i]};
		else if (asks_too_much(link))
			become_short(flow, job->spec.link[i]);
	}
	flow->joined.count = 0;
	enter_chain(flow, number, new_chain(flow));
	for (uint32_t i = 0; i < job->short_count; i++) {
		const struct link *link = &flow->links[job->shorts[i].link];

		for (uint32_t j = 0; j < link->sender_count; j++) {
			uint32_t other = flow->jobs[link->senders[j].job].chain;

			if (other != job->chain)
				join(flow, other, job->chain);
		}
	}
}

void stop_sending(struct flow *flow, uint32_t number)
{
	const struct job *job = &flow->jobs[number];
	uint32_t phase = job->moment.phase;

	for (uint32_t i = job->spec.first[phase]; i < job->spec.first[phase + 1]; i++)
		drop_sender(&flow->links[job->spec.link[i]], number);
	for (uint32_t i = 0; i < job->short_count; i++)
		flow->links[job->shorts[i].link].used -= job->counted * job->shorts[i].times;
	leave_chain(flow, number);
	flow->joined.count = 0;
}

/* Marks those near that are still of the chain, and counts them. */
static uint32_t mark_near(struct flow *flow, uint32_t chain)
{
	uint32_t count = 0;

	flow->mark++;
	for (uint32_t i = 0; i < flow->near.count; i++) {
		struct job *job = &flow->jobs[flow->near.items[i]];

		count += job->chain == chain && job->mark != flow->mark;
		if (job->chain == chain)
			job->mark = flow->mark;
	}
	return count;
}

/* Whether short links join the job to all those near of its chain; if not, `stack` has all it is joined to. */
static bool is_joined(struct flow *flow, uint32_t number)
{
	struct list *found = &flow->stack;
	uint32_t missing = mark_near(flow, flow->jobs[number].chain) - 1, near = flow->mark++;

	flow->jobs[number].mark = flow->mark;
	found->count = 0;
	push(found, number);
	for (uint32_t i = 0; i < found->count && missing; i++) {
		const struct job *job = &flow->jobs[found->items[i]];

		for (uint32_t j = 0; j < job->short_count; j++) {
			struct link *link = &flow->links[job->shorts[j].link];

			if (link->mark == flow->mark)
				continue;
			link->mark = flow->mark;
			for (uint32_t k = 0; k < link->sender_count; k++) {
				struct job *other = &flow->jobs[link->senders[k].job];

				if (other->mark == flow->mark)
					continue;
				missing -= other->mark == near;
				other->mark = flow->mark;
				push(found, link->senders[k].job);
			}
		}
	}
	return !missing;
}

/* What the job was the only joint of falls apart; near: those that it shared short links with. */
static void part(struct flow *flow, uint32_t chain)
{
	for (uint32_t i = 0; i < flow->near.count; i++) {
		uint32_t to;

		if (flow->jobs[flow->near.items[i]].chain != chain)
			continue;
		if (is_joined(flow, flow->near.items[i]))
			return;
		to = new_chain(flow);
		for (uint32_t j = 0; j < flow->stack.count; j++) {
			leave_chain(flow, flow->stack.items[j]);
			enter_chain(flow, flow->stack.items[j], to);
		}
	}
}

void leave(struct flow *flow, uint32_t number)
{
	struct job *job = &flow->jobs[number];
	uint32_t phase = job->moment.phase, chain = job->chain;

	flow->near.count = 0;
	for (uint32_t i = 0; i < job->short_count; i++) {
		const struct link *link = &flow->links[job->shorts[i].link];

		for (uint32_t j = 0; j < link->sender_count; j++)
			push(&flow->near, link->senders[j].job);
	}
	for (uint32_t i = job->spec.first[phase]; i < job->spec.first[phase + 1]; i++) {
		struct link *link = &flow->links[job->spec.link[i]];

		link->asked -= job->asks[i];
		if (link->is_short && !asks_too_much(link))
			become_wide(flow, job->spec.link[i]);
	}
	job->short_count = 0;
	part(flow, chain);
	if (!flow->chains[chain].count)
		push(&flow->free_chains, chain);
}
