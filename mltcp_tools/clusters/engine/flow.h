/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A simulator of periodic jobs on many links, flow by flow: what its caller gives and gets.
 *
 * A job computes, then sends its bytes over all its links at the same speed, as a ring does whose
 * steps wait for each other. Between two events every speed is constant: weighted max-min shares.
 *
 * Times are nanoseconds since the start, sizes bytes, speeds bytes per nanosecond.
 */
#ifndef MLTCP_CLUSTERS_FLOW_H
#define MLTCP_CLUSTERS_FLOW_H

#include <stdint.h>

/* How links are shared: a weight is (intercept + slope * progress)^power. */
struct flow_rule {
	double intercept, slope, power;
	double loss; /* of a full link that jobs share: times (their flows / its packets)^crowd */
	double crowd;
	uint32_t levels; /* steps in which progress is known, at least 1 */
};

/* Its arrays are copied. */
struct flow_job {
	uint32_t rows; /* of compute_ns: iteration i takes row i % rows */
	const uint64_t *compute_ns;
	uint64_t bytes; /* 0: nothing is sent */
	uint32_t links;
	const uint32_t *link;
	const double *crossings; /* how often each byte crosses that link */
	uint64_t iterations;
	uint64_t start_ns;
	uint64_t lag_ns; /* from the start of a burst until it has its speed */
	uint64_t seed; /* of its luck */
	double luck; /* standard deviation of its weight's logarithm */
	uint32_t lasting; /* bursts for which a draw of it lasts, at least 1 */
	double flows; /* connections that carry a burst */
};

/* Of iterations that are done. */
struct flow_stats {
	uint64_t done, sum_ns;
};

struct flow;

/*
 * Links have rates in bytes per nanosecond, and packets that they hold when full, in queue and on
 * the way. To be freed by flow_free().
 */
struct flow *flow_new(uint32_t links, const double *rates, const double *packets,
		      const struct flow_rule *rule);
void flow_free(struct flow *flow);

/* A number for the job. */
uint32_t flow_add(struct flow *flow, const struct flow_job *job);
void flow_remove(struct flow *flow, uint32_t job);

/* Time shifts from the next iteration on: a burst begins in the first slot after it is ready, or at
 * once where it is late by slack at most. The first slot is at due, one more each period (0: none). */
void flow_time_shifts(struct flow *flow, uint32_t job, uint64_t period_ns, uint64_t due_ns,
		      uint64_t slack_ns);

/* Go on until then, or until a job is done: its number, or -1. */
int64_t flow_run(struct flow *flow, uint64_t until_ns);
uint64_t flow_now(const struct flow *flow);
void flow_stats(const struct flow *flow, uint32_t job, struct flow_stats *stats);
/* Nanoseconds that the job's bursts took longer than alone, by the link of its that was full. */
void flow_lost(const struct flow *flow, uint32_t job, double *lost_ns);

#endif
