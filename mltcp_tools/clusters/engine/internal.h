/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the flow simulator share; flow.h says what it does. Each calls only those below. */
#ifndef MLTCP_CLUSTERS_INTERNAL_H
#define MLTCP_CLUSTERS_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include "filling.h"
#include "flow.h"

#define NEVER UINT64_MAX
#define NONE UINT32_MAX
#define WHOLE (UINT64_C(1) << 32) /* a link's rate: whole numbers add up the same in any order */

enum state { COMPUTING, SENDING };

/* Where a job stands. */
struct moment {
	uint64_t at; /* of its next event */
	uint64_t updated; /* when left was right */
	uint64_t left; /* bytes to send */
	uint64_t began; /* the iteration */
	uint64_t due; /* its next slot */
	uint64_t period, slack; /* of its time shifts, flow.h */
	double rate;
	uint32_t phase, row, burst, level;
	enum state state;
};

struct list {
	uint32_t *items;
	uint32_t count, room;
};

struct job {
	struct moment moment;
	double weight, share; /* part of a full link; bytes per nanosecond */
	double fortune; /* factor on this burst's weight */
	uint64_t filled; /* how many fills there were when its share was worked out */
	uint32_t full; /* the crossing that keeps it from its rate alone, NONE: no one does */
	double *lost_ns; /* of each crossing, since it began: what it cost as the full one */
	bool ended;
	uint32_t mark;
	uint32_t heap_place;
	struct list shorts; /* components.c's, while it sends: its links that are short */
	struct flow_job spec; /* with copies of its arrays */
	double *lone; /* of each phase: its rate with all links to itself */
	uint64_t *
		asks; /* of each of spec.crossings: the part of the link that it takes alone, WHOLE for all */
	struct flow_stats stats;
};

struct link {
	double rate, packets;
	bool is_short; /* those that send ask for more than it carries */
	uint64_t asked; /* what those that send would take alone, in parts of WHOLE */
	struct list senders;
	uint32_t mark, place; /* at that mark: its place among those that are filled */
};

/* What fill.c hands to filling.c: scratch. */
struct fill {
	struct filling filling;
	uint32_t *first, *asked, *on, *open;
	double *most, *weight, *share;
	struct filling_crossing *crossings;
	struct filling_link *links;
	uint32_t job_room, crossing_room;
};

struct flow {
	struct flow_rule rule;
	double *weights; /* of each level */
	struct link *links;
	uint32_t link_count;
	struct job *jobs;
	uint32_t job_count, job_room;
	struct list free_jobs;
	struct list heap; /* jobs, the one with the earliest event first */
	/* Scratch: jobs that send and that short links join; those that one of them slowed. */
	struct list chain, near;
	struct list ended; /* jobs that are done and not yet told */
	struct fill fill;
	uint32_t mark;
	uint64_t now;
	uint64_t fills; /* how many there were */
};

/* events.c: what is due for the job at `now`; its next phase begins; it sends no more; when it would have sent all. */
void happen(struct flow *flow, uint32_t job, uint64_t now);
void begin_phase(struct flow *flow, uint32_t job, uint64_t now);
void stop_burst(struct flow *flow, uint32_t job, uint64_t now);
uint64_t after(uint64_t now, double bytes, double rate);

/* fill.c: shares of all jobs of the chain, by their weights. */
void fill_chain(struct flow *flow);

/* components.c: the job's chain is in flow->chain; its burst begins; ends, with those it slowed in near. */
void find_chain(struct flow *flow, uint32_t number);
void enter(struct flow *flow, uint32_t job);
void leave(struct flow *flow, uint32_t job);

/* lists.c: memory or the end; lists; the heap of jobs by their next event. */
void *must(void *memory);
void push(struct list *list, uint32_t item);
void drop(struct list *list, uint32_t item);
void heap_add(struct flow *flow, uint32_t job);
void heap_remove(struct flow *flow, uint32_t job);
void set_at(struct flow *flow, uint32_t job, uint64_t at);

#endif
