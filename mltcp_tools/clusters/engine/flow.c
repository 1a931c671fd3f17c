// SPDX-License-Identifier: BSD-2-Clause
/*
 * Events of jobs that compute and send. An event concerns only the jobs that a chain of short links
 * joins to its own: a link is short where those that send over it ask for more than it carries.
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "filling.h"
#include "flow.h"

#define NEVER UINT64_MAX
#define NONE UINT32_MAX
#define WHOLE (UINT64_C(1) << 32) /* a link's rate: whole numbers add up the same in any order */
/* However many flows, a link carries this share of its rate. */
#define LEAST_USE 0.3

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

/* What is handed to filling.c. */
struct scratch {
	uint32_t room, *first, *asked, *on, *open;
	double *most, *weight, *share;
	struct filling_crossing *crossings;
	struct filling_link *links;
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
	struct scratch scratch;
	uint64_t now, mark;
	uint64_t fills; /* how many there were */
};

static void *must(void *memory)
{
	if (!memory) {
		fputs("mltcp: the flow simulator has no memory left\n", stderr);
		abort();
	}
	return memory;
}

static void push(struct list *list, uint32_t item)
{
	if (list->count == list->room) {
		list->room = list->room ? 2 * list->room : 8;
		RESIZE(list->items, list->room);
	}
	list->items[list->count++] = item;
}

/* The order of the others is not kept. */
static void drop(struct list *list, uint32_t item)
{
	for (uint32_t i = 0; i < list->count; i++)
		if (list->items[i] == item)
			list->items[i--] = list->items[--list->count];
}

/* Whether those that send ask for more than the link carries. If not, none of them slows another. */
static bool asks_too_much(const struct link *link)
{
	/* Parts are rounded, so that jobs that just fit may seem to ask for a little more. */
	return link->asked > WHOLE + 4;
}

/* The link is short from now on, or isn't any more, for all that send over it. */
static void set_short(struct flow *flow, uint32_t number, bool is_short)
{
	struct link *link = &flow->links[number];

	link->is_short = is_short;
	for (uint32_t i = 0; i < link->senders.count; i++) {
		struct job *job = &flow->jobs[link->senders.items[i]];
		uint32_t at = 0;

		while (job->crossings[at].link != number)
			at++;
		if (is_short)
			push(&job->shorts, at);
		else
			drop(&job->shorts, at);
	}
}

static void enter(struct flow *flow, uint32_t number)
{
	struct job *job = &flow->jobs[number];

	job->shorts.count = 0;
	for (uint32_t i = 0; i < job->spec.links; i++) {
		struct link *link = &flow->links[job->crossings[i].link];

		link->asked += job->crossings[i].asks;
		push(&link->senders, number);
		if (link->is_short)
			push(&job->shorts, i);
		else if (asks_too_much(link))
			set_short(flow, job->crossings[i].link, true);
	}
}

/* The job sends no more; those that it slowed are in `near`. */
static void leave(struct flow *flow, uint32_t number)
{
	struct job *job = &flow->jobs[number];

	for (uint32_t i = 0; i < job->spec.links; i++)
		drop(&flow->links[job->crossings[i].link].senders, number);
	flow->near.count = 0;
	for (uint32_t i = 0; i < job->shorts.count; i++) {
		const struct link *link = &flow->links[job->crossings[job->shorts.items[i]].link];

		for (uint32_t j = 0; j < link->senders.count; j++)
			push(&flow->near, link->senders.items[j]);
	}
	for (uint32_t i = 0; i < job->spec.links; i++) {
		struct link *link = &flow->links[job->crossings[i].link];

		link->asked -= job->crossings[i].asks;
		if (link->is_short && !asks_too_much(link))
			set_short(flow, job->crossings[i].link, false);
	}
}

static void find_chain(struct flow *flow, uint32_t number)
{
	struct list *chain = &flow->chain;

	flow->jobs[number].mark = ++flow->mark;
	chain->count = 0;
	push(chain, number);
	for (uint32_t i = 0; i < chain->count; i++) {
		const struct job *job = &flow->jobs[chain->items[i]];

		for (uint32_t j = 0; j < job->shorts.count; j++) {
			struct link *link = &flow->links[job->crossings[job->shorts.items[j]].link];

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

/* For so many jobs, and so many crossings. */
static struct scratch *make_room(struct scratch *scratch, uint32_t needed)
{
	if (needed > scratch->room) {
		scratch->room = 2 * needed;
		RESIZE(scratch->first, scratch->room);
		RESIZE(scratch->asked, scratch->room);
		RESIZE(scratch->on, scratch->room);
		RESIZE(scratch->open, scratch->room);
		RESIZE(scratch->most, scratch->room);
		RESIZE(scratch->weight, scratch->room);
		RESIZE(scratch->share, scratch->room);
		RESIZE(scratch->crossings, scratch->room);
		RESIZE(scratch->links, scratch->room);
	}
	return scratch;
}

/*
 * What a link carries. One that isn't full, or that one job fills, loses nothing; else the windows
 * of many flows don't fit its queue, and it idles while some of them wait for a time-out.
 */
static double carries(const struct flow *flow, const struct link *link)
{
	double flows = 0;

	if (link->senders.count < 2 || flow->rule.loss <= 0)
		return link->rate;
	for (uint32_t i = 0; i < link->senders.count; i++)
		flows += flow->jobs[link->senders.items[i]].spec.flows;
	return link->rate *
	       fmax(LEAST_USE, 1 - flow->rule.loss * pow(flows / link->packets, flow->rule.crowd));
}

/* Shares of the chain's jobs, side by side in memory, as filling goes over them often. */
static void fill_chain(struct flow *flow)
{
	const struct list *chain = &flow->chain;
	uint32_t links = 0, crossings = 0, total = chain->count + 1;
	struct scratch *scratch;

	for (uint32_t i = 0; i < chain->count; i++)
		total += flow->jobs[chain->items[i]].shorts.count;
	scratch = make_room(&flow->scratch, total);
	flow->mark++;
	for (uint32_t i = 0; i < chain->count; i++) {
		const struct job *job = &flow->jobs[chain->items[i]];

		scratch->first[i] = crossings;
		scratch->open[i] = i;
		scratch->most[i] = job->lone;
		scratch->weight[i] = job->weight;
		for (uint32_t k = 0; k < job->shorts.count; k++) {
			const struct crossing *crossing = &job->crossings[job->shorts.items[k]];
			struct link *link = &flow->links[crossing->link];

			if (link->mark != flow->mark) {
				link->mark = flow->mark;
				link->place = links;
				scratch->links[links++] =
					(struct filling_link){.left = carries(flow, link)};
			}
			scratch->crossings[crossings++] =
				(struct filling_crossing){crossing->times, link->place};
		}
	}
	scratch->first[chain->count] = crossings;
	fill(&(struct filling){
		.first = scratch->first,
		.crossings = scratch->crossings,
		.most = scratch->most,
		.weight = scratch->weight,
		.share = scratch->share,
		.links = scratch->links,
		.link_count = links,
		.asked = scratch->asked,
		.on = scratch->on,
		.open = scratch->open,
		.open_count = chain->count,
	});
}

/* Of the job's links that are short the one with least left, if it slows the job. */
static uint32_t full_crossing(const struct flow *flow, const struct job *job)
{
	uint32_t found = NONE;
	double least = INFINITY;

	if (job->rate >= job->lone * (1 - 1e-9))
		return NONE;
	for (uint32_t k = 0; k < job->shorts.count; k++) {
		const struct link *link = &flow->links[job->crossings[job->shorts.items[k]].link];
		double left = flow->scratch.links[link->place].left / link->rate;

		if (left < least - 1e-9) {
			least = left;
			found = job->shorts.items[k];
		}
	}
	return found;
}

/* The first whole nanosecond, at least one from now, at which so many bytes are sent. */
static uint64_t after(uint64_t now, double bytes, double rate)
{
	double wait = bytes / rate;
	uint64_t whole;

	if (!(wait < 0x1p52))
		return wait < 0x1p62 ? now + (uint64_t)wait : NEVER;
	whole = (uint64_t)wait;
	whole += (double)whole < wait;
	return now + (whole ? whole : 1);
}

/* When a job that sends is done, or where others are near, when its weight changes. */
static uint64_t next_event(const struct flow *flow, const struct job *job, bool alone)
{
	uint64_t total = job->spec.bytes, at, step;
	double edge;

	if (job->rate <= 0)
		return NEVER;
	at = after(flow->now, (double)job->left, job->rate);
	if (alone || job->level + 1 >= flow->rule.levels)
		return at;
	/* A whole number, or what rounding leaves of it would never be sent. */
	edge = ceil((double)total * (job->level + 1) / flow->rule.levels);
	step = after(flow->now, edge - (double)(total - job->left), job->rate);
	return step < at ? step : at;
}

/* What was sent until now at the rate before. Says whether that is all. */
static bool settle(struct job *job, uint64_t now)
{
	double took = (double)(now - job->updated), exact = job->rate * took;
	uint64_t sent = exact < 0x1p62 ? (uint64_t)exact : NEVER;
	bool all;

	if (job->full != NONE)
		job->crossings[job->full].lost_ns += took * (1 - job->rate / job->lone);
	/* To the nearest whole number, as llround() does, which takes longer. */
	if (exact < 0x1p52)
		sent += exact - (double)sent >= 0.5;
	all = sent >= job->left;
	job->left = all ? 1 : job->left - sent;
	job->updated = now;
	return all;
}

/* New speeds for the job and all that short links join it to, from now on. */
static void refill(struct flow *flow, uint32_t number)
{
	const struct list *chain = &flow->chain;

	find_chain(flow, number);
	for (uint32_t i = 0; i < chain->count; i++) {
		struct job *job = &flow->jobs[chain->items[i]];
		uint32_t levels = flow->rule.levels;

		settle(job, flow->now);
		if (levels > 1) {
			double sent = (double)(job->spec.bytes - job->left);

			job->level = (uint32_t)(sent / (double)job->spec.bytes * (levels + 1e-9));
			if (job->level >= levels)
				job->level = levels - 1;
		}
		job->weight = flow->weights[job->level] * job->fortune;
	}
	flow->fills++;
	if (chain->count > 1)
		fill_chain(flow);
	for (uint32_t i = 0; i < chain->count; i++) {
		struct job *job = &flow->jobs[chain->items[i]];

		job->rate = chain->count > 1 ? flow->scratch.share[i] : job->lone;
		job->full = full_crossing(flow, job);
		job->filled = flow->fills;
		flow->at[chain->items[i]] = next_event(flow, job, chain->count == 1);
	}
}

/* The instant at which a burst that is ready may begin. */
static uint64_t take_slot(struct job *job, uint64_t ready)
{
	uint64_t period = job->period, at;

	if (ready > job->due && ready - job->due > job->slack)
		job->due += (ready - job->due + period - 1) / period * period;
	at = ready > job->due ? ready : job->due;
	job->due += period;
	return at;
}

/* The job computes, and then waits until its burst begins. */
static void begin_iteration(struct flow *flow, uint32_t number, uint64_t now)
{
	struct job *job = &flow->jobs[number];
	uint64_t ready = now + job->compute_ns[job->stats.done % job->spec.rows];

	job->began = now;
	if (job->period)
		ready = take_slot(job, ready);
	flow->at[number] = ready + (job->spec.bytes ? job->spec.lag_ns : 0);
}

static void end_iteration(struct flow *flow, uint32_t number)
{
	struct job *job = &flow->jobs[number];

	job->stats.done++;
	job->stats.sum_ns += flow->now - job->began;
	job->ended = job->stats.done == job->spec.iterations;
	if (!job->ended) {
		begin_iteration(flow, number, flow->now);
		return;
	}
	flow->at[number] = NEVER;
	push(&flow->ended, number);
}

/* A number from 0 to 1 that depends on seed and burst only (splitmix64's finalizer). */
static double uniform(uint64_t seed, uint64_t number)
{
	uint64_t bits = seed + number * 0x9e3779b97f4a7c15ULL;

	bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9ULL;
	bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebULL;
	bits ^= bits >> 31;
	return (double)(bits >> 11) * 0x1p-53 + 0x1p-54;
}

static double draw_fortune(const struct job *job)
{
	uint64_t draw = 2 * (uint64_t)(job->burst / job->spec.lasting);
	double radius, angle;

	if (job->spec.luck <= 0)
		return 1;
	radius = sqrt(-2 * log(uniform(job->spec.seed, draw)));
	angle = 2 * M_PI * uniform(job->spec.seed, draw + 1);
	return exp(job->spec.luck * radius * cos(angle));
}

static void begin_burst(struct flow *flow, uint32_t number)
{
	struct job *job = &flow->jobs[number];

	job->sends = true;
	job->left = job->spec.bytes;
	job->updated = flow->now;
	job->rate = 0;
	job->level = 0;
	job->full = NONE;
	job->burst++;
	job->fortune = draw_fortune(job);
	enter(flow, number);
	refill(flow, number);
}

static void stop_burst(struct flow *flow, uint32_t number)
{
	uint64_t fills = flow->fills;

	flow->jobs[number].sends = false;
	leave(flow, number);
	/* Those that it slowed go faster, each chain that is left of its own. */
	for (uint32_t i = 0; i < flow->near.count; i++)
		if (flow->jobs[flow->near.items[i]].filled <= fills)
			refill(flow, flow->near.items[i]);
}

/* What is due for the job now. */
static void happen(struct flow *flow, uint32_t number)
{
	struct job *job = &flow->jobs[number];

	if (!job->sends && job->spec.bytes) {
		begin_burst(flow, number);
	} else if (!job->sends) {
		end_iteration(flow, number);
	} else if (settle(job, flow->now)) {
		stop_burst(flow, number);
		end_iteration(flow, number);
	} else {
		refill(flow, number);
	}
}

struct flow *flow_new(uint32_t links, const double *rates, const double *packets,
		      const struct flow_rule *rule)
{
	struct flow *flow = must(calloc(1, sizeof(*flow)));

	flow->rule = *rule;
	flow->weights = must(calloc(rule->levels, sizeof(*flow->weights)));
	for (uint32_t i = 0; i < rule->levels; i++) {
		double progress = (i + 0.5) / rule->levels;

		flow->weights[i] = pow(rule->intercept + rule->slope * progress, rule->power);
	}
	flow->links = must(calloc(links ? links : 1, sizeof(*flow->links)));
	flow->link_count = links;
	for (uint32_t i = 0; i < links; i++)
		flow->links[i] = (struct link){.rate = rates[i], .packets = packets[i]};
	return flow;
}

static void free_job(struct job *job)
{
	free(job->compute_ns);
	free(job->crossings);
	free(job->shorts.items);
	*job = (struct job){0};
}

void flow_free(struct flow *flow)
{
	struct scratch *scratch = &flow->scratch;
	void *arrays[] = {
		scratch->first, scratch->asked,	       scratch->on,	 scratch->open,
		scratch->most,	scratch->weight,       scratch->share,	 scratch->crossings,
		scratch->links, flow->links,	       flow->weights,	 flow->jobs,
		flow->at,	flow->chain.items,     flow->near.items, flow->ended.items,
		flow,		flow->free_jobs.items,
	};

	for (uint32_t i = 0; i < flow->job_count; i++)
		free_job(&flow->jobs[i]);
	for (uint32_t i = 0; i < flow->link_count; i++)
		free(flow->links[i].senders.items);
	for (size_t i = 0; i < sizeof(arrays) / sizeof(*arrays); i++)
		free(arrays[i]);
}

static uint32_t new_job(struct flow *flow)
{
	if (flow->free_jobs.count)
		return flow->free_jobs.items[--flow->free_jobs.count];
	if (flow->job_count == flow->job_room) {
		flow->job_room = flow->job_room ? 2 * flow->job_room : 64;
		RESIZE(flow->jobs, flow->job_room);
		RESIZE(flow->at, flow->job_room);
	}
	return flow->job_count++;
}

uint32_t flow_add(struct flow *flow, const struct flow_job *spec)
{
	uint32_t number = new_job(flow);
	struct job *job = &flow->jobs[number];
	double lone = INFINITY;

	*job = (struct job){.spec = *spec};
	job->compute_ns = must(calloc(spec->rows, sizeof(*job->compute_ns)));
	memcpy(job->compute_ns, spec->compute_ns, spec->rows * sizeof(*job->compute_ns));
	job->crossings = must(calloc(spec->links ? spec->links : 1, sizeof(*job->crossings)));
	for (uint32_t i = 0; i < spec->links; i++)
		lone = fmin(lone, flow->links[spec->link[i]].rate / spec->crossings[i]);
	for (uint32_t i = 0; i < spec->links; i++) {
		double part = lone * spec->crossings[i] / flow->links[spec->link[i]].rate;

		job->crossings[i] = (struct crossing){
			.link = spec->link[i],
			.times = spec->crossings[i],
			.asks = (uint64_t)llround(part * (double)WHOLE),
		};
	}
	/* Bytes that cross no link take the shortest time there is. */
	job->lone = lone < INFINITY ? lone : 0x1p60;
	begin_iteration(flow, number, spec->start_ns > flow->now ? spec->start_ns : flow->now);
	return number;
}

void flow_remove(struct flow *flow, uint32_t number)
{
	struct job *job = &flow->jobs[number];

	if (job->sends)
		stop_burst(flow, number);
	flow->at[number] = NEVER;
	drop(&flow->ended, number);
	free_job(job);
	push(&flow->free_jobs, number);
}

void flow_time_shifts(struct flow *flow, uint32_t number, uint64_t period_ns, uint64_t due_ns,
		      uint64_t slack_ns)
{
	struct job *job = &flow->jobs[number];

	job->period = period_ns;
	job->due = due_ns;
	job->slack = slack_ns;
}

/* Takes the job with the lowest number from those that are done, so that no order of ours shows. */
static uint32_t take_ended(struct flow *flow)
{
	uint32_t least = flow->ended.items[0];

	for (uint32_t i = 1; i < flow->ended.count; i++)
		if (flow->ended.items[i] < least)
			least = flow->ended.items[i];
	drop(&flow->ended, least);
	return least;
}

int64_t flow_run(struct flow *flow, uint64_t until)
{
	for (;;) {
		uint64_t next = NEVER;
		uint32_t first = 0;

		/* Of equal events, that of the lowest number. */
		for (uint32_t i = 0; i < flow->job_count; i++) {
			if (flow->at[i] < next) {
				next = flow->at[i];
				first = i;
			}
		}
		/* Whatever else happens when a job ends does so before the caller acts. */
		if (next > until || next == NEVER || (flow->ended.count && next > flow->now))
			break;
		flow->now = next;
		happen(flow, first);
	}
	if (flow->ended.count)
		return take_ended(flow);
	flow->now = until;
	return -1;
}

uint64_t flow_now(const struct flow *flow)
{
	return flow->now;
}

void flow_stats(const struct flow *flow, uint32_t number, struct flow_stats *stats)
{
	*stats = flow->jobs[number].stats;
}

void flow_lost(const struct flow *flow, uint32_t number, double *lost_ns)
{
	const struct job *job = &flow->jobs[number];

	for (uint32_t i = 0; i < job->spec.links; i++)
		lost_ns[i] = job->crossings[i].lost_ns;
}
