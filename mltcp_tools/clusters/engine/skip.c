// SPDX-License-Identifier: GPL-2.0-only
/*
 * Rounds that repeat. What a group does follows from its jobs' moments alone, as every time in them
 * counts from now; where they are what they were before, byte by byte, the same comes again. The
 * state is kept at instants that are 1, 2, 4... iterations of the first job apart (Brent's way to
 * find a cycle), so that any round is found once the group is in it.
 */
#include <stdlib.h>
#include <string.h>
#include "internal.h"

static struct moment relative(const struct job *job, uint64_t now)
{
	struct moment moment = job->moment;

	if (moment.at != NEVER)
		moment.at -= now;
	if (moment.state == SENDING)
		moment.updated -= now;
	moment.began -= now;
	moment.asked -= now;
	if (job->spec.turn_ns)
		moment.due -= now;
	return moment;
}

void forget_state(struct group *group)
{
	free(group->saved);
	free(group->saved_stats);
	group->saved = NULL;
	group->saved_stats = NULL;
	group->anchors = 0;
	group->save_next = 1;
}

static void save_state(struct flow *flow, struct group *group, uint64_t now)
{
	if (!group->saved) {
		group->saved = must(calloc(group->count, sizeof(*group->saved)));
		group->saved_stats = must(calloc(group->count, sizeof(*group->saved_stats)));
	}
	for (uint32_t i = 0; i < group->count; i++) {
		const struct job *job = &flow->jobs[group->jobs[i]];

		group->saved[i] = relative(job, now);
		group->saved_stats[i] = job->stats;
	}
	group->saved_at = now;
}

static bool came_back(const struct flow *flow, const struct group *group, uint64_t now)
{
	for (uint32_t i = 0; i < group->count; i++) {
		struct moment moment = relative(&flow->jobs[group->jobs[i]], now);

		if (memcmp(&moment, &group->saved[i], sizeof(moment)) != 0)
			return false;
	}
	return true;
}

/* How many rounds every job has before its last iteration; what a round adds is known. */
static uint64_t rounds_left(const struct flow *flow, const struct group *group)
{
	uint64_t rounds = NEVER;

	for (uint32_t i = 0; i < group->count; i++) {
		const struct job *job = &flow->jobs[group->jobs[i]];
		uint64_t each = group->round_stats[i].done;

		if (each && (job->spec.iterations - job->stats.done - 1) / each < rounds)
			rounds = (job->spec.iterations - job->stats.done - 1) / each;
	}
	return rounds == NEVER ? 0 : rounds;
}

static void sleep_from(struct flow *flow, struct group *group, uint64_t now)
{
	group->rounds = rounds_left(flow, group);
	if (!group->rounds)
		return;
	group->asleep = true;
	group->slept_at = now;
	group->next = now + group->rounds * group->round_ns;
}

void consider_sleep(struct flow *flow, struct group *group, uint64_t now)
{
	if (!flow->rule.skip || group->recorded || flow->ended.count)
		return;
	if (group->saved && came_back(flow, group, now)) {
		if (!group->round_stats)
			group->round_stats = must(calloc(group->count, sizeof(struct flow_stats)));
		for (uint32_t i = 0; i < group->count; i++) {
			const struct flow_stats *is = &flow->jobs[group->jobs[i]].stats;
			const struct flow_stats *was = &group->saved_stats[i];

			group->round_stats[i].done = is->done - was->done;
			group->round_stats[i].sum_ns = is->sum_ns - was->sum_ns;
			group->round_stats[i].sending_ns = is->sending_ns - was->sending_ns;
		}
		group->round_ns = now - group->saved_at;
		sleep_from(flow, group, now);
	} else if (++group->anchors >= group->save_next) {
		save_state(flow, group, now);
		group->save_next *= 2;
	}
}

/* Adds the rounds that passed until now; what is left to now is less than one, or not the same. */
void wake(struct flow *flow, struct group *group, uint64_t now)
{
	uint64_t rounds = (now - group->slept_at) / group->round_ns, shift;

	if (rounds > group->rounds)
		rounds = group->rounds;
	shift = rounds * group->round_ns;
	for (uint32_t i = 0; i < group->count; i++) {
		struct job *job = &flow->jobs[group->jobs[i]];
		struct moment *moment = &job->moment;

		if (moment->at != NEVER)
			moment->at += shift;
		if (moment->state == SENDING)
			moment->updated += shift;
		moment->began += shift;
		moment->asked += shift;
		if (job->spec.turn_ns)
			moment->due += shift;
		if (group->round_stats[i].done)
			job->stats.last_end_ns += shift;
		job->stats.done += rounds * group->round_stats[i].done;
		job->stats.sum_ns += rounds * group->round_stats[i].sum_ns;
		job->stats.sending_ns += rounds * group->round_stats[i].sending_ns;
		group->at[i] = moment->at;
	}
	flow->counters.rounds_skipped += rounds;
	group->asleep = false;
	forget_state(group);
}

/* Brings the jobs of a group up to now and lets it sleep on: a round is one from any instant. */
void freshen(struct flow *flow, struct group *group)
{
	uint32_t first;

	if (!group->asleep)
		return;
	wake(flow, group, flow->now);
	run_group(flow, group, flow->now, false);
	group->next = earliest(group, &first);
	sleep_from(flow, group, flow->now);
	flow->heap_is_stale = true;
}
