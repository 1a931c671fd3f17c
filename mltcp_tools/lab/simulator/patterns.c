// SPDX-License-Identifier: BSD-2-Clause
/* Jobs whose ranks have tasks that wait for each other: emulator/patterns.py says which. */
#include <stdlib.h>
#include "internal.h"

/* Where the ranks of a job stand. Arrays are of all iterations, one after another. */
struct program {
	uint32_t *waiting; /* what each task waits for: those before it, and its rank's iteration */
	uint32_t *left; /* of each rank: tasks that end there and aren't done */
	uint32_t *busy; /* of each iteration: ranks that aren't done */
	uint32_t *next; /* tasks behind each task, one list after another */
	uint32_t *next_first; /* where each list begins; one more than there are tasks */
};

/* The lists of what comes behind each task, from those of what comes before. */
static void link_tasks(const struct sim_job *spec, struct program *program)
{
	uint32_t *filled = zeroed(spec->task_count, sizeof(*filled));
	uint32_t i, k;

	program->next_first = zeroed(spec->task_count + 1, sizeof(*program->next_first));
	for (i = 0; i < spec->task_count; i++)
		for (k = 0; k < spec->tasks[i].after_count; k++)
			program->next_first[spec->tasks[i].after[k] + 1]++;
	for (i = 0; i < spec->task_count; i++)
		program->next_first[i + 1] += program->next_first[i];
	program->next = zeroed(program->next_first[spec->task_count], sizeof(*program->next));
	for (i = 0; i < spec->task_count; i++)
		for (k = 0; k < spec->tasks[i].after_count; k++) {
			uint32_t before = spec->tasks[i].after[k];

			program->next[program->next_first[before] + filled[before]++] = i;
		}
	free(filled);
}

void set_up_program(struct job *job)
{
	const struct sim_job *spec = job->spec;
	struct program *program = zeroed(1, sizeof(*program));
	size_t tasks = (size_t)spec->iterations * spec->task_count;
	uint32_t i, k;

	program->waiting = zeroed(tasks, sizeof(*program->waiting));
	program->left = zeroed((size_t)spec->iterations * spec->ranks, sizeof(*program->left));
	program->busy = zeroed(spec->iterations, sizeof(*program->busy));
	for (i = 0; i < spec->iterations; i++) {
		program->busy[i] = spec->ranks;
		for (k = 0; k < spec->task_count; k++) {
			const struct sim_task *task = &spec->tasks[k];

			program->waiting[(size_t)i * spec->task_count + k] = task->after_count + 1;
			program->left[(size_t)i * spec->ranks + task->ends_at]++;
		}
	}
	link_tasks(spec, program);
	job->program = program;
}

void free_program(struct job *job)
{
	if (!job->program)
		return;
	free(job->program->waiting);
	free(job->program->left);
	free(job->program->busy);
	free(job->program->next);
	free(job->program->next_first);
	free(job->program);
}

/* One thing fewer that the task waits for; with the last one, it begins. */
static void release(struct sim *sim, struct job *job, uint64_t number)
{
	const struct sim_job *spec = job->spec;
	const struct sim_task *task = &spec->tasks[number % spec->task_count];
	uint64_t iteration = number / spec->task_count;

	if (--job->program->waiting[number])
		return;
	if (task->flow == SIM_COMPUTES) {
		add_event(sim,
			  (struct event){.time = sim->now +
						 task->share * spec->compute_ns[iteration] + 0.5,
					 .kind = COMPUTED,
					 .owner = job->number,
					 .seq = number});
		return;
	}
	if (!job->bursts[iteration].start_ns)
		job->bursts[iteration].start_ns = sim->now ? sim->now : 1; /* 0: not yet */
	send_message(sim, &job->flows[task->flow], number, task->bytes);
}

static void begin_iteration(struct sim *sim, struct job *job, uint32_t rank, uint64_t iteration)
{
	const struct sim_job *spec = job->spec;
	uint32_t i;

	for (i = 0; i < spec->task_count; i++)
		if (spec->tasks[i].rank == rank)
			release(sim, job, iteration * spec->task_count + i);
}

void begin_program(struct sim *sim, struct job *job)
{
	uint32_t rank;

	job->sending = 1; /* for samples: of flows that aren't done, until the job is */
	for (rank = 0; rank < job->spec->ranks; rank++)
		begin_iteration(sim, job, rank, 0);
	sample_job(sim, job, 0);
}

/* A rank has done its part of the iteration. */
static void rank_done(struct sim *sim, struct job *job, uint32_t rank, uint64_t iteration)
{
	const struct sim_job *spec = job->spec;

	if (!--job->program->busy[iteration]) {
		job->bursts[iteration].end_ns = sim->now;
		if (++job->burst == spec->iterations) {
			job->burst--; /* the last messages may still be on their way to be known */
			job->sending = 0;
			sim->running--;
			return;
		}
		sample_job(sim, job, job->burst);
	}
	if (iteration + 1 < spec->iterations)
		begin_iteration(sim, job, rank, iteration + 1);
}

/* A rank has computed, or a message has come. */
void task_done(struct sim *sim, struct job *job, uint64_t number)
{
	const struct sim_job *spec = job->spec;
	struct program *program = job->program;
	uint32_t task = number % spec->task_count, rank = spec->tasks[task].ends_at, i;
	uint64_t iteration = number / spec->task_count;

	if (spec->tasks[task].flow != SIM_COMPUTES && !job->bursts[iteration].first_end_ns)
		job->bursts[iteration].first_end_ns = sim->now;
	for (i = program->next_first[task]; i < program->next_first[task + 1]; i++)
		release(sim, job, iteration * spec->task_count + program->next[i]);
	if (!--program->left[iteration * spec->ranks + rank])
		rank_done(sim, job, rank, iteration);
}

/* Everything before the flow's `expected` has come. */
void messages_came(struct sim *sim, struct flow *flow)
{
	while (flow->message_coming < flow->message_count &&
	       flow->expected >= flow->messages[flow->message_coming].end)
		task_done(sim, flow->job, flow->messages[flow->message_coming++].task);
}
