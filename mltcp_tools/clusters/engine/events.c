// SPDX-License-Identifier: GPL-2.0-only
/* What happens to a job: it computes, waits for its turn, sends, and begins again. */
#include <math.h>
#include "internal.h"

static void set_at(struct flow *flow, struct job *job, uint64_t at)
{
	job->moment.at = at;
	if (job->group != NO_GROUP)
		flow->groups[job->group].at[job->position] = at;
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
void set_next(struct flow *flow, struct job *job, uint64_t now, bool alone)
{
	const struct moment *moment = &job->moment;
	uint64_t total = job->spec.bytes[moment->phase], at = NEVER;

	if (moment->rate > 0) {
		at = after(now, (double)moment->left, moment->rate);
		if (!alone && moment->level + 1 < flow->rule.levels) {
			/* A whole number, or what rounding leaves of it would never be sent. */
			double edge = ceil((double)total * (moment->level + 1) / flow->rule.levels);
			double sent = (double)(total - moment->left);
			uint64_t step = after(now, edge - sent, moment->rate);

			if (step < at)
				at = step;
		}
	}
	set_at(flow, job, at);
}

/* The instant at which a burst that is ready may begin. */
static uint64_t take_turn(struct job *job, uint64_t ready)
{
	uint64_t turn = job->spec.turn_ns, at;

	if (ready > job->moment.due && ready - job->moment.due > job->spec.slack_ns)
		job->moment.due += (ready - job->moment.due + turn - 1) / turn * turn;
	at = ready > job->moment.due ? ready : job->moment.due;
	job->moment.due += turn;
	return at;
}

void begin_phase(struct flow *flow, struct job *job, uint64_t now)
{
	struct moment *moment = &job->moment;
	const struct flow_job *spec = &job->spec;
	uint64_t compute = spec->compute_ns[moment->row * spec->phases + moment->phase];

	moment->state = COMPUTING;
	moment->asked = now + (uint64_t)llround((double)compute * job->slow);
	if (!moment->phase && spec->turn_ns)
		moment->asked = take_turn(job, moment->asked);
	set_at(flow, job, moment->asked + (spec->bytes[moment->phase] ? spec->lag_ns : 0));
}

static void end_iteration(struct flow *flow, struct job *job, uint64_t now)
{
	struct moment *moment = &job->moment;
	struct flow_stats *stats = &job->stats;
	uint64_t took = now - moment->began;

	if (job->record)
		job->record[stats->done] =
			(struct flow_iteration){moment->began, now, moment->sending};
	stats->done++;
	stats->sum_ns += took;
	stats->sending_ns += moment->sending;
	stats->last_end_ns = now;
	if (took < stats->least_ns)
		stats->least_ns = took;
	if (took > stats->most_ns)
		stats->most_ns = took;
	moment->phase = 0;
	moment->row = (moment->row + 1) % job->spec.rows;
	moment->began = now;
	moment->sending = 0;
	if (stats->done == job->spec.iterations) {
		moment->state = COMPUTING;
		job->ended = true;
		set_at(flow, job, NEVER);
		push(&flow->ended, (uint32_t)(job - flow->jobs));
	}
}

static void end_phase(struct flow *flow, struct job *job, uint64_t now)
{
	if (++job->moment.phase == job->spec.phases)
		end_iteration(flow, job, now);
	if (!job->ended)
		begin_phase(flow, job, now);
}

/* The job's short links have another sender, or one less. */
static void change_links(struct flow *flow, uint32_t number)
{
	const struct job *job = &flow->jobs[number];

	for (uint32_t i = 0; i < job->short_count; i++)
		measure_room(flow, &flow->links[job->shorts[i].link]);
}

static void begin_burst(struct flow *flow, struct job *job, uint64_t now)
{
	struct moment *moment = &job->moment;
	uint32_t number = (uint32_t)(job - flow->jobs);

	moment->state = SENDING;
	moment->left = job->spec.bytes[moment->phase];
	moment->updated = now;
	moment->rate = 0;
	moment->level = 0;
	if (job->spec.luck > 0)
		moment->burst = (moment->burst + 1) % LUCK_BURSTS;
	draw_fortune(job);
	job->weight = NAN;
	job->alone = job->lone[moment->phase];
	enter(flow, number);
	change_links(flow, number);
	fill_around(flow, number, now);
}

static void end_burst(struct flow *flow, struct job *job, uint64_t now)
{
	struct moment *moment = &job->moment;
	uint32_t number = (uint32_t)(job - flow->jobs);

	moment->state = COMPUTING;
	moment->sending += now - moment->asked;
	moment->left = moment->level = 0;
	moment->updated = 0;
	moment->rate = 0;
	/* Those that the burst slowed are found by links that it made short. */
	stop_sending(flow, number);
	change_links(flow, number);
	push(&flow->changing, number);
	fill_around(flow, number, now);
	leave(flow, number);
	end_phase(flow, job, now);
}

static void happen(struct flow *flow, struct job *job, uint64_t now)
{
	flow->counters.events++;
	if (job->moment.state == COMPUTING) {
		if (job->spec.bytes[job->moment.phase])
			begin_burst(flow, job, now);
		else
			end_phase(flow, job, now);
	} else if (settle(job, now)) {
		end_burst(flow, job, now);
	} else {
		fill_around(flow, (uint32_t)(job - flow->jobs), now);
	}
}

uint64_t earliest(const struct group *group, uint32_t *position)
{
	uint64_t least = NEVER;

	*position = 0;
	for (uint32_t i = 0; i < group->count; i++) {
		if (group->at[i] < least) {
			least = group->at[i];
			*position = i;
		}
	}
	return least;
}

/* Everything of the group up to and with that time. */
void run_group(struct flow *flow, struct group *group, uint64_t until, bool may_sleep)
{
	uint32_t position;

	while (!group->asleep && (group->next = earliest(group, &position)) <= until) {
		struct job *job = &flow->jobs[group->jobs[position]];
		uint64_t now = group->next, done = job->stats.done;

		happen(flow, job, now);
		if (may_sleep && !position && job->stats.done > done)
			consider_sleep(flow, group, now);
	}
}
