// SPDX-License-Identifier: BSD-2-Clause
/*
 * Connections whose handshake takes another course than most: handshakes NAME, one of the scenarios
 * below. Fails unless the module does there what its base would, and forgets each socket that goes.
 */
#define _GNU_SOURCE
#include <sched.h>

#include "fail.h"
#include "genl.h"
#include "peer.h"

#define ROUNDS 50
#define PATIENCE_MS 60000

static struct genl g;
static struct peer peer;

static bool choose(int fd, const char *name)
{
	return !setsockopt(fd, SOL_TCP, TCP_CONGESTION, name, strlen(name));
}

static uint8_t state_of(int fd)
{
	struct tcp_info info = {};
	socklen_t length = sizeof(info);

	getsockopt(fd, SOL_TCP, TCP_INFO, &info, &length);
	return info.tcpi_state;
}

/* Not at once: what the raw socket sends is received in a softirq. */
static void await_state(int fd, uint8_t wanted)
{
	int i;

	for (i = 0; i < PATIENCE_MS && state_of(fd) != wanted; i++)
		usleep(1000);
	if (state_of(fd) != wanted)
		fail("the socket is in state %u, not in %u", state_of(fd), wanted);
}

static void hear(struct segment *segment, uint8_t flags)
{
	do
		if (!peer_hears(&peer, segment))
			fail("the peer hears nothing with flags %x", flags);
	while ((segment->flags & flags) != flags);
}

static void set_number(const char *path, const char *value)
{
	int fd = open(path, O_WRONLY);

	if (fd < 0 || write(fd, value, strlen(value)) < 0)
		fail("%s: %s", path, strerror(errno));
	close(fd);
}

static void count_one(const struct nlmsghdr *m, void *data)
{
	(void)m;
	++*(int *)data;
}

static int flows(void)
{
	int n = 0, err = dump(&g, MLTCP_CMD_FLOW_GET, count_one, &n);

	if (err)
		fail("flows: %s", strerror(-err));
	return n;
}

static void await_no_flows(void)
{
	int i;

	for (i = 0; i < PATIENCE_MS && flows(); i++)
		usleep(1000);
	if (flows())
		fail("%d flows are left, of sockets that are gone", flows());
}

static int connecting(const char *before, const char *after, struct segment *syn)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	struct sockaddr_in to = peer_address(&peer);

	if (before && !choose(fd, before))
		fail("no %s", before);
	if (!connect(fd, (void *)&to, sizeof(to)) || errno != EINPROGRESS)
		fail("connect: %s", strerror(errno));
	hear(syn, TH_SYN);
	if (after && !choose(fd, after))
		fail("no %s", after);
	return fd;
}

/*
 * Crossed SYNs, and the application closes before the connection is established: since 6.13 the
 * kernel calls no release then.
 */
static void crossed(const char *before, const char *after)
{
	struct segment syn, answer;
	int fd = connecting(before, after, &syn), err;

	if (tag(&g, fd, 1) != -ENOTCONN)
		fail("a connecting socket was tagged");
	peer.next = 1000;
	peer_says(&peer, TH_SYN, 0, 0, 0);
	hear(&answer, TH_SYN | TH_ACK);
	await_state(fd, TCP_SYN_RECV);
	err = tag(&g, fd, 1);
	if (err && err != -ENOTCONN)
		fail("tagging in SYN_RECV: %s", strerror(-err));
	close(fd);
	peer_says(&peer, TH_ACK, syn.sequence + 1, 0, 0);
	flows();
	peer_says(&peer, TH_RST | TH_ACK, syn.sequence + 1, 0, 0);
	/* Another one has its memory soon. */
	fd = socket(AF_INET, SOCK_STREAM, 0);
	flows();
	close(fd);
}

static void crossed_syns(void)
{
	int i;

	for (i = 0; i < ROUNDS; i++) {
		crossed("mltcp", NULL);
		crossed("mltcp_dctcp", NULL);
		crossed(NULL, "mltcp_cubic");
		crossed("mltcp", "mltcp_dctcp");
	}
	await_no_flows();
}

/*
 * DCTCP tells its peer of each mark, and of no more: where a data segment came without a mark, its
 * acknowledgement says nothing, though the peer hasn't reduced its window (RFC 8257, 3.2).
 */
static void echo(const char *before, const char *after)
{
	struct segment syn, ack;
	int fd, i;

	set_number("/proc/sys/net/ipv4/tcp_ecn", "1");
	fd = connecting(before, after, &syn);
	peer.next = 1000;
	peer_says(&peer, TH_SYN | TH_ACK | TH_ECE, syn.sequence + 1, 0, 0);
	await_state(fd, TCP_ESTABLISHED);
	hear(&ack, TH_ACK);
	peer_says(&peer, TH_ACK | TH_PUSH, syn.sequence + 1, 10, ECT0);
	hear(&ack, TH_ACK);
	if (ack.flags & TH_ECE)
		fail("%s echoes a mark that wasn't", after ? after : before);
	peer_says(&peer, TH_ACK | TH_PUSH, syn.sequence + 1, 10, CE);
	do
		hear(&ack, TH_ACK);
	while (ack.acknowledged != peer.next);
	if (!(ack.flags & TH_ECE))
		fail("%s doesn't echo a mark", after ? after : before);
	for (i = 0; i < 4; i++) {
		peer_says(&peer, TH_ACK | TH_PUSH, syn.sequence + 1, 10, ECT0);
		do
			hear(&ack, TH_ACK);
		while (ack.acknowledged != peer.next);
	}
	if (ack.flags & TH_ECE)
		fail("%s goes on echoing a mark", after ? after : before);
	peer_says(&peer, TH_RST | TH_ACK, syn.sequence + 1, 0, 0);
	close(fd);
	set_number("/proc/sys/net/ipv4/tcp_ecn", "2");
}

static void receives_only(void)
{
	echo("dctcp", NULL); /* what is to be the same */
	echo(NULL, "dctcp");
	echo("mltcp_dctcp", NULL);
	echo(NULL, "mltcp_dctcp");
	await_no_flows();
}

static const struct {
	const char *name;
	void (*run)(void);
} scenarios[] = {
	{"crossed-syns", crossed_syns},
	{"receives-only", receives_only},
};

int main(int argc, char **argv)
{
	size_t i;

	if (argc == 2 && genl_open(&g))
		fail("no family mltcp: is the module loaded?");
	for (i = 0; argc == 2 && i < sizeof(scenarios) / sizeof(*scenarios); i++) {
		if (strcmp(argv[1], scenarios[i].name))
			continue;
		if (unshare(CLONE_NEWNET) || !peer_device() || !peer_open(&peer, 4999))
			fail("no peer: %s", strerror(errno));
		set_number("/proc/sys/net/ipv4/tcp_orphan_retries", "1");
		close(g.fd);
		if (genl_open(&g) || set_job(&g, 1, "handshakes", &lively))
			fail("no job");
		scenarios[i].run();
		return 0;
	}
	fprintf(stderr, "Usage: handshakes crossed-syns|receives-only\n");
	return 2;
}
