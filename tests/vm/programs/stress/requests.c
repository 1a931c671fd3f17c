// SPDX-License-Identifier: BSD-2-Clause
/* What user space asks of the module: jobs, tags, dumps, parameters. */
#include "stress.h"

#include <linux/inet_diag.h>
#include <linux/sock_diag.h>

void tagger(struct worker *w)
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

void dumper(struct worker *w)
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

void tuner(struct worker *w)
{
	static const char *const tuned[] = {"slope", "yield_max", "burst_bytes", "gap_ns",
					    "enabled"};
	char path[100], value[20];

	snprintf(path, sizeof(path), "/sys/module/tcp_mltcp/parameters/%s",
		 tuned[below(&w->random, 5)]);
	snprintf(value, sizeof(value), "%u", below(&w->random, 3) * 500);
	if (write_file(path, value))
		count(parameters);
	usleep(1000);
}
