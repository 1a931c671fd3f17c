// SPDX-License-Identifier: BSD-2-Clause
/* The check of packets (bpf/mltcp_aggregate.h). */
#include "worker.h"

void expand_secret(struct agg_secret *secret)
{
	agg_expand(secret);
}

FOR_EACH_PROCESSOR
uint64_t check_of(const struct agg_secret *secret, const struct agg_packet *packet)
{
	return agg_check(secret, packet, packet->header.count);
}
