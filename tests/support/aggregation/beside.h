/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef BESIDE_H
#define BESIDE_H

#include "worker.h"

/* A job whose first worker shares its uplink with one reno flow that never ends. */
struct beside {
	uint64_t seed;
	uint32_t workers, slots, values;
	double rate; /* of each link and direction, bit/s */
	uint64_t delay_ns, jitter_ns; /* of a link, one way; and up to so much more */
	uint32_t queue; /* of a link's end, bytes; what comes then is dropped */
	uint64_t wake_ns; /* a worker looks at its socket so often; 0: at once */
	uint64_t seconds_ns; /* of virtual time, at which it ends */
	uint64_t from_ns; /* bytes are counted from then on */
	bool reno; /* whether the flow is there */
};

struct beside_report {
	uint64_t reno_bytes, worker_bytes; /* of frames with data on the shared uplink, delivered */
	uint64_t reno_cuts, worker_cuts, collectives;
};

void beside_run(const struct beside *beside, const struct worker_request *requests,
		struct beside_report *report);

#endif
