/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The simulator's state: flow.c has the events of jobs, rates.c the rates of those that send.
 */
#ifndef MLTCP_CLUSTERS_STATE_H
#define MLTCP_CLUSTERS_STATE_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include "filling.h"
#include "flow.h"

#define NEVER UINT64_MAX
#define NONE UINT32_MAX
#define WHOLE (UINT64_C(1) << 32) /* a link's rate: whole numbers add up the same in any order */
#define RESIZE(array, count) ((array) = must(realloc(array, (count) * sizeof(*(array)))))

struct list {
	uint32_t *items;
	uint32_t count, room;
};

/* A job's crossing of a link. */
struct crossing {
	uint32_t link;
	double times; /* each byte crosses it */
	uint64_t asks; /* the part of the link that it takes alone, WHOLE for all */
	double lost_ns; /* what it cost so far as the full one */
};

struct job {
	struct flow_job spec;
	uint64_t *compute_ns;
	struct crossing *crossings;
	double lone; /* its rate with all links to itself */
	struct flow_stats stats;
	bool sends, ended;
	uint64_t updated; /* when left was right */
	uint64_t left; /* bytes to send */
	uint64_t began; /* the iteration */
	uint64_t due, period, slack; /* its next slot, flow.h */
	uint32_t burst, level;
	double weight, rate;
	double fortune; /* factor on this burst's weight */
	uint32_t full; /* the crossing that keeps it from its rate alone, NONE: no one does */
	struct list shorts; /* while it sends: its crossings of short links */
	uint64_t filled; /* how many fills there were when its rate was worked out */
	uint64_t mark;
};

struct link {
	double rate, packets;
	bool is_short;
	uint64_t asked; /* what those that send would take alone, in parts of WHOLE */
	struct list senders;
	uint64_t mark;
	uint32_t place; /* at that mark: its place among those that are filled */
};

struct flow {
	struct flow_rule rule;
	double *weights; /* of each level */
	struct link *links;
	uint32_t link_count;
	struct job *jobs;
	uint64_t *at; /* of each job: its next event */
	uint32_t job_count, job_room;
	struct list free_jobs;
	struct list chain, near; /* jobs that short links join; those that one of them slowed */
	struct list ended; /* jobs that are done and not yet told */
	struct filling filling; /* of the chain, with room for so many users and crossings */
	uint32_t room;
	uint64_t now, mark;
	uint64_t fills; /* how many there were */
};

static inline void *must(void *memory)
{
	if (!memory) {
		fputs("mltcp: the flow simulator has no memory left\n", stderr);
		abort();
	}
	return memory;
}

static inline void push(struct list *list, uint32_t item)
{
	if (list->count == list->room) {
		list->room = list->room ? 2 * list->room : 8;
		RESIZE(list->items, list->room);
	}
	list->items[list->count++] = item;
}

/* The order of the others is not kept. */
static inline void drop(struct list *list, uint32_t item)
{
	for (uint32_t i = 0; i < list->count; i++)
		if (list->items[i] == item)
			list->items[i--] = list->items[--list->count];
}

/* The job sends from now on. */
void rates_enter(struct flow *flow, uint32_t number);
/* The job sends no more; those that it slowed are in `near`. */
void rates_leave(struct flow *flow, uint32_t number);
/* The job and all that short links join it to are in `chain`. */
void rates_find_chain(struct flow *flow, uint32_t number);
/* New rates for those in `chain`, by their weights. */
void rates_share(struct flow *flow);
void rates_free(struct flow *flow);

#endif
