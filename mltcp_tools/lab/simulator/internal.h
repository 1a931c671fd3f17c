/* SPDX-License-Identifier: BSD-2-Clause */
/* What the simulator's files share; see simulator.h for what it does. */
#ifndef MLTCP_SIMULATOR_INTERNAL_H
#define MLTCP_SIMULATOR_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include "simulator.h"
#include "mltcp_core.h"

#define NS_PER_MS 1000000ULL

/* What Ethernet, IPv4 and TCP with timestamps add to the payload of a segment. */
#define HEADERS 66

/* Bytes that a receiver joins at most: what a packet holds (GRO_LEGACY_MAX_SIZE). */
#define JOINED_MAX 65536

#define INITIAL_CWND 10

enum event_kind {
	BURST,
	ARRIVE, /* a segment, at the queue of a link */
	RECEIVE, /* a segment, at the receiver */
	ARRIVE_ACK, /* an ACK, at the queue of a link */
	ACK, /* an ACK, at the sender */
	RETRANSMIT_TIMER,
	DELAYED_ACK_TIMER,
	JOIN_TIMER,
	SAMPLE,
	COMPRESSED, /* a burst, which can be sent now */
	COMPUTED, /* a rank, what a task told it to */
	SENT, /* a link has sent a packet, where there are levels of priority */
	CONTROL /* levels follow the bursts */
};

#define LEVELS_MAX 8

/* What happens at a time. An ACK says what the receiver has had. */
struct event {
	uint64_t time;
	uint64_t number; /* events of the same time happen in the order in which they were added */
	uint8_t kind; /* enum event_kind */
	uint8_t hop; /* ARRIVE, ARRIVE_ACK: number of the link in the path */
	uint8_t news_count;
	bool duplicate; /* ACK: of a segment that had come already (DSACK, RFC 2883) */
	bool marked; /* RECEIVE: by a link (CE) */
	bool asks; /* the links, what they say to it */
	uint16_t
		said; /* what the worst link told the segment, see mltcp_hop_pass(); ACK: returned */
	uint32_t
		owner; /* number of the job (BURST, COMPRESSED, SAMPLE, COMPUTED), link (SENT), else flow */
	uint32_t marks; /* ACK: marked segments among those that it is the first to acknowledge */
	uint64_t seq; /* of a segment; ACK: the first that is still missing; COMPUTED: the task */
	uint64_t news[2]; /* ACK: segments that came behind a missing one, as SACK blocks say */
};

struct event_queue {
	struct event *heap;
	size_t count, room;
	uint64_t added;
};

/* How a segment came: not for the first time; with all before it; with gaps, there or filled. */
enum arrival { REPEATED, IN_ORDER, OUT_OF_ORDER };

enum segment_state { OUTSTANDING, SACKED, LOST };

struct segment {
	uint64_t sent_ns; /* latest transmission */
	uint64_t order; /* of that one among all of the flow */
	uint64_t older, newer; /* OUTSTANDING: neighbours by order, NOBODY at the ends */
	uint32_t bytes;
	uint8_t state; /* enum segment_state */
	bool retransmitted;
	bool received; /* the receiver's knowledge, not the sender's */
};

#define NOBODY UINT64_MAX

/* MARKED: the window is reduced for a mark (CWR), nothing is lost. */
enum recovery { OPEN, MARKED, RECOVERY, LOSS };

/* What a flow of a job with tasks sends at once. */
struct message {
	uint64_t begin, end; /* the first segment, the first one beyond it */
	uint64_t task; /* of the run: iteration * tasks + number */
	uint32_t bytes;
};

/* What CUBIC knows of a flow (cubic.c). */
struct cubic {
	double most; /* window at the latest loss, or less (RFC 9438, 4.7), segments; 0: no loss yet */
	double plateau; /* where the curve is flat, segments */
	double rise_s; /* from the epoch until then */
	double reno_cwnd; /* the window that Reno would have, segments */
	double acked; /* segments, that it hasn't grown by yet */
	double pace; /* acknowledged segments for each by which the window grows */
	uint64_t epoch, looked; /* when the curve began and was last looked at, ticks */
	uint32_t cwnd; /* then, segments */
	bool climbs; /* there is a curve */

	/* HyStart */
	bool found; /* that the path is full */
	uint64_t round_ns,
		train_ns; /* when the round began, and its ACKs were last close together */
	uint64_t round_end; /* the first segment beyond the round */
	uint64_t round_rtt_ns, least_rtt_ns; /* the least of the round, and of all */
	uint32_t samples; /* round-trip times of the round */
};

/* What the flows of a job that send one way know together. */
struct way {
	struct mltcp_rate_path path;
	struct mltcp_rate_job sent;
};

/* Words that they share, see mltcp_delay_ask() and mltcp_job_ratio(). */
struct shared {
	__u64 full, ratio;
};

/* What a host has received and sent in all, payload bytes. */
struct sim_host {
	uint64_t came, sent;
};

/* A connection, both its ends. Sequence numbers count segments, windows and flights as well. */
struct flow {
	struct job *job;
	struct flow *peer; /* what sends the other way on the same connection, or NULL */
	uint32_t number; /* of the flow in its job */
	bool done; /* with the burst */
	uint32_t ahead_count, back_count;
	const uint32_t *ahead, *back; /* numbers of the links that its segments and ACKs cross */
	struct sim_host *host, *peer_host; /* with tasks, the sender's and the receiver's */

	/* sender */
	uint64_t una, nxt; /* the first unacknowledged, the next new segment */
	uint64_t begin, end; /* the first segment of the burst, the first one beyond it */
	struct message *messages; /* with tasks; as they were sent */
	size_t message_count, message_room;
	size_t message_sending, message_coming; /* the present one of each end */
	uint64_t allowed; /* the first segment that the application hasn't handed over yet */
	uint64_t burst_bytes;
	struct segment *segments; /* segment s is at s % window */
	uint32_t window, mss; /* see sim_options */
	uint64_t oldest, newest; /* of the outstanding segments, by order of transmission */
	uint64_t first_lost; /* no segment before this one is taken for lost */
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
	uint32_t dctcp_alpha; /* RFC 8257, in 1024ths */
	uint32_t dctcp_acked, dctcp_marked; /* segments of the present window */
	uint64_t dctcp_end; /* the first segment beyond that window */
	struct cubic cubic;
	uint64_t probe_end; /* nxt at the latest tail loss probe, 0: none under way */
	bool probe_retransmitted;

	/* the one timer of the sender: the deadline (0: none), and when the heap says so next */
	uint64_t deadline_ns, timer_event_ns;
	bool deadline_is_probe;
	uint32_t backoff; /* time-outs in a row */

	/* receiver */
	uint64_t expected; /* the first segment that is missing */
	uint64_t received_bytes; /* in order */
	uint32_t out_of_order; /* segments that came behind it */
	uint64_t news[2];
	uint8_t news_count;
	uint32_t unacknowledged; /* segments since the latest ACK */
	uint32_t marks; /* marked ones among these */
	bool last_marked; /* whether the latest segment was */
	uint32_t quick_acks; /* segments yet to be acknowledged at once */
	uint64_t last_received_ns, delayed_ack_ns, join_ns; /* 0: none */

	uint64_t segments_heard_ns, acks_heard_ns; /* the latest interrupt of either end */

	uint16_t said; /* what the worst link has told the latest segment that asked; 0: returned */
	uint64_t asked_ns; /* when the latest segment that asked was sent */
	struct shared *path; /* what flows of the job on this path tell each other */
	struct shared own_path; /* with tasks, that of the job's flows between the same two hosts */
	struct way *way; /* likewise for mltcp_rate.h */
	struct way own_way;

	struct mltcp_flow mltcp;
	struct mltcp_rate rate;
};

struct job {
	const struct sim_job *spec;
	struct flow *flows;
	struct sim_burst *bursts;
	uint32_t number;
	uint32_t burst; /* the present one, of all of the run */
	const uint64_t *sizes; /* bytes of each of its flows */
	uint32_t sending; /* flows that aren't done with it */
	struct way ways[2]; /* of its flows, and of those that answer */
	struct shared paths[2]; /* likewise */
	struct program *program; /* NULL without tasks */
	uint32_t level; /* of priority, 0 the best */
	uint64_t due_ns; /* when its next slot is, see sim_job.period_ns */
};

/* Packets that wait for a link at one level of priority, the first one first. */
struct waiting {
	struct event *packets; /* as they came */
	size_t first, count, room;
	uint64_t bytes; /* on the wire */
	uint64_t due_ns; /* by when the level is sure of its next packet, see sim_options.floor */
};

/* A link as its feedback sees it, and its queues where there are levels of priority. */
struct link_state {
	struct mltcp_hop hop;
	struct waiting waiting[LEVELS_MAX];
	bool sending;
};

struct sim {
	const struct sim_link *links;
	uint64_t *free_ns; /* by when each link sends, or would have sent, all that has come */
	struct link_state *states; /* of each link */
	uint32_t link_count, flow_count;
	const struct sim_options *options;
	struct sim_result *result;
	struct event_queue events;
	struct job *jobs;
	struct flow *flows;
	struct sim_host *hosts; /* of jobs with tasks */
	uint32_t job_count, running;
	uint64_t now;
	uint64_t random;
	size_t sample_room, event_room;
};

/* events.c */
void add_event(struct sim *sim, struct event event);
bool next_event(struct sim *sim, struct event *event);
double random_share(struct sim *sim);
void *zeroed(size_t count, size_t size);
void *grow(void *items, size_t size, uint64_t count, size_t *room);

/* samples.c */
void sample(struct sim *sim, const struct flow *flow);
void sample_job(struct sim *sim, struct job *job, uint64_t burst);

/* link.c */
void hand_to_link(struct sim *sim, struct flow *flow, uint64_t seq);
void arrive(struct sim *sim, struct flow *flow, const struct event *event);
void return_ack(struct sim *sim, struct flow *flow, struct event ack);
void send_next(struct sim *sim, uint32_t number);

/* priorities.c */
void bursts_changed(struct sim *sim);
void assign_levels(struct sim *sim);

/* receiver.c */
enum arrival receive(struct sim *sim, struct flow *flow, uint64_t seq, bool marked);
void acknowledge(struct sim *sim, struct flow *flow, uint64_t seq, enum arrival arrival);
void delayed_ack(struct sim *sim, struct flow *flow);
void joined(struct sim *sim, struct flow *flow);

/* sender.c */
void start_sender(struct sim *sim, struct flow *flow);
void forget_transmission(struct flow *flow, uint64_t seq);
void uncount(struct flow *flow, uint64_t seq);
void hand_over(struct sim *sim, struct flow *flow, uint64_t allowed);
void send_burst(struct sim *sim, struct flow *flow, uint64_t bytes);
void send_message(struct sim *sim, struct flow *flow, uint64_t task, uint32_t bytes);
void send_new(struct sim *sim, struct flow *flow);
void send_allowed(struct sim *sim, struct flow *flow);
void retransmit(struct sim *sim, struct flow *flow, uint64_t seq);
bool may_send_new(const struct flow *flow);
void sample_rtt(struct flow *flow, uint64_t rtt_ns);
void rearm_timer(struct sim *sim, struct flow *flow);
void add_timer_event(struct sim *sim, struct flow *flow);
void set_time_out(struct sim *sim, struct flow *flow);

/* recovery.c */
bool receive_ack(struct sim *sim, struct flow *flow, const struct event *ack);
void retransmit_timer(struct sim *sim, struct flow *flow);

/* cubic.c */
void cubic_reset(struct sim *sim, struct flow *flow);
uint32_t cubic_ssthresh(struct flow *flow);
void cubic_begin_sending(struct sim *sim, struct flow *flow);
void cubic_hear(struct sim *sim, struct flow *flow, uint64_t rtt_ns);
uint32_t cubic_pace(struct sim *sim, struct flow *flow, uint32_t acked);

/* congestion.c */
void start_congestion_control(struct sim *sim, struct flow *flow);
uint32_t reduced_ssthresh(struct flow *flow, bool marked);
void count_marks(struct flow *flow, uint32_t delivered, uint32_t marks);
void avoid_congestion(struct sim *sim, struct flow *flow, uint32_t acked);
void begin_sending(struct sim *sim, struct flow *flow);
void hear(struct sim *sim, struct flow *flow, uint16_t said);
void hear_rtt(struct sim *sim, struct flow *flow, uint64_t rtt_ns);
void lost_all(struct sim *sim, struct flow *flow);
void account(struct sim *sim, struct flow *flow, uint64_t sent_ns);
void last_report(struct sim *sim, struct flow *flow);

/* patterns.c */
void set_up_program(struct job *job);
void free_program(struct job *job);
void begin_program(struct sim *sim, struct job *job);
void task_done(struct sim *sim, struct job *job, uint64_t number);
void messages_came(struct sim *sim, struct flow *flow);

static inline struct segment *segment_at(struct flow *flow, uint64_t seq)
{
	return &flow->segments[seq & (flow->window - 1)];
}

static inline uint32_t flow_index(const struct sim *sim, const struct flow *flow)
{
	return flow - sim->flows;
}

/* Senders, of both ends. */
static inline uint32_t flows_of(const struct sim_job *spec)
{
	return spec->both ? 2 * spec->flows : spec->flows;
}

/* Segments that so many bytes take. */
static inline uint64_t segments_of(const struct sim *sim, uint64_t bytes)
{
	return (bytes + sim->options->mss - 1) / sim->options->mss;
}

static inline uint32_t carried_by(struct flow *flow, const struct event *event)
{
	return event->kind == ARRIVE ? segment_at(flow, event->seq)->bytes : 0;
}

/* Time to send a packet with so much payload. */
static inline uint64_t wire_ns(const struct sim_link *link, uint32_t payload)
{
	return (payload + HEADERS) * 8e9 / link->rate;
}

#endif
