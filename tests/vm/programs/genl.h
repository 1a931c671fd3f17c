/* SPDX-License-Identifier: BSD-2-Clause */
/* Just enough generic netlink to talk to the family "mltcp" from C, where Python is too slow. */
#ifndef GENL_H
#define GENL_H

#include <errno.h>
#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "../../../kmod/mltcp_core.h"
#include "../../../kmod/rules.h"

#define BUFFER_BYTES (1 << 16)

struct genl {
	int fd;
	uint16_t family;
	uint32_t group; /* of finished iterations */
	uint32_t sequence;
};

/* A request being put together: header, generic header, attributes. */
struct request {
	struct nlmsghdr header;
	struct genlmsghdr generic;
	char attributes[1024];
};

static inline void begin(struct request *r, uint16_t family, uint8_t command, uint16_t flags)
{
	memset(r, 0, sizeof(r->header) + sizeof(r->generic));
	r->header.nlmsg_len = NLMSG_LENGTH(GENL_HDRLEN);
	r->header.nlmsg_type = family;
	r->header.nlmsg_flags = NLM_F_REQUEST | flags;
	r->generic.cmd = command;
	r->generic.version = MLTCP_GENL_VERSION;
}

/* False when there is no room for it. */
static inline bool put(struct request *r, uint16_t type, const void *data, size_t length)
{
	struct nlattr *attribute = (void *)((char *)r + r->header.nlmsg_len);

	if (r->header.nlmsg_len + NLA_HDRLEN + NLA_ALIGN(length) > sizeof(*r))
		return false;
	attribute->nla_type = type;
	attribute->nla_len = NLA_HDRLEN + length;
	memset(attribute + 1, 0, NLA_ALIGN(length));
	if (length)
		memcpy(attribute + 1, data, length);
	r->header.nlmsg_len += NLA_HDRLEN + NLA_ALIGN(length);
	return true;
}

static inline bool put_u32(struct request *r, uint16_t type, uint32_t value)
{
	return put(r, type, &value, sizeof(value));
}

typedef void on_message(const struct nlmsghdr *message, void *data);

/*
 * Send a request and read until the kernel has answered it: 0, or the error it gave, negative.
 * The messages of the answer go to `each`, if given.
 */
static inline int ask(struct genl *g, struct request *r, on_message *each, void *data)
{
	char buffer[BUFFER_BYTES];

	r->header.nlmsg_seq = ++g->sequence;
	if (!(r->header.nlmsg_flags & NLM_F_DUMP))
		r->header.nlmsg_flags |= NLM_F_ACK;
	if (send(g->fd, r, r->header.nlmsg_len, 0) < 0)
		return -errno;
	for (;;) {
		const struct nlmsghdr *message = (void *)buffer;
		ssize_t left = recv(g->fd, buffer, sizeof(buffer), 0);

		if (left < 0)
			return -errno;
		for (; NLMSG_OK(message, left); message = NLMSG_NEXT(message, left)) {
			if (message->nlmsg_seq != g->sequence)
				continue;
			if (message->nlmsg_type == NLMSG_ERROR || message->nlmsg_type == NLMSG_DONE)
				return *(int *)NLMSG_DATA(message);
			if (each)
				each(message, data);
		}
	}
}

static inline const struct nlattr *attribute(const void *from, size_t left, uint16_t type)
{
	const struct nlattr *a = from;

	while (left >= NLA_HDRLEN && a->nla_len >= NLA_HDRLEN && a->nla_len <= left) {
		size_t length = NLA_ALIGN(a->nla_len);

		if ((a->nla_type & NLA_TYPE_MASK) == type)
			return a;
		if (length >= left)
			break;
		left -= length;
		a = (const void *)((const char *)a + length);
	}
	return NULL;
}

static inline const struct nlattr *message_attribute(const struct nlmsghdr *m, uint16_t type)
{
	return attribute((const char *)NLMSG_DATA(m) + GENL_HDRLEN,
			 m->nlmsg_len - NLMSG_LENGTH(GENL_HDRLEN), type);
}

static inline const struct nlattr *nested_attribute(const struct nlattr *nest, uint16_t type)
{
	return nest ? attribute(nest + 1, nest->nla_len - NLA_HDRLEN, type) : NULL;
}

static inline uint32_t get_u32(const struct nlattr *a)
{
	uint32_t value;

	memcpy(&value, a + 1, sizeof(value));
	return value;
}

static inline void note_family(const struct nlmsghdr *message, void *data)
{
	const struct nlattr *id = message_attribute(message, CTRL_ATTR_FAMILY_ID);
	const struct nlattr *groups = message_attribute(message, CTRL_ATTR_MCAST_GROUPS);
	struct genl *g = data;

	if (id)
		g->family = get_u32(id);
	if (groups) { /* the family has one */
		const struct nlattr *group = groups + 1;

		g->group = get_u32(
			attribute(group + 1, group->nla_len - NLA_HDRLEN, CTRL_ATTR_MCAST_GRP_ID));
	}
}

/* A socket of the present network namespace; 0, or -ENOENT where there is no such family. */
static inline int genl_open(struct genl *g)
{
	/* A kernel that doesn't answer shall fail a test, not hang it. */
	struct timeval limit = {.tv_sec = 60};
	struct request r;
	int one = 1, err;

	memset(g, 0, sizeof(*g));
	g->fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC);
	if (g->fd < 0)
		return -errno;
	setsockopt(g->fd, SOL_NETLINK, NETLINK_CAP_ACK, &one, sizeof(one));
	setsockopt(g->fd, SOL_NETLINK, NETLINK_EXT_ACK, &one, sizeof(one));
	setsockopt(g->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	begin(&r, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, 0);
	put(&r, CTRL_ATTR_FAMILY_NAME, MLTCP_GENL_NAME, sizeof(MLTCP_GENL_NAME));
	err = ask(g, &r, note_family, g);
	if (err) {
		close(g->fd);
		g->fd = -1;
	}
	return err;
}

static inline int join_iterations(const struct genl *g)
{
	return setsockopt(g->fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &g->group, sizeof(g->group));
}

/* Attributes inside an attribute: what is put between the two belongs to it. */
static inline struct nlattr *begin_nested(struct request *r, uint16_t type)
{
	struct nlattr *nest = (void *)((char *)r + r->header.nlmsg_len);

	return put(r, type | NLA_F_NESTED, NULL, 0) ? nest : NULL;
}

static inline void end_nested(struct request *r, struct nlattr *nest)
{
	if (nest)
		nest->nla_len = (char *)r + r->header.nlmsg_len - (char *)nest;
}

static inline bool put_params(struct request *r, const struct mltcp_params *params)
{
	struct nlattr *nest = begin_nested(r, MLTCP_A_JOB_PARAMS);
	const uint32_t *words = &params->slope; /* which all follow, in the attributes' order */
	int i;

	put(r, MLTCP_P_BURST_BYTES, &params->burst_bytes, 8);
	put(r, MLTCP_P_GAP_NS, &params->gap_ns, 8);
	for (i = MLTCP_P_SLOPE; i < MLTCP_P_COUNT; i++)
		put_u32(r, i, words[i - MLTCP_P_SLOPE]);
	end_nested(r, nest);
	return nest;
}

static inline int set_job(struct genl *g, uint32_t id, const char *name,
			  const struct mltcp_params *params)
{
	struct request r;

	begin(&r, g->family, MLTCP_CMD_JOB_SET, 0);
	put_u32(&r, MLTCP_A_JOB_ID, id);
	put(&r, MLTCP_A_JOB_NAME, name, strlen(name) + 1);
	put_params(&r, params);
	return ask(g, &r, NULL, NULL);
}

static inline int delete_job(struct genl *g, uint32_t id)
{
	struct request r;

	begin(&r, g->family, MLTCP_CMD_JOB_DEL, 0);
	put_u32(&r, MLTCP_A_JOB_ID, id);
	return ask(g, &r, NULL, NULL);
}

/* job 0: take the tag off */
static inline int tag(struct genl *g, int fd, uint32_t job)
{
	struct request r;

	begin(&r, g->family, job ? MLTCP_CMD_TAG : MLTCP_CMD_UNTAG, 0);
	put_u32(&r, MLTCP_A_FD, fd);
	if (job)
		put_u32(&r, MLTCP_A_JOB_ID, job);
	return ask(g, &r, NULL, NULL);
}

static inline int dump(struct genl *g, uint8_t command, on_message *each, void *data)
{
	struct request r;

	begin(&r, g->family, command, NLM_F_DUMP);
	return ask(g, &r, each, data);
}

/* A job whose flows do all that those of any namespace may: short gaps, increase and yield. */
static const struct mltcp_params lively = {
	.burst_bytes = 20000,
	.gap_ns = 1000000,
	MLTCP_DEFAULTS,
	.mechanisms = MLTCP_SCALE_INCREASE | MLTCP_YIELD,
};

#endif
