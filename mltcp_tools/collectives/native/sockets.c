// SPDX-License-Identifier: BSD-2-Clause
/* A collective over a UDP socket: many packets with one call, and sleep until one is due. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include "internal.h"

#define BATCH 32 /* packets in a call */
#define TRAIN_BYTES 60000 /* of packets that the kernel takes as one, at most */
#define UDP_OPTIONS 17 /* SOL_UDP */
#define OPTION_SEGMENT 103 /* UDP_SEGMENT, from Linux 4.18 */
#define STOP_NS 200000000ull /* how often *stop is looked at */

struct batch {
	struct mmsghdr messages[BATCH];
	struct iovec parts[BATCH];
	struct agg_packet packets[BATCH];
	uint32_t first, count; /* messages that wait to be sent */
};

/* The size of the packets that a message is cut into. */
union cut {
	struct cmsghdr header;
	char room[CMSG_SPACE(sizeof(uint16_t))];
};

/* What a worker keeps from collective to collective. */
struct ends {
	struct batch out, in;
	union cut cuts[BATCH];
	bool alone; /* the kernel or the port can't cut messages into packets */
};

static uint64_t clock_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void begin_batch(struct batch *batch)
{
	uint32_t i;

	batch->first = batch->count = 0;
	for (i = 0; i < BATCH; i++) {
		batch->parts[i].iov_base = &batch->packets[i];
		batch->messages[i].msg_hdr = (struct msghdr){
			.msg_iov = &batch->parts[i],
			.msg_iovlen = 1,
		};
	}
}

static struct ends *ends_of(struct worker *w)
{
	if (!w->ends)
		w->ends = calloc(1, sizeof(*w->ends));
	if (w->ends) {
		begin_batch(&w->ends->out);
		begin_batch(&w->ends->in);
	}
	return w->ends;
}

static void cut_into(struct msghdr *message, union cut *cut, uint16_t bytes)
{
	cut->header.cmsg_level = UDP_OPTIONS;
	cut->header.cmsg_type = OPTION_SEGMENT;
	cut->header.cmsg_len = CMSG_LEN(sizeof(bytes));
	memcpy(CMSG_DATA(&cut->header), &bytes, sizeof(bytes));
	message->msg_control = cut;
	message->msg_controllen = sizeof(*cut);
}

/* Packets of one size after each other are a message: they pass the kernel's layers as one. */
static void make_messages(struct ends *ends, uint32_t packets, uint32_t train)
{
	struct batch *out = &ends->out;
	uint32_t i = 0, next;

	out->first = out->count = 0;
	for (; i < packets; i = next) {
		uint64_t bytes = out->parts[i].iov_len;
		struct msghdr *message = &out->messages[out->count].msg_hdr;

		for (next = i + 1; next < packets && next < i + train && !ends->alone; next++)
			if (out->parts[next].iov_len != bytes ||
			    (next + 1 - i) * bytes > TRAIN_BYTES)
				break;
		*message = (struct msghdr){
			.msg_iov = &out->parts[i],
			.msg_iovlen = next - i,
		};
		if (next - i > 1)
			cut_into(message, &ends->cuts[out->count], bytes);
		out->count++;
	}
}

/* Send the packets that wait one by one from now on, and on this socket for ever. */
static void send_alone(struct ends *ends, int socket)
{
	struct batch *out = &ends->out;
	uint32_t last = out->first + out->count - 1, first, packets, i;
	const struct msghdr *end = &out->messages[last].msg_hdr;
	int one = 1;

	ends->alone = true;
	/* Our own check covers more than UDP's, which nobody needs without messages to cut. */
	setsockopt(socket, SOL_SOCKET, SO_NO_CHECK, &one, sizeof(one));
	first = out->messages[out->first].msg_hdr.msg_iov - out->parts;
	packets = end->msg_iov + end->msg_iovlen - &out->parts[first];
	for (i = 0; i < packets; i++)
		out->messages[i].msg_hdr = (struct msghdr){
			.msg_iov = &out->parts[first + i],
			.msg_iovlen = 1,
		};
	out->first = 0;
	out->count = packets;
}

enum sending { SENT_ALL, SENT_LATER, SENT_TOO_LONG };

/* Send what the window allows, as far as the socket takes it for now. */
static enum sending send_all(struct worker *worker, int socket, struct ends *ends)
{
	struct batch *out = &ends->out;

	for (;;) {
		int sent;

		if (!out->count) {
			uint64_t now = clock_ns();
			uint32_t length, packets = 0;

			while (packets < BATCH &&
			       (length = worker_send(worker, now, &out->packets[packets])))
				out->parts[packets++].iov_len = length;
			make_messages(ends, packets, worker_train(worker));
		}
		if (!out->count)
			return SENT_ALL;
		sent = sendmmsg(socket, out->messages + out->first, out->count, MSG_DONTWAIT);
		if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return SENT_LATER;
		if (sent < 0 && errno == EMSGSIZE)
			return SENT_TOO_LONG;
		if (sent < 0 && (errno == EIO || errno == EINVAL) && !ends->alone) {
			send_alone(ends, socket);
			continue;
		}
		if (sent < 0) /* as good as lost on the way, and found out in the same way */
			sent = 1;
		out->first += sent;
		out->count -= sent;
	}
}

static void receive_all(struct worker *worker, int socket, struct batch *in)
{
	int came, i;

	for (i = 0; i < BATCH; i++)
		in->parts[i].iov_len = sizeof(in->packets[i]);
	/* A pending ICMP error is the call's result once; the aggregator may be back. */
	came = recvmmsg(socket, in->messages, BATCH, MSG_DONTWAIT, NULL);
	for (i = 0; i < came; i++)
		worker_receive(worker, clock_ns(), &in->packets[i], in->messages[i].msg_len);
}

/* Wait for a packet, a timer or the control connection; true when that has something to say. */
static bool wait_for_more(struct worker *worker, int socket, int control, bool wants_to_send)
{
	struct pollfd ready[2] = {
		{.fd = socket, .events = POLLIN | (wants_to_send ? POLLOUT : 0)},
		{.fd = control, .events = POLLIN | POLLRDHUP},
	};
	uint64_t now = clock_ns(), until = worker_wakes_at(worker);
	uint64_t left = until > now ? until - now : 0;
	struct timespec pause = {0};

	if (wants_to_send)
		left = STOP_NS; /* a timer could only add to what can't be sent */
	pause.tv_nsec = left < STOP_NS ? left : STOP_NS;
	return ppoll(ready, control < 0 ? 1 : 2, &pause, NULL) > 0 && control >= 0 &&
	       ready[1].revents;
}

enum worker_state worker_reduce(struct worker *worker, int socket, int control,
				const struct worker_request *request, uint64_t timeout_ns,
				const volatile uint32_t *stop)
{
	struct ends *ends = ends_of(worker);
	enum worker_state state;

	if (!ends)
		return WORKER_BROKEN;
	worker_begin(worker, request, clock_ns());
	for (;;) {
		enum sending sent = send_all(worker, socket, ends);

		if (sent == SENT_TOO_LONG) {
			state = WORKER_TOO_LONG;
			break;
		}
		state = worker_silence(worker, clock_ns(), timeout_ns);
		if (state != WORKER_RUNNING)
			break;
		if (stop && *stop) {
			state = WORKER_STOPPED;
			break;
		}
		if (wait_for_more(worker, socket, control, sent == SENT_LATER)) {
			/* What is in the socket may yet finish it. */
			receive_all(worker, socket, &ends->in);
			state = worker_state(worker);
			if (state == WORKER_RUNNING)
				state = WORKER_CONTROL;
			break;
		}
		receive_all(worker, socket, &ends->in);
	}
	return state;
}
