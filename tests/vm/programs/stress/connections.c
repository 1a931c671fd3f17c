// SPDX-License-Identifier: BSD-2-Clause
/* Connections: opened, switched, disconnected, repaired, crossed. */
#include "stress.h"

#include <linux/inet_diag.h>

#include "../peer.h"

static bool need_listener(struct worker *w)
{
	socklen_t length = sizeof(w->address);
	int all = 5;

	if (w->listener >= 0 && !one_in(w, 20))
		return true;
	if (w->listener >= 0)
		close(w->listener);
	w->listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	w->address.sin_family = AF_INET;
	w->address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	w->address.sin_port = 0;
	if (one_in(w, 2))
		choose(w, w->listener); /* which its children have, then */
	setsockopt(w->listener, SOL_TCP, TCP_FASTOPEN, &all, sizeof(all));
	if (bind(w->listener, (void *)&w->address, length) || listen(w->listener, 16))
		fail("listen: %s", strerror(errno));
	getsockname(w->listener, (void *)&w->address, &length);
	if (one_in(w, 2))
		choose(w, w->listener);
	return true;
}

void some_data(struct worker *w, int from, int to)
{
	static char data[1 << 16];
	char sink[4096];
	int n = below(&w->random, 8);

	while (n--) {
		if (send(from, data, below(&w->random, sizeof(data)), MSG_NOSIGNAL | MSG_DONTWAIT) >
		    0)
			count(sent);
		while (to >= 0 && recv(to, sink, sizeof(sink), MSG_DONTWAIT) > 0)
			;
	}
}

/* The same socket again: to the listener, or as a listener. */
static void disconnect(struct worker *w, int fd)
{
	struct sockaddr none = {.sa_family = AF_UNSPEC};

	if (connect(fd, &none, sizeof(none)))
		return;
	if (one_in(w, 3)) {
		if (!listen(fd, 4))
			count(listened);
	} else if (!connect(fd, (void *)&w->address, sizeof(w->address)) || errno == EINPROGRESS) {
		count(reconnected);
		some_data(w, fd, -1);
	}
}

static void repair(struct worker *w, int fd)
{
	int on = 1, off = 0;

	if (setsockopt(fd, SOL_TCP, TCP_REPAIR, &on, sizeof(on)))
		return;
	choose(w, fd);
	if (one_in(w, 2))
		setsockopt(fd, SOL_TCP, TCP_REPAIR, &off, sizeof(off));
	count(repaired); /* else it will vanish at close without a word to its peer */
}

/* Of a connection that is there for certain, unlike those that all threads see. */
static void tag_and_untag(struct worker *w, int fd)
{
	int err;

	if (!open_genl(w))
		return;
	err = tag(&w->genl, fd, 1 + below(&w->random, JOBS));
	if (!err) {
		count(tagged);
		err = tag(&w->genl, fd, 0);
		if (!err)
			count(untagged);
	}
	looked_after(w, err);
}

void connect_one(struct worker *w)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), peer, one = 1;

	if (fd < 0 || !need_listener(w))
		fail("socket: %s", strerror(errno));
	if (one_in(w, 2))
		choose(w, fd);
	if (one_in(w, 4))
		setsockopt(fd, SOL_TCP, TCP_FASTOPEN_CONNECT, &one, sizeof(one));
	if (connect(fd, (void *)&w->address, sizeof(w->address)) && errno != EINPROGRESS)
		fail("connect: %s", strerror(errno));
	if (one_in(w, 2)) {
		struct tcp_info info = {};
		socklen_t length = sizeof(info);

		getsockopt(fd, SOL_TCP, TCP_INFO, &info, &length);
		if (choose(w, fd) && info.tcpi_state == TCP_SYN_SENT)
			count(deferred);
	}
	some_data(w, fd, -1);
	count(connected);
	if (one_in(w, 8)) { /* never answered */
		struct sockaddr_in nowhere = w->address;
		int lost = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

		nowhere.sin_addr.s_addr = htonl(0x7f000001);
		nowhere.sin_port = htons(1);
		choose(w, lost);
		connect(lost, (void *)&nowhere, sizeof(nowhere));
		choose(w, lost);
		publish(w, lost);
		count(connecting);
	}
	peer = accept4(w->listener, NULL, NULL, SOCK_NONBLOCK);
	if (peer >= 0) {
		count(accepted);
		if (one_in(w, 2))
			choose(w, peer);
		some_data(w, fd, peer);
		if (one_in(w, 4))
			tag_and_untag(w, fd);
		some_data(w, peer, fd);
		if (one_in(w, 4))
			shutdown(peer, below(&w->random, 3));
		if (one_in(w, 2))
			publish(w, peer);
		else
			close(peer);
	}
	if (one_in(w, 3))
		disconnect(w, fd);
	if (one_in(w, 6))
		repair(w, fd);
	publish(w, fd);
}

void connector(struct worker *w)
{
	int n = 10;

	while (n--)
		connect_one(w);
	some_data(w, any(w), any(w));
}

static void tag_any_job(struct worker *w, int fd)
{
	if (open_genl(w))
		looked_after(w, tag(&w->genl, fd, 1 + below(&w->random, JOBS)));
}

/*
 * Both ends begin, the peer of peer.h being the other: the socket is in SYN_SENT, in SYN_RECV, and
 * then perhaps never established. Others may see it, and use it, all the while.
 */
void crosser(struct worker *w)
{
	static struct peer peer;
	struct sockaddr_in to;
	struct segment syn;
	int fd, n = 10;

	if ((!peer.port && !peer_open(&peer, 4999)) || !need_listener(w))
		fail("no peer: %s", strerror(errno));
	to = peer_address(&peer);
	while (n--) {
		fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		if (one_in(w, 2))
			choose(w, fd);
		connect(fd, (void *)&to, sizeof(to));
		do
			if (!peer_hears(&peer, &syn))
				fail("no SYN comes");
		while ((syn.flags & (TH_SYN | TH_ACK)) != TH_SYN);
		if (one_in(w, 2))
			choose(w, fd);
		tag_any_job(w, fd);
		peer.next = 1000;
		peer_says(&peer, TH_SYN, 0, 0, 0);
		tag_any_job(w, fd);
		if (one_in(w, 4))
			disconnect(w, fd);
		if (one_in(w, 2)) {
			close(fd);
			fd = -1;
		}
		if (one_in(w, 2)) /* its last chance to make state: of what isn't established */
			peer_says(&peer, TH_ACK, syn.sequence + 1, below(&w->random, 3), 0);
		peer_says(&peer, TH_RST | TH_ACK, syn.sequence + 1, 0, 0);
		if (fd >= 0)
			publish(w, fd);
		count(crossed);
	}
}

void switcher(struct worker *w)
{
	union tcp_cc_info info;
	socklen_t length = sizeof(info);

	if (choose(w, any(w)))
		count(switched);
	if (!getsockopt(any(w), SOL_TCP, TCP_CC_INFO, &info, &length))
		count(cc_info);
	if (one_in(w, 4))
		disconnect(w, any(w));
	some_data(w, any(w), any(w));
}
