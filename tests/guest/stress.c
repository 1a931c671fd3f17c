// SPDX-License-Identifier: GPL-2.0-only
/*
 * Connects, tags, switches, disconnects, closes, dumps, deletes jobs and namespaces, unloads and
 * loads, all at once: stress SECONDS SEED MODULE.ko NAME...
 *
 * The NAMEs are the congestion controls that sockets are switched between. Every few seconds all
 * threads let go of everything, and then the module must unload, and load again. Prints how often
 * each thing was done, and fails when one never was or a thread got stuck.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/sock_diag.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>

#include "genl.h"
#include "peer.h"
#include "random.h"

#define SLOTS 48 /* sockets that all threads see */
#define FIRST_SEEN 512 /* lowest of their descriptors */
#define JOBS 6
#define ROUND_SECONDS 8
#define STUCK_SECONDS 150
#define MORE_SECONDS 300 /* at most, for what hasn't happened yet: machines differ in speed */

/* What is counted; each must have happened in the end. */
/* clang-format off */
#define COUNTED(X)                                                                      \
	X(connected) X(connecting) X(accepted) X(deferred) X(reconnected) X(listened)       \
	X(reset) X(repaired) X(sent) X(closed) X(switched) X(tagged) X(untagged) X(refused) \
	X(jobs_set) X(jobs_deleted) X(flows) X(sock_diag) X(cc_info) X(namespaces)          \
	X(parameters) X(busy) X(unloaded) X(crossed)
/* clang-format on */

#define ENUM(name) name,
#define NAME(name) #name,
enum count { COUNTED(ENUM) COUNTS };
static const char *const count_names[] = {COUNTED(NAME)};

static atomic_ulong counts[COUNTS];
static atomic_int slots[SLOTS];
static atomic_bool resting, over;
static pthread_barrier_t rest_begins, rest_ends;
static char **names;
static int n_names;
static const char *module_path;
static int home; /* the namespace all began in */
static double longest_rest; /* seconds until the module went */

#define fail(...)                                        \
	do {                                             \
		fprintf(stderr, "stress: " __VA_ARGS__); \
		fprintf(stderr, "\n");                   \
		_exit(1);                                \
	} while (0)

struct worker {
	void (*work)(struct worker *);
	const char *name;
	uint64_t random;
	atomic_ulong turns;
	struct genl genl; /* of the namespace the worker is in; fd -1: none */
	int listener; /* -1: none */
	struct sockaddr_in address;
};

static void count(enum count which)
{
	atomic_fetch_add_explicit(&counts[which], 1, memory_order_relaxed);
}

static bool one_in(struct worker *w, uint32_t n)
{
	return !below(&w->random, n);
}

/*
 * Put a socket where the others see it, and close the one that was there. Its descriptor is then
 * one of those that nothing else gets: who uses it while it is being closed hits a socket like it.
 */
static void publish(struct worker *w, int fd)
{
	int seen = fcntl(fd, F_DUPFD_CLOEXEC, FIRST_SEEN);
	int old = atomic_exchange(&slots[below(&w->random, SLOTS)], seen);

	if (seen < 0)
		fail("fcntl: %s", strerror(errno));
	close(fd);
	if (old < 0)
		return;
	if (one_in(w, 3)) {
		struct linger now = {.l_onoff = 1};

		setsockopt(old, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
		count(reset);
	}
	close(old);
	count(closed);
}

/* A socket that another thread may be closing at this moment. */
static int any(struct worker *w)
{
	return slots[below(&w->random, SLOTS)];
}

static bool choose(struct worker *w, int fd)
{
	const char *name = names[below(&w->random, n_names)];

	return !setsockopt(fd, SOL_TCP, TCP_CONGESTION, name, strlen(name));
}

static void loopback_up(void)
{
	struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP};
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	if (ioctl(fd, SIOCSIFFLAGS, &request))
		fail("lo: %s", strerror(errno));
	close(fd);
}

static bool write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);
	bool written = fd >= 0 && write(fd, text, strlen(text)) > 0;

	if (fd >= 0)
		close(fd);
	return written;
}

/*
 * A closed socket holds its congestion control until its peer has acknowledged and said its FIN
 * too, and a repaired peer vanishes without. How long the kernel waits for it in this namespace:
 * by default 60 s for the FIN, and eight retransmissions, 102 s and more, for the ACK.
 */
static void hurry_orphans(void)
{
	if (!write_file("/proc/sys/net/ipv4/tcp_fin_timeout", "5") ||
	    !write_file("/proc/sys/net/ipv4/tcp_orphan_retries", "4"))
		fail("/proc/sys/net/ipv4: %s", strerror(errno));
}

static bool open_genl(struct worker *w)
{
	if (w->genl.fd >= 0)
		return true;
	if (genl_open(&w->genl)) {
		w->genl.fd = -1; /* the module is away just now */
		return false;
	}
	return true;
}

static void close_genl(struct worker *w)
{
	if (w->genl.fd >= 0)
		close(w->genl.fd);
	w->genl.fd = -1;
}

/* Without the module's answer: it was unloaded, the next one has another number. */
static void looked_after(struct worker *w, int err)
{
	if (err == -EAGAIN || err == -EINTR)
		fail("%s: no answer from the kernel", w->name);
	if (err == -ENOENT || err == -EOPNOTSUPP)
		close_genl(w);
}

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

static void some_data(struct worker *w, int from, int to)
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

static void connect_one(struct worker *w)
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

static void connector(struct worker *w)
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
static void crosser(struct worker *w)
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

static void switcher(struct worker *w)
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

static void tagger(struct worker *w)
{
	uint32_t job = 1 + below(&w->random, JOBS);
	int err;

	if (!open_genl(w)) {
		usleep(1000);
		return;
	}
	switch (below(&w->random, 12)) {
	case 0:
		err = delete_job(&w->genl, job);
		if (!err)
			count(jobs_deleted);
		break;
	case 1:
	case 2:
		err = set_job(&w->genl, job, "stress", &lively);
		if (!err)
			count(jobs_set);
		break;
	case 3:
	case 4:
		err = tag(&w->genl, any(w), 0);
		if (!err)
			count(untagged);
		break;
	default:
		err = tag(&w->genl, any(w), job);
		count(err ? refused : tagged);
		break;
	}
	looked_after(w, err == -ENOENT ? 0 : err);
	if (err == -ENOENT && one_in(w, 50))
		close_genl(w); /* no such job, or no such family any more */
}

static void note_flow(const struct nlmsghdr *m, void *data)
{
	const struct nlattr *flow = message_attribute(m, MLTCP_A_FLOW);
	uint8_t tcp_state = *(const uint8_t *)(nested_attribute(flow, MLTCP_F_STATE) + 1);
	const char *name = (const char *)(nested_attribute(flow, MLTCP_F_CA_NAME) + 1);

	if (tcp_state < TCP_ESTABLISHED || tcp_state > TCP_CLOSING || strncmp(name, "mltcp", 5))
		fail("a flow that isn't one: state %u, %.16s", tcp_state, name);
	count(flows);
	(void)data;
}

/* As `ss -tin` does: calls get_info of every socket's congestion control. */
static void diagnose(void)
{
	struct {
		struct nlmsghdr header;
		struct inet_diag_req_v2 body;
	} r = {
		.header = {.nlmsg_len = sizeof(r),
			   .nlmsg_type = SOCK_DIAG_BY_FAMILY,
			   .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
		.body = {.sdiag_family = AF_INET,
			 .sdiag_protocol = IPPROTO_TCP,
			 .idiag_ext = 0xff,
			 .idiag_states = -1},
	};
	static __thread char buffer[BUFFER_BYTES];
	int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_SOCK_DIAG);
	bool done = send(fd, &r, sizeof(r), 0) < 0;

	while (!done) {
		const struct nlmsghdr *m = (void *)buffer;
		ssize_t left = recv(fd, buffer, sizeof(buffer), 0);

		if (left <= 0)
			break;
		for (; NLMSG_OK(m, left); m = NLMSG_NEXT(m, left))
			done |= m->nlmsg_type == NLMSG_DONE || m->nlmsg_type == NLMSG_ERROR;
		count(sock_diag);
	}
	close(fd);
}

static void dumper(struct worker *w)
{
	struct request r;
	int err;

	diagnose();
	if (!open_genl(w)) {
		usleep(1000);
		return;
	}
	err = dump(&w->genl, MLTCP_CMD_FLOW_GET, note_flow, NULL);
	if (!err)
		err = dump(&w->genl, MLTCP_CMD_JOB_GET, NULL, NULL);
	if (one_in(w, 4)) { /* one that isn't read to its end */
		begin(&r, w->genl.family, MLTCP_CMD_FLOW_GET, NLM_F_DUMP);
		send(w->genl.fd, &r, r.header.nlmsg_len, 0);
		close_genl(w);
	}
	looked_after(w, err);
	usleep(2000);
}

/* Namespaces with jobs, listeners, a default and live sockets, that go while these live on. */
static void emigrant(struct worker *w)
{
	const char *name = names[below(&w->random, n_names)];
	struct genl deaf;
	uint32_t job;
	int i;

	close_genl(w);
	if (w->listener >= 0)
		close(w->listener);
	w->listener = -1;
	if (unshare(CLONE_NEWNET))
		fail("unshare: %s", strerror(errno));
	loopback_up();
	hurry_orphans();
	/* The kernel leaks a reference when it refuses a restricted one, as dctcp and ours are, here. */
	if (!strncmp(name, "mltcp", 5) && !strstr(name, "dctcp"))
		write_file("/proc/sys/net/ipv4/tcp_congestion_control", name);
	count(namespaces);
	deaf.fd = -1;
	if (open_genl(w) && !genl_open(&deaf)) {
		int small = 1;

		setsockopt(deaf.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
		join_iterations(&deaf);
		for (job = 1; job <= JOBS; job++)
			set_job(&w->genl, job, "abroad", &lively);
	}
	for (i = 0; i < 10; i++) {
		connect_one(w);
		if (w->genl.fd >= 0)
			tag(&w->genl, any(w), 1 + below(&w->random, JOBS));
		some_data(w, any(w), any(w));
	}
	if (deaf.fd >= 0)
		close(deaf.fd);
	usleep(1000);
}

static void tuner(struct worker *w)
{
	static const char *const tuned[] = {"slope", "keep_max", "total_bytes", "gap_us",
					    "enabled"};
	char path[100], value[20];

	snprintf(path, sizeof(path), "/sys/module/tcp_mltcp/parameters/%s",
		 tuned[below(&w->random, 5)]);
	snprintf(value, sizeof(value), "%u", below(&w->random, 3) * 500);
	if (write_file(path, value))
		count(parameters);
	usleep(1000);
}

/* True when it was loaded and is no more. */
static bool unload(void)
{
	if (!syscall(SYS_delete_module, "tcp_mltcp", O_NONBLOCK)) {
		count(unloaded);
		return true;
	}
	if (errno == EAGAIN || errno == EBUSY)
		count(busy);
	return false;
}

static void load(void)
{
	int fd = open(module_path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		fail("%s: %s", module_path, strerror(errno));
	/* A socket that asked for the name may have loaded it, or be doing so. */
	if (syscall(SYS_finit_module, fd, "", 0) && errno != EEXIST && errno != EBUSY)
		fail("load: %s", strerror(errno));
	close(fd);
}

static void loader(struct worker *w)
{
	(void)w;
	if (unload())
		load();
	usleep(5000);
}

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
	for (i = 0; i < SLOTS; i++) {
		int fd = atomic_exchange(&slots[i], -1);

		if (fd >= 0)
			close(fd);
	}
	while (!unload()) {
		if (now() > began + STUCK_SECONDS)
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

int main(int argc, char **argv)
{
	pthread_t threads[WORKERS];
	double end, next;
	int i;

	if (argc < 5) {
		fprintf(stderr, "Usage: stress SECONDS SEED MODULE.ko NAME...\n");
		return 2;
	}
	end = now() + atof(argv[1]);
	module_path = argv[3];
	names = argv + 4;
	n_names = argc - 4;
	home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	pthread_barrier_init(&rest_begins, NULL, WORKERS + 1);
	pthread_barrier_init(&rest_ends, NULL, WORKERS + 1);
	for (i = 0; i < SLOTS; i++)
		slots[i] = -1;
	write_file("/proc/sys/net/ipv4/tcp_fastopen", "0x607"); /* without cookies */
	hurry_orphans();
	if (!peer_device())
		fail("no interface " PEER_DEVICE);
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
		for (next = now() + ROUND_SECONDS; now() < next;)
			usleep(100000);
		rest();
		for (i = 0; i < WORKERS; i++)
			if (workers[i].turns == turns[i])
				fail("%s got nowhere in %d s", workers[i].name, ROUND_SECONDS);
	}
	over = true;
	for (i = 0; i < WORKERS; i++)
		pthread_join(threads[i], NULL);
	for (i = 0; i < SLOTS; i++)
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
