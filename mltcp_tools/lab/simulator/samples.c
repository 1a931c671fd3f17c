// SPDX-License-Identifier: BSD-2-Clause
/* What is recorded of flows as they send. */
#include "internal.h"

/* Sample a flow, where its job asks for that. */
void sample(struct sim *sim, const struct flow *flow)
{
	struct sim_result *result = sim->result;

	if (!flow->job->spec->trace_ns)
		return;
	result->samples = grow(result->samples, sizeof(*result->samples), result->sample_count,
			       &sim->sample_room);
	result->samples[result->sample_count++] = (struct sim_sample){
		.time_ns = sim->now,
		.acked = flow->acked_bytes - flow->burst_acked_bytes,
		.job = flow->job->number,
		.flow = flow->number,
		.iteration = flow->job->burst / flow->job->spec->bursts + 1,
		.cwnd = flow->cwnd,
		.ssthresh = flow->ssthresh,
		.srtt_us = flow->srtt_ns / 1000,
		.retransmits = flow->retransmits,
	};
}

/* Sample the flows that send, now and again until the burst is over. */
void sample_job(struct sim *sim, struct job *job, uint64_t burst)
{
	uint32_t i;

	if (!job->spec->trace_ns || !job->sending || job->burst != burst)
		return;
	for (i = 0; i < flows_of(job->spec); i++)
		if (!job->flows[i].done)
			sample(sim, &job->flows[i]);
	add_event(sim, (struct event){.time = sim->now + job->spec->trace_ns,
				      .kind = SAMPLE,
				      .owner = job->number,
				      .seq = burst});
}
