/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef HOSTILE_H
#define HOSTILE_H

#include "worker.h"

/* What became of the answers: how many there were, collectives that went on to their end, and those
 * that the worker gave up for an answer that can't be. */
struct hostile_report {
	uint64_t answers, done, broken;
};

/* A worker's collective, over and over, with answers that are well signed and otherwise made up. */
void hostile_run(uint64_t seed, uint64_t answers, const struct worker_request *request,
		 struct hostile_report *report);

/* Workers opened with sizes that are anything (`answers` of them): `done` are those that opened, have
 * been sent random packets and sent some themselves; `broken` are those of them whose packet was
 * larger than a packet is, or that were done with a tensor before any answer. */
void hostile_open(uint64_t seed, uint64_t count, struct hostile_report *report);

#endif
