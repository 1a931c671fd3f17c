// SPDX-License-Identifier: BSD-2-Clause
/*
 * Who slows whom now: chains of jobs that send, joined by links that are short. They change only
 * where a burst begins or ends, and are kept rather than looked for.
 */
#include <stdlib.h>
#include <string.h>
#include "internal.h"

/* Whether those that send ask for more than the link carries. If not, none of them slows another. */
static bool asks_too_much(const struct link *link)
{
	/* Parts are rounded, so that jobs that just fit may seem to ask for a little more. */
	return link->asked > WHOLE + 4;
}

/* The job's crossing of a link in this phase. */
static uint32_t crossing_of(const struct job *job, uint32_t link)
{
	uint32_t at = job->spec.first[job->moment.phase];

	while (job->spec.link[at] != link)
		at++;
	return at;
}

static void become_short(struct flow *flow, uint32_t number)
{
	struct link *link = &flow->links[number];

	link->is_short = true;
	for (uint32_t i = 0; i < link->senders.count; i++) {
		struct job *job = &flow->jobs[link->senders.items[i]];

		push(&job->shorts, crossing_of(job, number));
	}
}

static void become_wide(struct flow *flow, uint32_t number)
{
	struct link *link = &flow->links[number];

	link->is_short = false;
	for (uint32_t i = 0; i < link->senders.count; i++) {
		struct job *job = &flow->jobs[link->senders.items[i]];

		drop(&job->shorts, crossing_of(job, number));
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

/* One chain of two. */
static void join(struct flow *flow, uint32_t a, uint32_t b)
{
	uint32_t to = flow->chains[a].count < flow->chains[b].count ? b : a, from = a ^ b ^ to;

	for (uint32_t i = 0; i < flow->chains[from].count; i++)
		enter_chain(flow, flow->chains[from].items[i], to);
	flow->chains[from].count = 0;
	push(&flow->free_chains, from);
}

void enter(struct flow *flow, uint32_t number)
{
	struct job *job = &flow->jobs[number];
	uint32_t phase = job->moment.phase;

	job->shorts.count = 0;
	for (uint32_t i = job->spec.first[phase]; i < job->spec.first[phase + 1]; i++) {
		struct link *link = &flow->links[job->spec.link[i]];

		link->asked += job->asks[i];
		push(&link->senders, number);
		if (link->is_short)
			push(&job->shorts, i);
		else if (asks_too_much(link))
			become_short(flow, job->spec.link[i]);
	}
	enter_chain(flow, number, new_chain(flow));
	for (uint32_t i = 0; i < job->shorts.count; i++) {
		const struct link *link = &flow->links[job->spec.link[job->shorts.items[i]]];

		for (uint32_t j = 0; j < link->senders.count; j++) {
			uint32_t other = flow->jobs[link->senders.items[j]].chain;

			if (other != job->chain)
				join(flow, other, job->chain);
		}
	}
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

		for (uint32_t j = 0; j < job->shorts.count; j++) {
			struct link *link = &flow->links[job->spec.link[job->shorts.items[j]]];

			if (link->mark == flow->mark)
				continue;
			link->mark = flow->mark;
			for (uint32_t k = 0; k < link->senders.count; k++) {
				struct job *other = &flow->jobs[link->senders.items[k]];

				if (other->mark == flow->mark)
					continue;
				missing -= other->mark == near;
				other->mark = flow->mark;
				push(found, link->senders.items[k]);
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

	leave_chain(flow, number);
	for (uint32_t i = job->spec.first[phase]; i < job->spec.first[phase + 1]; i++)
		drop(&flow->links[job->spec.link[i]].senders, number);
	flow->near.count = 0;
	for (uint32_t i = 0; i < job->shorts.count; i++) {
		const struct link *link = &flow->links[job->spec.link[job->shorts.items[i]]];

		for (uint32_t j = 0; j < link->senders.count; j++)
			push(&flow->near, link->senders.items[j]);
	}
	for (uint32_t i = job->spec.first[phase]; i < job->spec.first[phase + 1]; i++) {
		struct link *link = &flow->links[job->spec.link[i]];

		link->asked -= job->asks[i];
		if (link->is_short && !asks_too_much(link))
			become_wide(flow, job->spec.link[i]);
	}
	part(flow, chain);
	if (!flow->chains[chain].count)
		push(&flow->free_chains, chain);
}
