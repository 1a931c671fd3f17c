// SPDX-License-Identifier: BSD-2-Clause
/* Periodic jobs, and the run from its start to its end. */
#include <stdlib.h>
#include "internal.h"

static uint32_t burst_total(const struct sim_job *spec)
{
	return spec->iterations * spec->bursts;
}

/* When a burst that has a slot begins, as emulator/time_shift.py says. */
static uint64_t wait_for_due(struct job *job, uint64_t ready)
{
	const struct sim_job *spec = job->spec;
	uint64_t begin, time_shifts;

	if (ready > job->due_ns + spec->realign_ns) {
		time_shifts = (ready - job->due_ns + spec->period_ns - 1) / spec->period_ns;
		job->due_ns += time_shifts * spec->period_ns;
	}
	begin = ready > job->due_ns ? ready : job->due_ns;
	job->due_ns += spec->period_ns;
	return begin;
}

/* The job computes, from time from on, until its next burst. */
static void compute(struct sim *sim, struct job *job, uint64_t from)
{
	const struct sim_job *spec = job->spec;
	uint64_t at = from + spec->compute_ns[job->burst / spec->bursts] / spec->bursts;

	if (spec->period_ns && job->burst % spec->bursts == 0)
		at = wait_for_due(job, at);
	add_event(sim, (struct event){.time = at, .kind = BURST, .owner = job->number});
}

/* The job's flows send its burst, so many bytes each. */
static void send_sizes(struct sim *sim, struct job *job, const uint64_t *bytes)
{
	const struct sim_job *spec = job->spec;
	uint32_t i;

	job->sizes = bytes;
	for (i = 0; i < spec->flows; i++)
		job->bursts[job->burst].bytes += bytes[i];
	bursts_changed(sim);
	for (i = 0; i < flows_of(spec); i++)
		job->sending += bytes[i % spec->flows] > 0;
	for (i = 0; i < flows_of(spec); i++)
		if (bytes[i % spec->flows])
			send_burst(sim, &job->flows[i], bytes[i % spec->flows]);
	sample_job(sim, job, job->burst);
}

/* Is another job's burst under way? */
static bool others_send(const struct sim *sim, const struct job *job)
{
	uint32_t i;

	for (i = 0; i < sim->job_count; i++)
		if (&sim->jobs[i] != job && sim->jobs[i].sending && !sim->jobs[i].spec->neighbour)
			return true;
	return false;
}

/* The burst is ready, as it is (see emulator/compression.py) or to be compressed first. */
static void begin_burst(struct sim *sim, struct job *job)
{
	const struct sim_job *spec = job->spec;

	job->bursts[job->burst].start_ns = sim->now;
	if (spec->compressed && sim->options->levels && others_send(sim, job))
		add_event(sim, (struct event){.time = sim->now + spec->compress_ns[job->burst],
					      .kind = COMPRESSED,
					      .owner = job->number});
	else
		send_sizes(sim, job, spec->bytes + (size_t)job->burst * spec->flows);
}

/* All of the flow's part of the burst is acknowledged. */
static void burst_done(struct sim *sim, struct flow *flow)
{
	struct job *job = flow->job;
	struct sim_burst *burst = &job->bursts[job->burst];

	flow->done = true;
	sample(sim, flow);
	if (job->program)
		return;
	if (!burst->first_end_ns)
		burst->first_end_ns = sim->now;
	if (--job->sending)
		return;
	burst->end_ns = sim->now;
	bursts_changed(sim);
	if (++job->burst < burst_total(job->spec))
		compute(sim, job, sim->now);
	else if (!job->spec->neighbour)
		sim->running--;
}

/* With chunks: the application at this end sends as many bytes as have come, a chunk at a time. */
static void answer_in_chunks(struct sim *sim, struct flow *flow)
{
	struct flow *peer = flow->peer;
	uint64_t chunk = segments_of(sim, flow->job->spec->chunk), allowed;

	allowed = peer->begin + ((flow->expected - flow->begin) / chunk + 1) * chunk;
	if (flow->expected == flow->end || allowed > peer->end)
		allowed = peer->end;
	if (allowed > peer->allowed)
		hand_over(sim, peer, allowed);
}

/* A segment is at the receiver. The application hears of it before it is acknowledged. */
static void segment_came(struct sim *sim, struct flow *flow, const struct event *event)
{
	enum arrival arrival;

	if (event->said)
		flow->said = event->said;
	arrival = receive(sim, flow, event->seq, event->marked);
	if (arrival == REPEATED)
		return;
	if (flow->job->program)
		messages_came(sim, flow);
	else if (flow->job->spec->chunk)
		answer_in_chunks(sim, flow);
	acknowledge(sim, flow, event->seq, arrival);
}

static void handle(struct sim *sim, const struct event *event)
{
	uint32_t owner = event->owner;

	switch (event->kind) {
	case BURST:
		if (sim->jobs[owner].program)
			begin_program(sim, &sim->jobs[owner]);
		else
			begin_burst(sim, &sim->jobs[owner]);
		break;
	case COMPRESSED:
		send_sizes(sim, &sim->jobs[owner],
			   sim->jobs[owner].spec->compressed +
				   (size_t)sim->jobs[owner].burst * sim->jobs[owner].spec->flows);
		break;
	case COMPUTED:
		task_done(sim, &sim->jobs[owner], event->seq);
		break;
	case SAMPLE:
		sample_job(sim, &sim->jobs[owner], event->seq);
		break;
	case ARRIVE:
	case ARRIVE_ACK:
		arrive(sim, &sim->flows[owner], event);
		break;
	case RECEIVE:
		segment_came(sim, &sim->flows[owner], event);
		break;
	case ACK:
		if (receive_ack(sim, &sim->flows[owner], event))
			burst_done(sim, &sim->flows[owner]);
		break;
	case RETRANSMIT_TIMER:
		retransmit_timer(sim, &sim->flows[owner]);
		break;
	case DELAYED_ACK_TIMER:
		delayed_ack(sim, &sim->flows[owner]);
		break;
	case JOIN_TIMER:
		joined(sim, &sim->flows[owner]);
		break;
	case SENT:
		send_next(sim, owner);
		break;
	case CONTROL:
		assign_levels(sim);
		break;
	}
}

/* The job's first flow between the same two hosts: as on hosts, those share what they know. */
static struct flow *first_between(struct job *job, const struct flow *flow)
{
	struct flow *each = job->flows;

	while (each->host != flow->host || each->peer_host != flow->peer_host)
		each++;
	return each;
}

static void connect_flow(struct sim *sim, struct job *job, struct flow *flow, uint32_t number)
{
	const struct sim_job *spec = job->spec;
	bool answering = number >= spec->flows;
	struct flow *first;

	flow->job = job;
	flow->number = number;
	flow->done = true;
	flow->ahead = answering ? spec->back : spec->ahead;
	flow->ahead_count = answering ? spec->back_count : spec->ahead_count;
	flow->back = answering ? spec->ahead : spec->back;
	flow->back_count = answering ? spec->ahead_count : spec->back_count;
	flow->path = &job->paths[answering];
	flow->way = &job->ways[answering];
	if (spec->tasks) {
		flow->ahead = spec->paths[number].ahead;
		flow->ahead_count = spec->paths[number].ahead_count;
		flow->back = spec->paths[number].back;
		flow->back_count = spec->paths[number].back_count;
		flow->host = &sim->hosts[spec->paths[number].from];
		flow->peer_host = &sim->hosts[spec->paths[number].to];
		first = first_between(job, flow);
		flow->path = &first->own_path;
		flow->way = &first->own_way;
	}
	if (spec->both)
		flow->peer = &job->flows[(number + spec->flows) % (2 * spec->flows)];
	flow->window = sim->options->window;
	flow->mss = sim->options->mss;
	flow->segments = zeroed(flow->window, sizeof(*flow->segments));
	start_sender(sim, flow);
}

static void set_up(struct sim *sim, const struct sim_job *specs)
{
	struct flow *flow = sim->flows;
	struct sim_burst *bursts = sim->result->bursts;
	uint32_t i, k;

	for (i = 0; i < sim->job_count; i++) {
		struct job *job = &sim->jobs[i];

		*job = (struct job){.spec = &specs[i],
				    .number = i,
				    .flows = flow,
				    .bursts = bursts,
				    .due_ns = specs[i].due_ns,
				    .level = specs[i].neighbour && sim->options->levels
						     ? sim->options->levels - 1
						     : 0};
		sim->running += !specs[i].neighbour;
		bursts += burst_total(&specs[i]);
		for (k = 0; k < flows_of(&specs[i]); k++, flow++)
			connect_flow(sim, job, flow, k);
		if (specs[i].tasks) {
			set_up_program(job);
			add_event(sim, (struct event){.time = specs[i].start_ns,
						      .kind = BURST,
						      .owner = i});
		} else {
			compute(sim, job, specs[i].start_ns);
		}
	}
}

struct sim_result *sim_run(const struct sim_link *links, uint32_t link_count,
			   const struct sim_job *jobs, uint32_t count,
			   const struct sim_options *options)
{
	struct sim sim = {.links = links,
			  .link_count = link_count,
			  .options = options,
			  .job_count = count,
			  .random = options->seed};
	struct event event;
	uint32_t i;

	sim.result = zeroed(1, sizeof(*sim.result));
	for (i = 0; i < count; i++) {
		sim.flow_count += flows_of(&jobs[i]);
		sim.result->burst_count += burst_total(&jobs[i]);
	}
	sim.result->bursts = zeroed(sim.result->burst_count, sizeof(*sim.result->bursts));
	sim.jobs = zeroed(count, sizeof(*sim.jobs));
	sim.flows = zeroed(sim.flow_count, sizeof(*sim.flows));
	sim.free_ns = zeroed(link_count, sizeof(*sim.free_ns));
	sim.states = zeroed(link_count, sizeof(*sim.states));
	sim.hosts = zeroed(options->hosts, sizeof(*sim.hosts));
	set_up(&sim, jobs);
	while (sim.running && !*options->stop && next_event(&sim, &event)) {
		sim.now = event.time;
		handle(&sim, &event);
	}
	sim.result->stopped = sim.running > 0;
	for (i = 0; i < sim.flow_count; i++) {
		last_report(&sim, &sim.flows[i]);
		free(sim.flows[i].segments);
		free(sim.flows[i].messages);
	}
	for (i = 0; i < count; i++)
		free_program(&sim.jobs[i]);
	for (i = 0; i < link_count * LEVELS_MAX; i++)
		free(sim.states[i / LEVELS_MAX].waiting[i % LEVELS_MAX].packets);
	free(sim.states);
	free(sim.free_ns);
	free(sim.hosts);
	free(sim.events.heap);
	free(sim.jobs);
	free(sim.flows);
	return sim.result;
}

void sim_free(struct sim_result *result)
{
	if (!result)
		return;
	free(result->bursts);
	free(result->samples);
	free(result->events);
	free(result);
}
