// SPDX-License-Identifier: BSD-2-Clause
/*
 * Measures many tagged flows in one network namespace: bench_flows [FLOWS [REPETITIONS]]
 *
 * How long it takes to tag them all and to dump them all, and how much memory each costs beyond its
 * socket. Needs the module loaded, and "slab_nomerge" on the kernel's command line for the memory.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "fail.h"
#include "genl.h"

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

/* Bytes of the pages of a slab cache of the kernel's. */
static long slab_bytes(const char *wanted)
{
	FILE *file = fopen("/proc/slabinfo", "r");
	long slabs, pages;
	char line[300], name[100];

	if (!file)
		fail("/proc/slabinfo: %s", strerror(errno));
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line,
			   "%99s %*d %*d %*d %*d %ld : tunables %*d %*d %*d : slabdata %*d %ld",
			   name, &pages, &slabs) == 3 &&
		    !strcmp(name, wanted)) {
			fclose(file);
			return slabs * pages * getpagesize();
		}
	}
	fail("no slab %s; boot with slab_nomerge", wanted);
}

static void count_flow(const struct nlmsghdr *m, void *data)
{
	if (get_u32(nested_attribute(message_attribute(m, MLTCP_A_FLOW), MLTCP_F_JOB)))
		++*(int *)data;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void print(const char *what, double *seconds, int n)
{
	qsort(seconds, n, sizeof(*seconds), compare);
	printf("%-24s %8.3f s   (%.3f to %.3f s in %d repetitions)\n", what, seconds[n / 2],
	       seconds[0], seconds[n - 1], n);
}

int main(int argc, char **argv)
{
	int flows = argc > 1 ? atoi(argv[1]) : 10000, repetitions = argc > 2 ? atoi(argv[2]) : 5;
	struct sockaddr_in address = {.sin_family = AF_INET};
	struct rlimit limit = {2 * flows + 100, 2 * flows + 100};
	socklen_t length = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0), i, round, found;
	int *fds = calloc(flows, sizeof(*fds));
	double tagged[repetitions], dumped[repetitions], begun;
	long state, table;
	struct genl g;

	if (setrlimit(RLIMIT_NOFILE, &limit))
		fail("setrlimit: %s", strerror(errno));
	if (genl_open(&g) || set_job(&g, 1, "one", &lively) || set_job(&g, 2, "two", &lively))
		fail("no jobs: is the module loaded?");
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(listener, (void *)&address, length) || listen(listener, 100) ||
	    getsockname(listener, (void *)&address, &length))
		fail("no listener: %s", strerror(errno));
	state = slab_bytes("mltcp_sock");
	table = slab_bytes("radix_tree_node");
	for (i = 0; i < flows; i++) {
		fds[i] = socket(AF_INET, SOCK_STREAM, 0);
		if (setsockopt(fds[i], SOL_TCP, TCP_CONGESTION, "mltcp", 5) ||
		    connect(fds[i], (void *)&address, length) || accept(listener, NULL, NULL) < 0)
			fail("connection %d: %s", i, strerror(errno));
	}
	state = slab_bytes("mltcp_sock") - state;
	table = slab_bytes("radix_tree_node") - table;
	for (round = 0; round < repetitions; round++) {
		begun = now();
		for (i = 0; i < flows; i++)
			if (tag(&g, fds[i], 1 + round % 2))
				fail("socket %d can't be tagged", i);
		tagged[round] = now() - begun;
		found = 0;
		begun = now();
		if (dump(&g, MLTCP_CMD_FLOW_GET, count_flow, &found) || found != flows)
			fail("%d flows dumped", found);
		dumped[round] = now() - begun;
	}
	printf("%d flows\n", flows);
	print("tagged one by one in", tagged, repetitions);
	print("dumped in", dumped, repetitions);
	/* Other users of the table's kind of node make its share an upper bound. */
	printf("%-24s %8ld bytes (state %ld, table %ld)\n", "memory of each",
	       (state + table) / flows, state / flows, table / flows);
	return 0;
}
