/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A simulator of periodic jobs that share a link over TCP: what its caller gives and gets.
 *
 * It goes from event to event in virtual time, packet by packet, and runs the project's own
 * algorithm: congestion.c calls mltcp_step.h as the kernel module does. Senders do what the
 * kernel's do by default:
 *
 *   Reno                slow start, congestion avoidance, restart after idle   RFC 5681
 *   round-trip times    of segments sent once; time-outs of 200 ms and more    RFC 6298
 *   loss detection      selective acknowledgements, by order of transmission   RFC 6675, 8985
 *   recovery            proportional rate reduction                            RFC 6937
 *   the end of a burst  tail loss probes                                       RFC 8985
 *   receivers           every second segment acknowledged, or after 40 ms      RFC 5681
 *   marks               echoed, and answered once per window                   RFC 3168
 *   DCTCP               the share of marked segments, and what it takes away   RFC 8257
 *   CUBIC               with HyStart                                           RFC 9438
 *
 * Flows that follow feedback (mltcp_rate.h) hear what the worst link told the latest segment that
 * asked, and are paced by that law, or as the kernel's internal pacing does it. All jobs run on
 * hosts of their own.
 *
 * Interrupt coalescing, where sim_options asks for it: a host hears of all packets that have come when
 * a random time has passed since the first of them, at least a fifth of the longest, as adaptive NICs do.
 *
 * Left out: bbr and every other congestion control; other pacing; super-packets in the queue;
 * receive windows, but for sim_options.window; RACK's reordering window and the undoing of
 * reductions, for nothing is reordered here; the handshake; ACKs on the back of data; and whatever
 * time hosts take, but for a little jitter in front of the first link.
 *
 * Times are nanoseconds since the start, sizes bytes of payload unless they say otherwise.
 * library.py hands the declarations below to Python.
 */
#ifndef MLTCP_SIMULATOR_H
#define MLTCP_SIMULATOR_H

#include <stdint.h>
#include <linux/types.h>
#include "mltcp_rate.h"

/* One direction of a link: a queue that drops what finds it full. */
struct sim_link {
	double rate; /* bits per second, on the wire */
	double loss; /* share of segments that are lost at random in front of the queue */
	uint64_t queue; /* bytes on the wire that wait or are being sent, at most */
	/*
	 * Bytes on the wire that pass at once after idle time: a token bucket's. 0: none, as on any real
	 * link, and where there are levels of priority.
	 */
	uint64_t bucket;
	/*
	 * Bytes of the queue from which on a segment may be marked, and from which on it is, with a
	 * chance that grows in between as RED's does; 0: none is.
	 */
	uint64_t mark_min, mark_max;
	uint64_t
		rtt_ns; /* what the link adds to an empty round trip, but the time to send a packet */
};

/* What larger weights, and so earlier places in the order of bursts, go by (priorities.c). */
enum sim_weight {
	SIM_WEIGHT_NONE,
	SIM_WEIGHT_REMAINING_MORE,
	SIM_WEIGHT_REMAINING_LESS,
	SIM_WEIGHT_LAYER,
	SIM_WEIGHT_IDLE
};

/*
 * What a rank of a job with a pattern does: it sends bytes on a flow, or computes for a share of the
 * iteration's computing. It begins when the tasks before it are done, which end at that rank.
 */
struct sim_task {
	uint32_t rank; /* that does it */
	uint32_t ends_at; /* the rank that knows when it is done */
	uint32_t flow; /* number in the job; SIM_COMPUTES: none */
	uint32_t bytes;
	double share; /* of the iteration's compute_ns */
	uint32_t after_count;
	const uint32_t *after; /* numbers of tasks of the same iteration */
};

#define SIM_COMPUTES UINT32_MAX

/* The links that a flow's segments cross, in order, and its ACKs. */
struct sim_path {
	uint32_t from, to; /* numbers of hosts */
	uint32_t ahead_count, back_count;
	const uint32_t *ahead, *back; /* numbers of links */
};

enum sim_base { SIM_RENO, SIM_DCTCP, SIM_CUBIC };

/*
 * One periodic job. Its flows share a path: segments cross the links ahead, in that order, and ACKs
 * those back; where it names none back, ACKs wait in no queue and aren't lost. A job that sends
 * both ways has a second flow for each, numbered behind the others, with the links exchanged.
 *
 * With tasks, the job has ranks, each flow leads from one to another on a path of its own, and an
 * iteration is one burst, from the first message to the moment at which all ranks are done.
 */
struct sim_job {
	uint32_t flows; /* that carry bytes of their own one way */
	uint32_t iterations;
	uint32_t bursts; /* of an iteration */
	uint32_t mltcp; /* 1: the flows are MLTCP's on that base; 0: the base's */
	uint32_t base; /* enum sim_base */
	uint32_t follows; /* 1: and their windows follow the network's feedback, by mltcp_rate.h */
	uint32_t both; /* 1: as many bytes come back, at the same time */
	uint32_t ahead_count, back_count;
	const uint32_t *ahead, *back; /* numbers of links */
	uint64_t chunk; /* with both: each end sends so many bytes when as many have come; 0: all */
	uint64_t start_ns; /* of the first iteration */
	/*
	 * The first burst of each iteration has a slot: the first is due at due_ns, the others each
	 * period_ns after the one before. One that is ready later than by realign_ns waits for the next
	 * slot (emulator/time_shift.py). period_ns 0: bursts begin when they are ready.
	 */
	uint64_t due_ns, period_ns, realign_ns;
	uint64_t trace_ns; /* between samples of its flows while they send, 0: none */
	uint32_t neighbour; /* 1: no job, nobody waits for its end, and its priority is the least */
	const uint64_t *compute_ns; /* of each iteration, shared equally by its bursts */
	const uint64_t
		*bytes; /* of each burst and in it of each flow, 0: it idles; not with tasks */
	const uint64_t *compressed; /* likewise, of bursts that aren't first; NULL: none are */
	const uint64_t *compress_ns; /* what that takes, of each burst */
	uint32_t ranks, task_count; /* of each iteration */
	const struct sim_task *tasks; /* NULL: none */
	const struct sim_path *paths; /* of each flow, with tasks */
	struct mltcp_params params;
	struct mltcp_rate_params rate;
};

struct sim_options {
	uint64_t seed; /* of random losses and of the hosts' jitter */
	uint64_t rto_min_ns; /* net.ipv4.tcp_rto_min_us, the shortest time-out */
	uint32_t slow_start_after_idle; /* net.ipv4.tcp_slow_start_after_idle */
	uint32_t mss; /* payload of a full segment, bytes */
	uint32_t window; /* segments in flight at most, a power of two: what the buffers hold */
	uint64_t coalescing_ns; /* hosts hear of packets up to that much later, 0: at once */
	uint64_t join_ns; /* receivers join segments that come within so long (GRO), 0: none */
	uint32_t levels; /* of priority, each with a queue of its own at a link; 0: one for all */
	uint32_t weight; /* enum sim_weight, where there are levels */
	double floor; /* share of a link that each level is sure of; 0: of none */
	uint64_t control_ns; /* from the beginning or end of a burst until levels follow it */
	uint32_t hosts; /* of jobs with tasks */
	const volatile uint32_t *stop; /* when this is no longer 0, the run ends early */
};

struct sim_burst {
	uint64_t start_ns;
	uint64_t first_end_ns; /* when the first of its flows was done */
	uint64_t end_ns; /* when the last one was */
	uint64_t bytes; /* that its flows sent, one way; not with tasks */
};

/* A flow at one instant of a burst. */
struct sim_sample {
	uint64_t time_ns;
	uint64_t acked; /* since the burst began */
	uint32_t job, flow, iteration, cwnd, ssthresh, srtt_us, retransmits;
};

/* An iteration as MLTCP saw it end, see struct mltcp_event. */
struct sim_event {
	uint64_t first_ack_ns, last_ack_ns, bytes;
	uint32_t job, flow, iteration, retransmits, srtt_us, cwnd, ratio;
};

/* Packets of the senders. */
struct sim_counters {
	uint64_t sent;
	uint64_t retransmitted; /* of those sent */
	uint64_t lost; /* at random */
	uint64_t dropped; /* by a full queue */
	uint64_t marked; /* by a queue that was long */
	uint64_t forwarded; /* by the last link of their path; one way only */
	uint64_t forwarded_bytes; /* on the wire */
	uint64_t largest_queue; /* bytes on the wire */
	uint64_t received_bytes; /* that came to the receivers for the first time */
	uint64_t timeouts;
};

struct sim_result {
	struct sim_burst *bursts; /* of all jobs, one job after another; end_ns is 0 if it didn't */
	struct sim_sample *samples;
	struct sim_event *events;
	uint64_t burst_count, sample_count, event_count;
	uint32_t stopped; /* 1: it ended before all jobs were done */
	struct sim_counters counters;
};

/* Run count jobs until all but neighbours are done, or are to stop. To be freed by sim_free(). */
struct sim_result *sim_run(const struct sim_link *links, uint32_t link_count,
			   const struct sim_job *jobs, uint32_t count,
			   const struct sim_options *options);
void sim_free(struct sim_result *result);

#endif
