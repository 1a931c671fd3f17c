// SPDX-License-Identifier: BSD-2-Clause
/* Coflows served in a given order: the flows that send are a greedy matching of the ports.
 *
 * A flow sends when no flow before it (by rank of its coflow, then by index) holds one of its
 * ports. When a flow ends, only flows behind it can take its ports, so each port looks on from
 * where the flow that held it stood in the port's list.
 */
#include "fabric.h"

#include <math.h>
#include <stdlib.h>

#define NONE UINT32_MAX

/* What is less than this many seconds of a port's rate has been sent: differences of instants
 * don't cancel exactly. */
#define EPSILON_S 1e-9

/* A flow that sends and the instant of its end; stale when the flow has stopped meanwhile. */
struct end {
	double at_s;
	uint32_t flow;
};

struct matching {
	struct fabric_flow *flows;
	uint32_t ports;
	uint32_t *place; /* flow -> its place in the order */
	uint32_t *in_order; /* place -> flow */
	uint32_t *first; /* port -> index of its list in `list`; egress follows ingress */
	uint32_t *list; /* places of the port's flows, ascending */
	uint32_t *position; /* 2 * flow (+ 1 for egress) -> where it stands in the port's list */
	uint32_t *holder; /* port -> the flow that sends there, or NONE */
	uint32_t *from; /* port -> where in its list to look on */
	uint32_t *free; /* ports that lost their flow, a stack */
	uint8_t *waits; /* port -> it is on that stack */
	uint32_t free_count;
	double *since_s; /* flow -> the instant from which it sends */
	struct end *heap;
	uint32_t heap_count, heap_room;
	uint32_t *unfinished;
	double *finished;
	uint32_t ended; /* coflows that ended */
};

static uint32_t port_of(const struct matching *m, uint32_t flow, int egress)
{
	const struct fabric_flow *f = &m->flows[flow];

	return egress ? m->ports + f->egress : f->ingress;
}

static int push(struct matching *m, double at_s, uint32_t flow)
{
	uint32_t i = m->heap_count++;

	if (i == m->heap_room) {
		struct end *more = realloc(m->heap, 2 * (size_t)m->heap_room * sizeof(*more));

		if (!more)
			return -1;
		m->heap = more;
		m->heap_room *= 2;
	}
	for (; i && m->heap[(i - 1) / 2].at_s > at_s; i = (i - 1) / 2)
		m->heap[i] = m->heap[(i - 1) / 2];
	m->heap[i] = (struct end){at_s, flow};
	return 0;
}

static struct end pop(struct matching *m)
{
	struct end top = m->heap[0], last = m->heap[--m->heap_count];
	uint32_t i = 0, child;

	while ((child = 2 * i + 1) < m->heap_count) {
		if (child + 1 < m->heap_count && m->heap[child + 1].at_s < m->heap[child].at_s)
			child++;
		if (m->heap[child].at_s >= last.at_s)
			break;
		m->heap[i] = m->heap[child];
		i = child;
	}
	m->heap[i] = last;
	return top;
}

/* A flow leaves its ports; each will look for another from the next in its list on, or from where
 * it was to look on already. */
static void release(struct matching *m, uint32_t flow)
{
	for (int egress = 0; egress < 2; egress++) {
		uint32_t port = port_of(m, flow, egress);
		uint32_t next = m->position[2 * flow + egress] + 1;

		m->holder[port] = NONE;
		if (!m->waits[port] || next < m->from[port])
			m->from[port] = next;
		if (!m->waits[port]) {
			m->waits[port] = 1;
			m->free[m->free_count++] = port;
		}
	}
}

/* The first flow of a port that nothing before it keeps from sending, or NONE. A port that has
 * been taken meanwhile looks for what comes before its flow. */
static uint32_t candidate(const struct matching *m, uint32_t port)
{
	uint32_t holder = m->holder[port], end = m->first[port + 1];

	if (holder != NONE)
		end = m->position[2 * holder + (port >= m->ports)];
	for (uint32_t i = m->from[port]; i < end; i++) {
		uint32_t flow = m->in_order[m->list[i]];
		uint32_t other = m->holder[port_of(m, flow, port < m->ports)];

		if (m->flows[flow].left > 0 && (other == NONE || m->place[other] > m->place[flow]))
			return flow;
	}
	return NONE;
}

/* A flow has sent until now; what it leaves may be nothing. */
static void account(struct matching *m, uint32_t flow, double now)
{
	struct fabric_flow *f = &m->flows[flow];

	f->left -= now - m->since_s[flow];
	m->since_s[flow] = NAN;
	if (f->left > EPSILON_S)
		return;
	f->left = 0;
	if (--m->unfinished[f->coflow])
		return;
	m->finished[f->coflow] = now;
	m->ended++;
}

static int settle(struct matching *m, double now)
{
	while (m->free_count) {
		uint32_t port = m->free[--m->free_count];
		uint32_t flow = candidate(m, port);

		m->waits[port] = 0;
		if (flow == NONE)
			continue;
		for (int egress = 0; egress < 2; egress++) {
			uint32_t other = m->holder[port_of(m, flow, egress)];

			if (other == NONE)
				continue;
			account(m, other, now);
			release(m, other);
		}
		m->holder[port_of(m, flow, 0)] = flow;
		m->holder[port_of(m, flow, 1)] = flow;
		m->since_s[flow] = now;
		if (push(m, now + m->flows[flow].left, flow))
			return -1;
	}
	return 0;
}

/* Order the flows by rank, and list each port's. */
static void arrange(struct matching *m, uint32_t count, const uint32_t *rank, uint32_t *starts,
		    uint32_t coflows)
{
	uint32_t ports = 2 * m->ports;

	for (uint32_t i = 0; i < count; i++)
		starts[rank[m->flows[i].coflow] + 1]++;
	for (uint32_t i = 0; i < coflows; i++)
		starts[i + 1] += starts[i];
	for (uint32_t i = 0; i < count; i++) {
		m->place[i] = starts[rank[m->flows[i].coflow]]++;
		m->in_order[m->place[i]] = i;
		m->since_s[i] = NAN;
		m->first[port_of(m, i, 0) + 1]++;
		m->first[port_of(m, i, 1) + 1]++;
	}
	for (uint32_t port = 0; port < ports; port++) {
		m->first[port + 1] += m->first[port];
		m->from[port] = m->first[port];
	}
	for (uint32_t place = 0; place < count; place++)
		for (int egress = 0; egress < 2; egress++) {
			uint32_t flow = m->in_order[place];
			uint32_t *next = &m->from[port_of(m, flow, egress)];

			m->position[2 * flow + egress] = *next;
			m->list[(*next)++] = place;
		}
	for (uint32_t port = 0; port < ports; port++) {
		m->from[port] = m->first[port];
		m->holder[port] = NONE;
		m->waits[port] = 1;
		m->free[m->free_count++] = ports - 1 - port;
	}
}

static double serve(struct matching *m, double now, double until, int to_end)
{
	if (settle(m, now))
		return NAN;
	while (m->heap_count && m->heap[0].at_s <= until && !(to_end && m->ended)) {
		struct end end = pop(m);

		/* A flow that stopped, or stopped and began anew, has another end. */
		if (!(m->since_s[end.flow] + m->flows[end.flow].left == end.at_s))
			continue;
		now = end.at_s;
		account(m, end.flow, now);
		release(m, end.flow);
		if (settle(m, now))
			return NAN;
	}
	if (m->heap_count && !(to_end && m->ended))
		now = until;
	for (uint32_t port = 0; port < m->ports; port++) {
		uint32_t flow = m->holder[port];

		if (flow != NONE)
			account(m, flow, now);
	}
	return now;
}

double fabric_in_order(struct fabric_flow *flows, uint32_t count, uint32_t ports,
		       const uint32_t *rank, uint32_t coflows, uint32_t *unfinished,
		       double *finished, double now, double until, int to_end)
{
	size_t n = count ? count : 1, p = 2 * (size_t)ports + 1;
	uint32_t *words = calloc(6 * n + 5 * p + coflows + 1, sizeof(*words));
	struct matching m = {
		.unfinished = unfinished,
		.finished = finished,
		.flows = flows,
		.ports = ports,
		.since_s = calloc(n, sizeof(double)),
		.heap = calloc(p, sizeof(struct end)),
		.heap_room = p,
		.waits = calloc(p, 1),
	};
	double stopped = NAN;

	if (words && m.since_s && m.heap && m.waits) {
		m.place = words;
		m.in_order = m.place + n;
		m.list = m.in_order + n;
		m.position = m.list + 2 * n;
		m.first = m.position + 2 * n;
		m.holder = m.first + p;
		m.from = m.holder + p;
		m.free = m.from + p;
		arrange(&m, count, rank, m.free + p, coflows);
		stopped = serve(&m, now, until, to_end);
	}
	free(words);
	free(m.since_s);
	free(m.heap);
	free(m.waits);
	return stopped;
}
