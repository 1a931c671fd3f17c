/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Attaching: what user space and the programs in attach.bpf.c agree on.
 * mltcp_tools/kernel/backends/bpf_sockets.py declares the same structs to Python.
 */
#ifndef MLTCP_ATTACH_BPF_H
#define MLTCP_ATTACH_BPF_H

#include "../kmod/mltcp_uapi.h"

/* TCP_CA_NAME_MAX of net/tcp.h; names are filled up with zeros. */
#define MLTCP_CA_NAME 16

/* Base algorithms that a rule may give variants of their own. */
#define MLTCP_CHOICES 16

/* Ports that a rule leaves alone. */
#define MLTCP_PORTS 4

struct mltcp_ca_name {
	char text[MLTCP_CA_NAME];
};

/* What a socket ran before it was attached, and the job that it was attached to last. */
struct mltcp_first {
	struct mltcp_ca_name name;
	__u32 job;
	__u32 pad;
};

enum mltcp_action {
	MLTCP_GIVE, /* switch and tag it, if it runs what is expected */
	MLTCP_TAKE, /* switch it back and forget it, if it runs one of ours */
};

/* What is to become of one socket. Written by user space only. */
struct mltcp_wish {
	__u32 action;
	__u32 pad;
	struct mltcp_ca_name expected;
	struct mltcp_ca_name name;
	struct mltcp_tag tag; /* job 0: none */
};

/* What came of a wish. error: an errno, of which ENOTCONN says that it can't send any more. */
struct mltcp_found {
	__u64 cookie;
	__u32 error;
	__u32 pad;
	struct mltcp_ca_name was; /* what the socket ran before the wish */
	struct mltcp_ca_name now;
};

/* A socket that is attached, as what it ran before shows. */
struct mltcp_attached {
	__u64 cookie;
	__u32 netns; /* inode of its namespace */
	__u32 job;
	__u8 local_addr[16];
	__u8 remote_addr[16];
	__u16 local_port;
	__u16 remote_port;
	__u32 state;
	struct mltcp_tag tag; /* job 0: it has none, as after an unload */
	struct mltcp_ca_name first;
	struct mltcp_ca_name now;
};

/* A socket that a process holds. */
struct mltcp_held {
	__u64 cookie;
	__u64 inode;
	__u32 tgid; /* of the process, in the first pid namespace */
	__u32 fd;
	__u32 netns; /* inode of the socket's namespace */
	__u32 pad;
};

/* A base and what its sockets get. */
struct mltcp_choice {
	struct mltcp_ca_name base;
	struct mltcp_ca_name name;
};

/*
 * What becomes of a cgroup's new connections. Those with a port below `lowest_port`, or with one of
 * `ports`, or between this host's own addresses are left alone. Written by user space only.
 */
struct mltcp_rule {
	struct mltcp_tag tag; /* job 0: nothing */
	struct mltcp_ca_name name; /* empty: as `choices` say, and nothing where none fits */
	struct mltcp_choice choices[MLTCP_CHOICES];
	__u32 lowest_port;
	__u32 ports[MLTCP_PORTS]; /* 0: none */
	__u32 stays_here; /* 1: those within this host are taken, too */
};

#endif
