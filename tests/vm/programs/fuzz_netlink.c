// SPDX-License-Identifier: BSD-2-Clause
/*
 * Sends the family "mltcp" messages of random and mutated attributes: fuzz_netlink SEED COUNT USER
 *
 * Part of the messages are right, or nearly so, to get past the checks. The kernel must answer each,
 * and the module must work as ever afterwards. With USER (a number) other than 0 the messages come
 * from that user, some over a socket that root opened, and none may change anything. Prints how
 * many messages got which answer.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "genl.h"
#include "random.h"

#define BATCH 16 /* messages per system call, at most */
#define PAIRS 8
#define FDS 64
#define IDS 50 /* ids that most messages choose from; now and then it is any */

static const char *const controls[] = {"mltcp", "mltcp_reno", "mltcp_cubic", "mltcp_dctcp", "reno"};

static uint64_t state;
static int fds[FDS];
static int n_fds;
static uint64_t cgroup; /* the root's id, which the last of these is of */
static int clients[PAIRS], peers[PAIRS];
static unsigned long answers[256]; /* by error */

#define check(condition, ...)                                                      \
	do {                                                                       \
		if (!(condition)) {                                                \
			fprintf(stderr, "fuzz_netlink: " __VA_ARGS__);             \
			fprintf(stderr, " (%s, line %d)\n", #condition, __LINE__); \
			exit(1);                                                   \
		}                                                                  \
	} while (0)

static bool one_in(uint32_t n)
{
	return !below(&state, n);
}

static void keep(int fd)
{
	check(fd >= 0 && n_fds < FDS, "no descriptor");
	fds[n_fds++] = fd;
}

/* Sockets that can be tagged, and descriptors that can't. */
static void open_descriptors(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	socklen_t length = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	int pipes[2], unix_pair[2], i;
	struct stat folder;

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	check(!bind(listener, (void *)&address, length) && !listen(listener, PAIRS), "no listener");
	getsockname(listener, (void *)&address, &length);
	for (i = 0; i < PAIRS; i++) {
		const char *name = controls[i % 5];

		clients[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		check(!setsockopt(clients[i], SOL_TCP, TCP_CONGESTION, name, strlen(name)),
		      "no congestion control %s", name);
		connect(clients[i], (void *)&address, length);
		peers[i] = accept(listener, NULL, NULL);
		check(peers[i] >= 0, "no connection");
		fcntl(peers[i], F_SETFL, O_NONBLOCK);
		keep(clients[i]);
	}
	check(!pipe(pipes) && !socketpair(AF_UNIX, SOCK_STREAM, 0, unix_pair), "no pipes");
	keep(listener);
	keep(pipes[0]);
	keep(unix_pair[0]);
	keep(socket(AF_INET, SOCK_STREAM, 0));
	keep(socket(AF_INET, SOCK_DGRAM, 0));
	keep(socket(AF_INET6, SOCK_STREAM, 0));
	keep(socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE));
	keep(open("/dev/null", O_RDWR));
	keep(open("/", O_PATH));
	keep(open("/sys/fs/cgroup", O_RDONLY | O_DIRECTORY));
	check(!fstat(fds[n_fds - 1], &folder), "no cgroup");
	cgroup = folder.st_ino;
}

/* ACKs, so that the tagged flows live; and another congestion control for one of them. */
static void some_traffic(void)
{
	const char *name = controls[below(&state, 5)];
	char data[4096] = {};
	int i;

	for (i = 0; i < PAIRS; i++) {
		if (send(clients[i], data, below(&state, sizeof(data)), MSG_NOSIGNAL) < 0)
			check(errno == EAGAIN, "send: %s", strerror(errno));
		while (recv(peers[i], data, sizeof(data), 0) > 0)
			;
	}
	setsockopt(clients[below(&state, PAIRS)], SOL_TCP, TCP_CONGESTION, name, strlen(name));
}

static uint32_t some_u32(void)
{
	static const uint32_t edges[] = {0,
					 1,
					 2,
					 MLTCP_ONE - 1,
					 MLTCP_ONE,
					 MLTCP_ONE + 1,
					 MLTCP_GAIN_MAX,
					 MLTCP_GAIN_MAX + 1,
					 MLTCP_MECHANISMS_DEFAULT,
					 MLTCP_MECHANISMS_DEFAULT | 1,
					 INT32_MAX,
					 1U << 31,
					 UINT32_MAX};

	return one_in(3) ? next_random(&state)
			 : edges[below(&state, sizeof(edges) / sizeof(*edges))];
}

static struct mltcp_params some_params(void)
{
	struct mltcp_params params = lively;
	uint32_t *words = &params.slope;

	params.burst_bytes = next_random(&state) >> below(&state, 64);
	params.gap_ns = next_random(&state) >> below(&state, 64);
	while (one_in(2))
		words[below(&state, 5)] = some_u32();
	return params;
}

static void put_random(struct request *r, uint16_t type, size_t longest)
{
	unsigned char data[256];
	size_t length = below(&state, longest + 1), i;

	for (i = 0; i < length; i++)
		data[i] = next_random(&state);
	put(r, type, data, length);
}

static void put_id(struct request *r)
{
	put_u32(r, MLTCP_A_JOB_ID, one_in(20) ? some_u32() : 1 + below(&state, IDS));
}

static void put_name(struct request *r)
{
	char name[100];
	size_t length = below(&state, one_in(4) ? 100 : 20), i;

	for (i = 0; i < length; i++)
		name[i] = one_in(50) ? next_random(&state) : 'a' + below(&state, 26);
	if (length && !one_in(10))
		name[length - 1] = '\0';
	put(r, MLTCP_A_JOB_NAME, name, length);
}

/* Most of them whole; else some of the attributes, also twice or unheard of. */
static void put_some_params(struct request *r)
{
	struct mltcp_params params = some_params();
	struct nlattr *nest;
	int n = below(&state, 14);

	if (!one_in(10)) {
		put_params(r, &params);
		return;
	}
	nest = begin_nested(r, MLTCP_A_JOB_PARAMS);
	while (n--) {
		unsigned long long value = next_random(&state);

		put(r, below(&state, MLTCP_P_COUNT + 2), &value, one_in(3) ? below(&state, 9) : 4);
	}
	if (!one_in(5))
		end_nested(r, nest);
}

static void put_fd(struct request *r)
{
	put_u32(r, MLTCP_A_FD, one_in(10) ? some_u32() : (uint32_t)fds[below(&state, n_fds)]);
}

static void put_cgroup(struct request *r)
{
	uint64_t id = one_in(5) ? next_random(&state) : cgroup;

	put(r, MLTCP_A_CGROUP, &id, sizeof(id));
}

/* Ports that leave some connections, or all, alone. */
static void put_ports(struct request *r)
{
	uint16_t ports[MLTCP_RULE_PORTS], lowest = one_in(3) ? next_random(&state) : 0;
	int i;

	for (i = 0; i < MLTCP_RULE_PORTS; i++)
		ports[i] = next_random(&state);
	put(r, MLTCP_A_LOWEST_PORT, &lowest, sizeof(lowest));
	put(r, MLTCP_A_NOT_PORTS, ports, sizeof(ports));
}

static void put_type(struct request *r, uint16_t type)
{
	switch (type) {
	case MLTCP_A_JOB_ID:
		return put_id(r);
	case MLTCP_A_JOB_NAME:
		return put_name(r);
	case MLTCP_A_JOB_PARAMS:
		return put_some_params(r);
	case MLTCP_A_FD:
		return put_fd(r);
	case MLTCP_A_CGROUP:
		return put_cgroup(r);
	default:
		return put_random(r, type, 60);
	}
}

/* What the command wants, in this order. */
static void put_wanted(struct request *r)
{
	switch (r->generic.cmd) {
	case MLTCP_CMD_JOB_SET:
		put_id(r);
		put_name(r);
		put_some_params(r);
		break;
	case MLTCP_CMD_TAG:
		put_fd(r);
		put_id(r);
		break;
	case MLTCP_CMD_UNTAG:
		put_fd(r);
		break;
	case MLTCP_CMD_RULE_SET:
		put_u32(r, MLTCP_A_FD, one_in(5) ? fds[below(&state, n_fds)] : fds[n_fds - 1]);
		put_id(r);
		if (one_in(2))
			put_ports(r);
		break;
	case MLTCP_CMD_RULE_DEL:
		put_cgroup(r);
		break;
	case MLTCP_CMD_JOB_DEL:
		put_id(r);
	}
}

static void put_anything(struct request *r)
{
	int n = below(&state, 7);

	while (n--) {
		uint16_t type = 1 + below(&state, MLTCP_ATTRS);

		if (one_in(20))
			type = next_random(&state);
		if (one_in(5))
			put_random(r, type, 60);
		else
			put_type(r, type);
	}
}

/* Bytes, and lengths of attributes, that were right. */
static void mutate(struct request *r)
{
	uint32_t size = r->header.nlmsg_len - NLMSG_LENGTH(GENL_HDRLEN);

	do {
		if (size && one_in(2))
			r->attributes[below(&state, size)] ^= 1 << below(&state, 8);
		else if (size > 8 && one_in(2))
			*(uint16_t *)(r->attributes + (below(&state, size - 4) & ~3)) =
				below(&state, 100);
		else
			r->header.nlmsg_len =
				NLMSG_LENGTH(0) + below(&state, size + GENL_HDRLEN + 1);
		if (r->header.nlmsg_len < NLMSG_LENGTH(GENL_HDRLEN) + size)
			return;
	} while (one_in(2));
}

static void make(struct request *r, uint16_t family)
{
	begin(r, family, 1 + below(&state, MLTCP_CMDS - 1), NLM_F_ACK);
	if (one_in(20))
		r->generic.cmd = next_random(&state);
	if (one_in(50))
		r->header.nlmsg_flags |= NLM_F_DUMP;
	if (one_in(30))
		r->header.nlmsg_flags |= next_random(&state) & ~NLM_F_DUMP;
	if (one_in(50))
		r->generic.version = next_random(&state);
	if (one_in(50))
		r->generic.reserved = next_random(&state);
	if (one_in(100))
		r->header.nlmsg_type = below(&state, NLMSG_MIN_TYPE); /* control: does nothing */
	if (one_in(2))
		put_wanted(r);
	else
		put_anything(r);
	if (one_in(4))
		mutate(r);
}

static bool changes(uint8_t command)
{
	return command == MLTCP_CMD_JOB_SET || command == MLTCP_CMD_JOB_DEL ||
	       command == MLTCP_CMD_TAG || command == MLTCP_CMD_UNTAG;
}

/* Send some messages and read until each is answered; their number. */
static int send_batch(struct genl *g, bool may_change)
{
	static char out[BATCH * sizeof(struct request)], in[BUFFER_BYTES];
	bool change[BATCH], open[BATCH];
	int n = 1 + below(&state, BATCH), waiting = n, i;
	uint32_t first = g->sequence + 1;
	size_t size = 0;

	for (i = 0; i < n; i++) {
		struct request r;

		make(&r, g->family);
		r.header.nlmsg_seq = ++g->sequence;
		open[i] = true;
		change[i] = r.header.nlmsg_type == g->family &&
			    r.header.nlmsg_len >= NLMSG_LENGTH(GENL_HDRLEN) &&
			    r.header.nlmsg_flags & NLM_F_REQUEST && changes(r.generic.cmd);
		memcpy(out + size, &r, r.header.nlmsg_len);
		size += NLMSG_ALIGN(r.header.nlmsg_len);
	}
	check(send(g->fd, out, size, 0) == (ssize_t)size, "send: %s", strerror(errno));
	while (waiting) {
		const struct nlmsghdr *m = (void *)in;
		ssize_t left = recv(g->fd, in, sizeof(in), 0);

		check(left > 0, "%d messages stay without an answer: %s", waiting, strerror(errno));
		for (; NLMSG_OK(m, left); m = NLMSG_NEXT(m, left)) {
			uint32_t which = m->nlmsg_seq - first;
			int error;

			if (m->nlmsg_type != NLMSG_ERROR && m->nlmsg_type != NLMSG_DONE)
				continue;
			check(which < (uint32_t)n && open[which], "an answer to nothing");
			open[which] = false;
			waiting--;
			error = -*(int *)NLMSG_DATA(m);
			check(error >= 0 && error < 256, "error %d", error);
			answers[error]++;
			check(may_change || error || !change[which], "changed something");
		}
	}
	return n;
}

/* Bytes that aren't even messages: no answer is due, but the next question must have one. */
static void send_garbage(struct genl *g)
{
	char data[256];
	size_t size = 1 + below(&state, sizeof(data)), i;
	struct request r;

	for (i = 0; i < size; i++)
		data[i] = next_random(&state);
	/* Else it could be for another family. */
	if (size >= 6 && !one_in(3))
		memcpy(data + 4, &g->family, 2);
	else if (size >= 6)
		memset(data + 4, 0, 2);
	send(g->fd, data, size, 0);
	begin(&r, g->family, MLTCP_CMD_STATUS_GET, 0);
	check(!ask(g, &r, NULL, NULL), "no status after garbage");
}

struct jobs {
	unsigned int count;
	uint64_t sum; /* of all that they consist of */
};

static void note_job(const struct nlmsghdr *m, void *data)
{
	const struct nlattr *name = message_attribute(m, MLTCP_A_JOB_NAME);
	const struct nlattr *params = message_attribute(m, MLTCP_A_JOB_PARAMS);
	const unsigned char *bytes = (const unsigned char *)m + NLMSG_LENGTH(GENL_HDRLEN);
	struct jobs *jobs = data;
	struct mltcp_params p;
	uint32_t *words = &p.slope;
	int i;

	check(get_u32(message_attribute(m, MLTCP_A_JOB_ID)) > 0, "job 0");
	check(name->nla_len - NLA_HDRLEN <= MLTCP_JOB_NAME_BYTES &&
		      ((const char *)name)[name->nla_len - 1] == '\0',
	      "a name that doesn't end");
	memcpy(&p.burst_bytes, nested_attribute(params, MLTCP_P_BURST_BYTES) + 1, 8);
	memcpy(&p.gap_ns, nested_attribute(params, MLTCP_P_GAP_NS) + 1, 8);
	for (i = MLTCP_P_SLOPE; i < MLTCP_P_COUNT; i++)
		words[i - MLTCP_P_SLOPE] = get_u32(nested_attribute(params, i));
	check(mltcp_params_valid(&p), "parameters that should have been refused");
	jobs->count++;
	while (bytes < (const unsigned char *)m + m->nlmsg_len)
		jobs->sum = jobs->sum * 31 + *bytes++;
}

static struct jobs read_jobs(struct genl *g)
{
	struct jobs jobs = {};
	int err = dump(g, MLTCP_CMD_JOB_GET, note_job, &jobs);

	check(!err, "dump of jobs: %s", strerror(-err));
	return jobs;
}

static void note_id(const struct nlmsghdr *m, void *data)
{
	*(uint32_t *)data = get_u32(message_attribute(m, MLTCP_A_JOB_ID));
}

static void note_tag(const struct nlmsghdr *m, void *data)
{
	if (get_u32(nested_attribute(message_attribute(m, MLTCP_A_FLOW), MLTCP_F_JOB)) == IDS + 1)
		++*(int *)data;
}

/* Everything can be deleted, and the module does what it is for. */
static void check_works(struct genl *g)
{
	uint32_t id;
	int flows = 0, err;

	do {
		id = 0;
		dump(g, MLTCP_CMD_JOB_GET, note_id, &id);
		if (id)
			check(!delete_job(g, id), "job %u can't be deleted", id);
	} while (id);
	err = set_job(g, IDS + 1, "after all", &lively);
	check(!err, "set_job: %s", strerror(-err));
	check(!setsockopt(clients[0], SOL_TCP, TCP_CONGESTION, "mltcp", 5), "no mltcp");
	err = tag(g, clients[0], IDS + 1);
	check(!err, "tag: %s", strerror(-err));
	check(!dump(g, MLTCP_CMD_FLOW_GET, note_tag, &flows) && flows == 1, "%d flows", flows);
	check(!tag(g, clients[0], 0) && !delete_job(g, IDS + 1), "no way back");
	check(!read_jobs(g).count, "jobs are left");
}

int main(int argc, char **argv)
{
	struct genl root, own, *g = &root;
	unsigned long count, sent = 0, turn;
	struct jobs before, after;
	int user, i;

	if (argc != 4) {
		fprintf(stderr, "Usage: fuzz_netlink SEED COUNT USER\n");
		return 2;
	}
	state = strtoull(argv[1], NULL, 0);
	count = strtoul(argv[2], NULL, 0);
	user = atoi(argv[3]);
	open_descriptors();
	check(!genl_open(&root), "no family mltcp: is the module loaded?");
	keep(root.fd);
	for (i = 1; i <= IDS; i++)
		check(!set_job(&root, i, "before", &lively), "job %d", i);
	before = read_jobs(&root);
	if (user) {
		check(!setresuid(user, user, 0), "can't become %d", user);
		check(!genl_open(&own), "the family isn't to be seen by %d", user);
	}
	for (turn = 0; sent < count; turn++) {
		if (user)
			g = turn % 2 ? &own : &root;
		sent += send_batch(g, !user);
		if (turn % 64 == 0)
			some_traffic();
		if (turn % 16 == 0)
			send_garbage(g);
	}
	if (user)
		check(!setresuid(0, 0, 0), "can't become root again");
	after = read_jobs(&root);
	check(!user || (after.count == before.count && after.sum == before.sum), "jobs changed");
	check_works(&root);
	printf("%lu messages:", sent);
	for (i = 0; i < 256; i++)
		if (answers[i])
			printf(" %lu %s", answers[i], i ? strerrorname_np(i) : "ok");
	printf("\n");
	return 0;
}
