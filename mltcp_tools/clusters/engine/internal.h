/* SPDX-License-Identifier: GPL-2.0-only */
/* What the files of the flow simulator share; see flow.h for what it does. */
#ifndef MLTCP_CLUSTERS_INTERNAL_H
#define MLTCP_CLUSTERS_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include "flow.h"

#define NEVER UINT64_MAX
#define NO_GROUP UINT32_MAX
#define NOBODY UINT32_MAX
#define WHOLE (UINT64_C(1) << 32) /* a link's rate: whole numbers add up the same in any order */
#define LUCK_BURSTS 64 /* after so many bursts a job's luck repeats */
#define TIE 1e-9 /* fill.c takes levels that are as close as that for one */
#define NEARLY (4 * TIE) /* and levels as close as that might be one */
#define SPARE 1e-6 /* a link with as much of its room unused isn't full */
#define MOST_LEVELS 512 /* that change.c changes */

enum state { COMPUTING, SENDING };

/* A link that a job crosses while it sends. */
struct use {
	double times; /* that each byte does */
	uint32_t link;
};

/* Where a job stands. All that decides what comes, and nothing else: skip.c compares these. */
struct moment {
	uint64_t at; /* of its next event */
	uint64_t updated; /* when left was right */
	uint64_t left; /* bytes to send */
	uint64_t began; /* the iteration */
	uint64_t asked; /* when the burst was ready to begin */
	uint64_t sending; /* time of this iteration spent on bursts before this one */
	uint64_t due; /* its next turn */
	double rate;
	uint32_t state, phase, row, burst, level;
	uint32_t padding; /* zero: moments are compared byte by byte */
};

struct job {
	/* First what every event near the job asks for: a line of a processor's cache. */
	double level; /* fill.c's: speed per weight at which it stopped */
	double weight, share; /* fill.c's: part of a full link; bytes per nanosecond */
	double alone; /* its rate with this phase's links to itself */
	double counted; /* of its share: in its short links' `used` */
	struct use *shorts; /* chains.c's, while it sends: its links that are short */
	uint32_t short_count;
	uint32_t mark;
	struct moment moment;
	double top; /* change.c's: the level at which it has all it can take */
	double fortune; /* fill.c's: factor on this burst's weight */
	bool whole; /* its chain's next shares are worked out as a whole */
	bool again; /* its own are at the next event */
	bool used, ended;
	uint32_t group;
	uint32_t position; /* in its group */
	uint32_t chain, chain_place; /* chains.c's, while it sends */
	struct flow_job spec; /* with copies of its arrays */
	uint32_t *all_links; /* each once, of all phases */
	uint32_t link_count;
	double *lone; /* of each phase: its rate with all links to itself */
	double *most; /* of each of all_links: the largest rate at which it can ask for it */
	uint64_t *
		asks; /* of each of spec.crossings: the part of the link that it takes alone, WHOLE for all */
	double slow; /* factor on compute times */
	struct flow_stats stats;
	struct flow_iteration *record;
};

struct list {
	uint32_t *items;
	uint32_t count, room;
};

struct sender {
	double times; /* each byte crosses the link */
	uint32_t job;
	uint32_t place; /* of the link in the job's spec */
};

struct link {
	double rate, packets;
	struct list jobs; /* that are placed on it */
	bool contended; /* they could ask for more than it carries */
	bool is_short; /* those that send do */
	bool tied; /* fill.c's: it was full together with others, at nearly the same level */
	bool done, pending; /* change.c's */
	uint64_t asked; /* what those that send would take alone, in parts of WHOLE */
	struct sender *senders; /* in ascending order */
	uint32_t sender_count, sender_room;
	uint32_t mark;
	uint32_t placed, place; /* fill.c's: at that mark, its place among those that are short */
	double used; /* all but exactly: what shares take of it while it is short */
	double room; /* fill.c's: its rate less what a crowd of flows loses */
	double level; /* fill.c's: speed per weight at which it was full; INFINITY: it wasn't */
	/* change.c's: the same as things stand, and what it is the ratio of */
	double next, left, wanted;
};

/* Jobs that can meet. */
struct group {
	uint32_t *jobs; /* in ascending order */
	uint64_t *at; /* of each, for a quick search; the moment's at is as of the last event */
	uint32_t count;
	bool used, recorded;
	uint64_t next; /* event */
	/* skip.c's */
	struct moment *saved; /* of all jobs, relative to saved_at; NULL: none */
	struct flow_stats *saved_stats;
	uint64_t saved_at, anchors, save_next;
	bool asleep;
	uint64_t slept_at, round_ns, rounds; /* asleep since then, for that many rounds */
	struct flow_stats *round_stats; /* what a round adds */
};

/* A short link while it is divided. */
struct filled {
	double rate, packets; /* as the link's */
	double room, left; /* bytes per nanosecond */
	double wanted; /* by those on it that take part: in all weights, before that speeds */
	double flows; /* connections on it */
	double level; /* as the link's */
	uint32_t active; /* jobs on it that take part */
	bool full, tied;
};

struct crossing {
	double times; /* each byte crosses the link */
	uint32_t link; /* index of a struct filled */
};

/* A job in the order of what they have left: scratch of fill.c. */
struct turn {
	double wait; /* nanoseconds until it is done with its links to itself */
	uint64_t asked; /* since when it wants to send */
	uint32_t near;
};

/* What fill.c divides: scratch. */
struct fill {
	uint32_t *first; /* of each job near, of its crossings, and the end */
	double *lone,
		*weight; /* of each job near: its rate alone, bytes per nanosecond; its weight */
	struct turn *turns;
	uint32_t job_room;
	struct crossing *crossings;
	struct filled *links;
	uint32_t link_count, crossing_room;
	uint32_t *asked; /* those of links that somebody is on who takes part */
	uint32_t asked_count;
	double last; /* level */
	bool tied; /* levels were nearly equal of links that have no job in common */
};

/* What change.c works on: scratch. */
struct change {
	struct list links; /* that are filled again */
	struct list pending; /* of these, those to be looked at */
	struct list open; /* jobs without a level */
	struct list touched; /* jobs that had none */
	struct list full; /* links that are fuller than they can be */
	struct list slower; /* places of a link's senders that stop below its level */
	struct list tie; /* links that are full next */
	double levels[MOST_LEVELS]; /* that are new */
	uint32_t level_count;
};

struct flow {
	struct flow_rule rule;
	double *weights; /* of each level */
	struct link *links;
	uint32_t link_count;
	struct job *jobs;
	uint32_t job_count, job_room;
	struct list free_jobs;
	struct group *groups;
	uint32_t group_count, group_room;
	struct list free_groups;
	struct list heap; /* groups, the one with the earliest event first */
	bool heap_is_stale;
	struct list near, stack, open; /* scratch */
	struct fill fill;
	struct change change;
	struct list changing; /* jobs whose weight or links are others than at the last event */
	struct list *chains; /* jobs that send and that short links join, in any order */
	uint32_t chain_count, chain_room;
	struct list free_chains;
	struct list joined; /* jobs whose chain joined a longer one at this event */
	struct list changed; /* jobs without a group */
	struct list ended; /* jobs that are done and not yet told */
	uint32_t mark;
	uint64_t now;
	struct flow_counters counters;
};

void *must(void *memory);
void push(struct list *list, uint32_t item);
void sort(struct list *list);
void drop(struct list *list, uint32_t item);

/*
 * fill.c: what a job has sent until now; new shares where the job's chain needs them, at `now`;
 * what a short link carries.
 */
bool settle(struct job *job, uint64_t now);
void fill_around(struct flow *flow, uint32_t job, uint64_t now);
void measure_room(const struct flow *flow, struct link *link);

/*
 * change.c: new shares for the jobs that are `changing` and for those whose share that changes, or
 * false where all of the chain is to be filled; the job's share, in what its links have used.
 */
bool change_shares(struct flow *flow, const struct list *chain);
void count_share(struct flow *flow, uint32_t job);

/* chains.c: the job's burst begins; no longer sends; no longer asks for its links either. */
void enter(struct flow *flow, uint32_t job);
void stop_sending(struct flow *flow, uint32_t job);
void leave(struct flow *flow, uint32_t job);

/* fill.c: how lucky the job's burst is. */
void draw_fortune(struct job *job);

/* group.c */
void placed(struct flow *flow, uint32_t job);
void unplaced(struct flow *flow, uint32_t job);
void regroup(struct flow *flow);
void dissolve(struct flow *flow, uint32_t group);
void make_heap(struct flow *flow);
void heap_down(struct flow *flow, uint32_t place);
uint64_t earliest(const struct group *group, uint32_t *position);

/* events.c */
void run_group(struct flow *flow, struct group *group, uint64_t until, bool may_sleep);
void begin_phase(struct flow *flow, struct job *job, uint64_t now);
void set_next(struct flow *flow, struct job *job, uint64_t now, bool alone);

/* skip.c */
void forget_state(struct group *group);
void consider_sleep(struct flow *flow, struct group *group, uint64_t now);
void wake(struct flow *flow, struct group *group, uint64_t now);
void freshen(struct flow *flow, struct group *group);

#endif
