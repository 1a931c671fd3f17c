// SPDX-License-Identifier: BSD-2-Clause
/*
 * Measures connections that carry little, on loopback: short_flows WAY ROUNDS COUNT NAME...
 *
 * WAY connect: connect, send 1 kB, close; WAY request: a request of 1 kB and its answer of 100
 * bytes on one connection, 2 ms after the one before. In each round every congestion control named
 * takes COUNT of them at both ends. Prints each name with the median, the least and the most of its
 * rounds, nanoseconds for one: in a VM in virtual time, instructions. Pauses don't count.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "fail.h"

#define REQUEST 1000
#define ANSWER 100

static struct sockaddr_in address = {.sin_family = AF_INET};
static socklen_t length = sizeof(address);

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static int a_socket(const char *name)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0), yes = 1;

	if (fd < 0 || setsockopt(fd, SOL_TCP, TCP_CONGESTION, name, strlen(name)) ||
	    setsockopt(fd, SOL_TCP, TCP_NODELAY, &yes, sizeof(yes)))
		fail("no socket with %s: %s", name, strerror(errno));
	return fd;
}

static int listen_with(const char *name)
{
	int fd = a_socket(name);

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	address.sin_port = 0;
	if (bind(fd, (void *)&address, length) || listen(fd, 10) ||
	    getsockname(fd, (void *)&address, &length))
		fail("no listener: %s", strerror(errno));
	return fd;
}

static void pass(int from, int to, int size)
{
	char buffer[REQUEST] = {};

	if (send(from, buffer, size, 0) != size || recv(to, buffer, size, MSG_WAITALL) != size)
		fail("%d bytes don't pass: %s", size, strerror(errno));
}

/* A connection's two ends. */
static void open_one(int listener, const char *name, int ends[2])
{
	ends[0] = a_socket(name);
	if (connect(ends[0], (void *)&address, length))
		fail("no connection: %s", strerror(errno));
	ends[1] = accept(listener, NULL, NULL);
	if (ends[1] < 0)
		fail("no connection: %s", strerror(errno));
}

static void close_both(const int ends[2])
{
	char end;

	close(ends[0]);
	if (recv(ends[1], &end, 1, 0))
		fail("the connection doesn't end");
	close(ends[1]);
}

static double connections(const char *name, int count)
{
	int listener = listen_with(name), ends[2], i;
	double begun = now_ns(), took;

	for (i = 0; i < count; i++) {
		open_one(listener, name, ends);
		pass(ends[0], ends[1], REQUEST);
		close_both(ends);
	}
	took = now_ns() - begun;
	close(listener);
	return took / count;
}

static double requests(const char *name, int count)
{
	const struct timespec pause = {.tv_nsec = 2000000};
	int listener = listen_with(name), ends[2], i;
	double took = 0, begun;

	open_one(listener, name, ends);
	for (i = 0; i < count; i++) {
		nanosleep(&pause, NULL);
		begun = now_ns();
		pass(ends[0], ends[1], REQUEST);
		pass(ends[1], ends[0], ANSWER);
		took += now_ns() - begun;
	}
	close_both(ends);
	close(listener);
	return took / count;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	int rounds, count, names = argc - 4, round, i;
	double (*way)(const char *name, int count), *found;

	if (names < 1)
		fail("say a way, rounds, a count and congestion controls");
	way = strcmp(argv[1], "connect") ? requests : connections;
	rounds = atoi(argv[2]);
	count = atoi(argv[3]);
	found = calloc(names * rounds, sizeof(*found));
	for (round = 0; round < rounds; round++)
		for (i = 0; i < names; i++)
			found[(i + round) % names * rounds + round] =
				way(argv[4 + (i + round) % names], count);
	for (i = 0; i < names; i++) {
		double *of = found + i * rounds;

		qsort(of, rounds, sizeof(*of), compare);
		printf("%s %.1f %.1f %.1f\n", argv[4 + i], of[rounds / 2], of[0], of[rounds - 1]);
	}
	return 0;
}
