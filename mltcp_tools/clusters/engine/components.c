// SPDX-License-Identifier: BSD-2-Clause
/* Who slows whom now: chains of jobs that send, joined by links that are short. */
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
}

void leave(struct flow *flow, uint32_t number)
{
	struct job *job = &flow->jobs[number];
	uint32_t phase = job->moment.phase;

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
}

void find_chain(struct flow *flow, uint32_t number)
{
	struct list *chain = &flow->chain;

	flow->mark++;
	flow->jobs[number].mark = flow->mark;
	chain->count = 0;
	push(chain, number);
	for (uint32_t i = 0; i < chain->count; i++) {
		const struct job *job = &flow->jobs[chain->items[i]];

		for (uint32_t j = 0; j < job->shorts.count; j++) {
			struct link *link = &flow->links[job->spec.link[job->shorts.items[j]]];

			if (link->mark == flow->mark)
				continue;
			link->mark = flow->mark;
			for (uint32_t k = 0; k < link->senders.count; k++) {
				struct job *other = &flow->jobs[link->senders.items[k]];

				if (other->mark == flow->mark)
					continue;
				other->mark = flow->mark;
				push(chain, link->senders.items[k]);
			}
		}
	}
}
