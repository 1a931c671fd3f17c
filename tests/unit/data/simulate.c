// SPDX-License-Identifier: BSD-2-Clause
/* Jobs of all kinds over links of all kinds, for a compiler's sanitizers to watch. */
#include <stdio.h>
#include "simulator.h"
#include "mltcp_core.h"

#define ITERATIONS 12
#define FLOWS 3
#define JOBS 4

int main(void)
{
	static uint64_t compute[ITERATIONS], bytes[ITERATIONS * FLOWS];
	const struct sim_link links[] = {
		{.rate = 200e6,
		 .queue = 30000,
		 .mark_min = 10000,
		 .mark_max = 20000,
		 .rtt_ns = 100000},
		{.rate = 50e6, .queue = 60000, .rtt_ns = 10000000, .loss = 0.02},
		{.rate = 1e6, .queue = 3028, .rtt_ns = 1000000, .loss = 0.3},
		{.rate = 10e9, .queue = 50000000, .rtt_ns = 50000000},
		{.rate = 100e6, .queue = 50000, .rtt_ns = 100000}, /* the last one's way back */
	};
	static const uint32_t never, ahead[] = {0, 1}, back[] = {1};
	static const uint32_t bases[JOBS] = {SIM_RENO, SIM_DCTCP, SIM_CUBIC, SIM_CUBIC};
	struct sim_options options = {
		.stop = &never, .mss = 1448, .window = 4096, .rto_min_ns = 200000000};
	struct sim_job jobs[JOBS];
	uint32_t i, k;

	for (i = 0; i < ITERATIONS; i++) {
		compute[i] = 30000000ULL * (i % 4 + 1);
		for (k = 0; k < FLOWS; k++)
			bytes[i * FLOWS + k] = (i + k) % 4 ? 30000 * k + i : 0;
		bytes[i * FLOWS] = 1;
	}
	for (i = 0; i < JOBS; i++)
		jobs[i] = (struct sim_job){
			.flows = FLOWS,
			.iterations = ITERATIONS / (i + 1),
			.bursts = i + 1,
			.mltcp = i == 1 || i == 2,
			.base = bases[i],
			.neighbour = i == 3,
			.trace_ns = 1000000,
			.due_ns = 30000000,
			.period_ns = i == 0 ? 100000000 : 0,
			.realign_ns = 10000000,
			.both = i == 2,
			.chunk = i == 2 ? 10000 : 0,
			.ahead = ahead,
			.ahead_count = i == 2 ? 2 : 1,
			.back = back,
			.back_count = i == 2 ? 1 : 0,
			.compute_ns = compute,
			.bytes = bytes,
			.params = {.slope = 2 * MLTCP_ONE,
				   .intercept = MLTCP_ONE / 4,
				   .yield_min = MLTCP_ONE / 5,
				   .yield_max = MLTCP_ONE,
				   .mechanisms = 5},
		};
	for (i = 0; i < sizeof(links) / sizeof(links[0]) - 1; i++) {
		struct sim_result *result;

		options.seed = i;
		options.slow_start_after_idle = i % 2;
		options.join_ns = i == 3 ? 20000 : 0;
		result = sim_run(links + i, 2, jobs, JOBS, &options);
		printf("%llu timeouts\n", (unsigned long long)result->counters.timeouts);
		sim_free(result);
	}
	return 0;
}
