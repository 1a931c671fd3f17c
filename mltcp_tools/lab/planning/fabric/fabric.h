/* SPDX-License-Identifier: BSD-2-Clause */
/* A switch without contention inside: flows from ingress to egress ports, all of one rate.
 *
 * The model that coflow schedulers are compared on (Chowdhury et al., SIGCOMM 2014): a flow is
 * limited by its two ports alone. Time is in seconds, sizes are in seconds of a port's rate, so
 * that every port serves 1 per second.
 */
#ifndef MLTCP_FABRIC_H
#define MLTCP_FABRIC_H

#include <stdint.h>

/* One flow. ingress, egress: ports from 0. coflow: from 0. left: what is still to be sent, s. */
struct fabric_flow {
	uint32_t ingress, egress, coflow;
	double left;
};

/* Both serve the flows that are not done from `now` until `until` or until all are done, and
 * return the instant at which they stopped; NaN where memory is short. At a flow's end its
 * `left` is exactly 0. finished[coflow] becomes the instant at which the last flow of a coflow
 * ended. unfinished[coflow] counts the flows to come; the caller initialises both.
 *
 * One coflow is served before another where its rank is smaller, flow by flow, each at the full
 * rate of its ports: pre-emptive, work-conserving, order-preserving. Flows of one coflow go in
 * the order of the array. to_end: stop when a coflow has ended, too. */
double fabric_in_order(struct fabric_flow *flows, uint32_t count, uint32_t ports,
		       const uint32_t *rank, uint32_t coflows, uint32_t *unfinished,
		       double *finished, double now, double until, int to_end);

/* Max-min fair rates among flows, which are sorted by ingress, egress and `left`. Ends that lie
 * within `grain` times the instant are taken together, which bounds the relative error and the
 * number of times rates are computed. */
double fabric_fairly(struct fabric_flow *flows, uint32_t count, uint32_t ports,
		     uint32_t *unfinished, double *finished, double now, double until,
		     double grain);

#endif
