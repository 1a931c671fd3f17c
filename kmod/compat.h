/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Kernel headers, and what differs between kernels 5.15 and 7.2. The HAVE_ macros come from
 * kmod/probe, which compiles a snippet for each against the headers of the target kernel:
 * vendors backport, so a version number tells little. The rest of the module reads as if only
 * the newest kernel existed.
 */
#ifndef MLTCP_COMPAT_H
#define MLTCP_COMPAT_H

#include <linux/bpf.h>
#include <linux/delay.h>
#include <linux/inet_diag.h>
#include <linux/module.h>
#include <linux/net.h>
#include <linux/rcupdate_wait.h>
#include <linux/refcount.h>
#include <linux/slab.h>
#include <linux/sock_diag.h>
#include <linux/xarray.h>
#include <net/genetlink.h>
#include <net/ip.h>
#include <net/net_namespace.h>
#include <net/netns/generic.h>
#include <net/tcp.h>

/* Before 5.19 (commit 40570375356c) the window was read and written directly. */
#ifndef HAVE_TCP_SND_CWND
static inline u32 tcp_snd_cwnd(const struct tcp_sock *tp)
{
	return tp->snd_cwnd;
}

static inline void tcp_snd_cwnd_set(struct tcp_sock *tp, u32 cwnd)
{
	tp->snd_cwnd = cwnd;
}
#endif

#endif
