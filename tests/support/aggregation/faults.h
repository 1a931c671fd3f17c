/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef FAULTS_H
#define FAULTS_H

#include "worker.h"

/* Shares of packets that suffer each fault, and of those an outsider adds to. */
struct faults {
	uint64_t seed;
	uint32_t workers, slots, values;
	uint64_t limit_ns; /* of virtual time, to stop after */
	double lose, repeat, delay, corrupt, forge;
};

struct faults_report {
	uint64_t packets, lost, repeated, corrupted, forged, refused, time_ns;
};

void faults_run(const struct faults *faults, const struct worker_request *requests,
		uint32_t collectives, uint32_t *states, struct faults_report *report);

#endif
