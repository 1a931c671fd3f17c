/* SPDX-License-Identifier: GPL-2.0-only */
/* What the simulator's files share; see simulator.h for what it does. */
#ifndef MLTCP_SIMULATOR_INTERNAL_H
#define MLTCP_SIMULATOR_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include "simulator.h"
#include "mltcp_core.h"

#define NS_PER_MS 1000000ULL

/* Payload of a full segment, and what Ethernet, IPv4 and TCP with timestamps add to it. */
#define MSS 1448
#define HEADERS 66

/* Segments in flight at most: about what the kernel's default buffers of 6 MB hold. */
#define WINDOW 4096

/* The kernel's shortest time-out (TCP_RTO_MIN). */
#define RTO_MIN_NS (200 * NS_PER_MS)

#define INITIAL_CWND 10

enum event_kind {
	BURST,
	ARRIVE,
	RECEIVE,
	ACK,
	RETRANSMIT_TIMER,
	DELAYED_ACK_TIMER,
	SAMPLE,
	SENT, /* the link has sent a packet, where it has levels of priority */
	CONTROL /* levels follow the bursts */
};

#define LEVELS_MAX 8

/*
 * What happens at a time. ARRIVE and RECEIVE are of a segment, at the link's queue and at the
 * receiver; an ACK says what the receiver has had.
 */
struct event {
	uint64_t time;
	uint64_t number; /* events of the same time happen in the order in which they were added */
	enum event_kind kind;
	uint32_t owner; /* number of the job (BURST, SAMPLE), else of the flow */
	uint64_t seq; /* ARRIVE, RECEIVE: the segment; ACK: the first that is still missing */
	uint64_t news[2]; /* ACK: the segments that came since the one before, as SACK blocks do */
	uint8_t news_count;
	bool duplicate; /* ACK: of a segment that had come already (DSACK, RFC 2883) */
	uint16_t hop; /* ACK: what the link has told the latest segment, see mltcp_hop_pass() */
};

struct event_queue {
	struct event *heap;
	size_t count, room;
	uint64_t added;
};

enum segment_state { OUTSTANDING, SACKED, LOST };

struct segment {
	uint64_t sent_ns; /* latest transmission */
	uint64_t order; /* of that one among all of the flow */
	uint16_t bytes;
	uint8_t state; /* enum segment_state */
	bool retransmitted;
	bool received; /* the receiver's knowledge, not the sender's */
	uint16_t hop; /* what the link has told it; on its way, and then the receiver's */
};

enum recovery { OPEN, RECOVERY, LOSS };

/* A connection, both its ends. Sequence numbers count segments, windows and flights as well. */
struct flow {
	struct job *job;
	uint32_t number; /* of the flow in its job */
	bool done; /* with the burst */

	/* sender */
	uint64_t una, nxt; /* the first unacknowledged, the next new segment */
	uint64_t begin, end; /* the first segment of the burst, the first one beyond it */
	uint64_t burst_bytes;
	struct segment segments[WINDOW]; /* segment s is at s % WINDOW */
	uint32_t in_flight; /* sent and neither delivered nor taken for lost */
	uint32_t sacked, lost; /* segments in these states */
	uint32_t cwnd, ssthresh;
	uint32_t acked_in_avoidance; /* tcp_sock::snd_cwnd_cnt */
	uint64_t order; /* latest one given to a transmission */
	uint64_t delivered_order; /* latest one known to have been delivered */
	uint64_t acked_bytes, burst_acked_bytes; /* in all, and where the burst began */
	uint64_t srtt_ns, rttvar_ns, min_rtt_ns;
	uint64_t last_sent_ns; /* 0: nothing sent yet */
	uint64_t host_ns; /* when the latest packet has left the host */
	uint32_t retransmits;

	/* recovery */
	enum recovery recovery;
	uint64_t recovery_point; /* it is over when all before this is acknowledged */
	uint32_t prior_cwnd, prr_delivered, prr_out; /* RFC 6937 */
	uint64_t probe_end; /* nxt at the latest tail loss probe, 0: none under way */
	bool probe_retransmitted;

	/* the one timer of the sender: the deadline (0: none), and when the heap says so next */
	uint64_t deadline_ns, timer_event_ns;
	bool deadline_is_probe;
	uint32_t backoff; /* time-outs in a row */

	/* receiver */
	uint64_t expected; /* the first segment that is missing */
	uint32_t out_of_order; /* segments that came behind it */
	uint64_t news[2];
	uint8_t news_count;
	uint32_t quick_acks; /* segments yet to be acknowledged at once */
	uint64_t last_received_ns, delayed_ack_ns; /* 0: none */

	uint16_t hop; /* what the link has told the latest segment */

	struct mltcp_flow mltcp;
	struct mltcp_rate rate;
};

struct job {
	const struct sim_job *spec;
	struct flow *flows;
	struct sim_burst *bursts;
	uint32_t number;
	uint32_t burst; /* the present one, of all of the run */
	uint32_t sending; /* flows that aren't done with it */
	__u64 path; /* what its flows tell each other, see mltcp_ask_path() */
	uint32_t level; /* of priority, 0 the best */
};

/* Packets that wait for a link at one level of priority, the first one first. */
struct waiting {
	struct packet {
		uint32_t owner; /* number of the flow */
		uint64_t seq;
	} * packets;
	size_t first, count, room;
	uint64_t bytes; /* on the wire */
};

struct sim {
	const struct sim_link *link;
	const struct sim_options *options;
	struct sim_result *result;
	struct event_queue events;
	struct job *jobs;
	struct flow *flows;
	uint32_t job_count, running;
	uint64_t now;
	uint64_t link_free_ns; /* when the link has sent all that waits */
	struct mltcp_hop hop; /* the link as its feedback sees it */
	struct waiting waiting[LEVELS_MAX];
	bool sending; /* the link, where it has levels */
	uint64_t random;
	size_t sample_room, event_room;
};

/* events.c */
void add_event(struct sim *sim, struct event event);
bool next_event(struct sim *sim, struct event *event);
double random_share(struct sim *sim);
void *grow(void *items, size_t size, uint64_t count, size_t *room);

/* link.c */
void hand_to_link(struct sim *sim, struct flow *flow, uint64_t seq);
void arrive(struct sim *sim, struct flow *flow, uint64_t seq);

/* priorities.c */
void bursts_changed(struct sim *sim);
void assign_levels(struct sim *sim);
void enqueue(struct sim *sim, struct flow *flow, uint64_t seq);
void send_next(struct sim *sim);

/* receiver.c */
void receive(struct sim *sim, struct flow *flow, uint64_t seq);
void delayed_ack(struct sim *sim, struct flow *flow);

/* sender.c */
void start_sender(const struct sim *sim, struct flow *flow);
void send_burst(struct sim *sim, struct flow *flow, uint64_t bytes);
void send_new(struct sim *sim, struct flow *flow);
void send_allowed(struct sim *sim, struct flow *flow);
void retransmit(struct sim *sim, struct flow *flow, uint64_t seq);
bool may_send_new(const struct flow *flow);
void sample_rtt(struct flow *flow, uint64_t rtt_ns);
void rearm_timer(struct sim *sim, struct flow *flow);
void add_timer_event(struct sim *sim, struct flow *flow);
void set_time_out(struct sim *sim, struct flow *flow);

/* recovery.c */
void receive_ack(struct sim *sim, struct flow *flow, const struct event *ack);
void retransmit_timer(struct sim *sim, struct flow *flow);

/* congestion.c */
void start_congestion_control(struct flow *flow);
uint32_t reduced_ssthresh(struct flow *flow);
void avoid_congestion(struct flow *flow, uint32_t acked);
void hear(struct sim *sim, struct flow *flow, uint16_t hop);
void account(struct sim *sim, struct flow *flow, uint64_t rtt_ns);
void report(struct sim *sim, struct flow *flow);

/* jobs.c */
void burst_done(struct sim *sim, struct flow *flow);

static inline struct segment *segment_at(struct flow *flow, uint64_t seq)
{
	return &flow->segments[seq % WINDOW];
}

static inline uint32_t flow_index(const struct sim *sim, const struct flow *flow)
{
	return flow - sim->flows;
}

/* Time to send a packet with so much payload. */
static inline uint64_t wire_ns(const struct sim *sim, uint32_t payload)
{
	return (payload + HEADERS) * 8e9 / sim->link->rate;
}

#endif
