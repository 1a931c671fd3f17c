// SPDX-License-Identifier: BSD-2-Clause
/*
 * Connects, tags, switches, disconnects, closes, dumps, deletes jobs and namespaces, unloads and
 * loads, all at once: stress SECONDS SEED SOCKETS MODULE.ko NAME...
 *
 * So many SOCKETS are open at a time; the fewer, the more often threads meet at one, and the more
 * often the module is in nobody's use and can be unloaded.
 *
 * The NAMEs are the congestion controls that sockets are switched between. Every few seconds all
 * threads let go of everything, and then the module must unload, and load again. Prints how often
 * each thing was done, and fails when one never was or a thread got stuck.
 */
#include "stress.h"

#include <pthread.h>
#include <sys/resource.h>
#include <time.h>

#include "../peer.h"

#define ROUND_SECONDS 8 /* for each hundred sockets */

/* Counted in naps, for the clock leaps where the whole VM was stopped. */
#define STUCK_SECONDS 150
#define MORE_SECONDS 300 /* at most, for what hasn't happened yet: machines differ in speed */

#define NAME(name) #name,
static const char *const count_names[] = {COUNTED(NAME)};

static atomic_bool resting, over;
static pthread_barrier_t rest_begins, rest_ends;
static int home; /* the namespace all began in */
static double longest_rest; /* seconds until the module went */

static void let_go(struct worker *w)
{
	close_genl(w);
	if (w->listener >= 0)
		close(w->listener);
	w->listener = -1;
	/* The namespace goes too, if it was one's own. */
	if (w->work == emigrant && setns(home, CLONE_NEWNET))
		fail("setns: %s", strerror(errno));
}

static void *run(void *argument)
{
	struct worker *w = argument;

	/* Not the others' descriptors' copies: slots are shared, the namespace is one's own. */
	while (!over) {
		if (resting) {
			let_go(w);
			pthread_barrier_wait(&rest_begins);
			pthread_barrier_wait(&rest_ends);
			continue;
		}
		w->work(w);
		atomic_fetch_add(&w->turns, 1);
	}
	return NULL;
}

static struct worker workers[] = {
	{.work = connector, .name = "connector"}, {.work = connector, .name = "connector"},
	{.work = emigrant, .name = "emigrant"},	  {.work = switcher, .name = "switcher"},
	{.work = tagger, .name = "tagger"},	  {.work = tagger, .name = "tagger"},
	{.work = dumper, .name = "dumper"},	  {.work = tuner, .name = "tuner"},
	{.work = loader, .name = "loader"},	  {.work = crosser, .name = "crosser"},
	{.work = ruler, .name = "ruler"},
};

#define WORKERS ((int)(sizeof(workers) / sizeof(*workers)))

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

/* With everything let go of, the module must go, as soon as the kernel has done its part. */
static void rest(void)
{
	double began = now();
	int i;

	resting = true;
	pthread_barrier_wait(&rest_begins);
	for (i = 0; i < n_slots; i++) {
		int fd = atomic_exchange(&slots[i], -1);

		if (fd >= 0)
			close(fd);
	}
	for (i = 0; !unload(); i++) {
		if (i > STUCK_SECONDS * 50)
			fail("the module doesn't go: %s", strerror(errno));
		usleep(20000);
	}
	if (now() - began > longest_rest)
		longest_rest = now() - began;
	if (!access("/sys/kernel/slab/mltcp_sock", F_OK))
		fail("its slab is left");
	load();
	resting = false;
	pthread_barrier_wait(&rest_ends);
}

/* What hasn't happened; NULL: all has. */
static const char *missing(void)
{
	int i;

	for (i = 0; i < COUNTS; i++)
		if (!counts[i])
			return count_names[i];
	return NULL;
}

/* Those of slots, and as many below FIRST_SEEN. */
static void allow_descriptors(void)
{
	struct rlimit limit = {.rlim_cur = 4096, .rlim_max = 4096};

	if (setrlimit(RLIMIT_NOFILE, &limit))
		fail("setrlimit: %s", strerror(errno));
}

int main(int argc, char **argv)
{
	pthread_t threads[WORKERS];
	double end;
	int i, round_seconds;

	n_slots = argc < 6 ? 0 : atoi(argv[3]);
	if (n_slots < 1 || n_slots > SLOTS_MAX) {
		fprintf(stderr, "Usage: stress SECONDS SEED SOCKETS MODULE.ko NAME...\n");
		return 2;
	}
	end = now() + atof(argv[1]);
	round_seconds = ROUND_SECONDS * (1 + n_slots / 100);
	module_path = argv[4];
	names = argv + 5;
	n_names = argc - 5;
	allow_descriptors();
	home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	pthread_barrier_init(&rest_begins, NULL, WORKERS + 1);
	pthread_barrier_init(&rest_ends, NULL, WORKERS + 1);
	for (i = 0; i < n_slots; i++)
		slots[i] = -1;
	write_file("/proc/sys/net/ipv4/tcp_fastopen", "0x607"); /* without cookies */
	hurry_orphans();
	if (!peer_device())
		fail("no interface " PEER_DEVICE);
	enter_cgroup();
	load();
	for (i = 0; i < WORKERS; i++) {
		workers[i].random = strtoull(argv[2], NULL, 0) * WORKERS + i;
		workers[i].genl.fd = workers[i].listener = -1;
		pthread_create(&threads[i], NULL, run, &workers[i]);
	}
	while (now() < end || (missing() && now() < end + MORE_SECONDS)) {
		unsigned long turns[WORKERS];

		for (i = 0; i < WORKERS; i++)
			turns[i] = workers[i].turns;
		for (i = 0; i < round_seconds * 10; i++)
			usleep(100000);
		rest();
		for (i = 0; i < WORKERS; i++)
			if (workers[i].turns == turns[i])
				fail("%s got nowhere in %d s", workers[i].name, round_seconds);
	}
	over = true;
	for (i = 0; i < WORKERS; i++)
		pthread_join(threads[i], NULL);
	for (i = 0; i < n_slots; i++)
		if (slots[i] >= 0)
			close(slots[i]);
	for (i = 0; i < COUNTS; i++)
		printf("%s%lu %s", i ? ", " : "", counts[i], count_names[i]);
	printf("; the module went within %.1f s\n", longest_rest);
	fflush(stdout);
	if (missing())
		fail("%s never happened", missing());
	return 0;
}
