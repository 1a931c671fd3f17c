// SPDX-License-Identifier: GPL-2.0-only
/*
 * The generic netlink family "mltcp", and what it tells its listeners: the iterations that have
 * ended. What it is asked is in mltcp_netlink.c.
 */
#include "mltcp.h"

enum { GROUP_ITERATIONS };

/*
 * Iterations say when everybody's connections of the namespace send, and how much: as it happens,
 * which no socket diagnosis does. The kernel renamed the flag in 6.7, and stable ones with it.
 */
#ifdef GENL_MCAST_CAP_NET_ADMIN
#define FOR_ADMINISTRATORS GENL_MCAST_CAP_NET_ADMIN
#else
#define FOR_ADMINISTRATORS GENL_UNS_ADMIN_PERM
#endif

static const struct genl_multicast_group mltcp_groups[] = {
	[GROUP_ITERATIONS] = {.name = MLTCP_GENL_GROUP, .flags = FOR_ADMINISTRATORS},
};

/* Its operations are added as it is registered. */
struct genl_family mltcp_family __ro_after_init = {
	.name = MLTCP_GENL_NAME,
	.version = MLTCP_GENL_VERSION,
	.module = THIS_MODULE,
	.netnsok = true,
	.parallel_ops = true,
	.mcgrps = mltcp_groups,
	.n_mcgrps = ARRAY_SIZE(mltcp_groups),
};

/* More than the attributes of an iteration take. */
#define EVENT_BYTES (nla_total_size(0) + MLTCP_I_COUNT * nla_total_size_64bit(16))

/*
 * Mostly in softirq, with the flow's socket locked. Under RCU: where the namespace is going already,
 * as that of a socket of the kernel's own may be, nobody can listen there any more.
 */
static void tell_listeners(struct net *net, const struct mltcp_sock *ms)
{
	struct sk_buff *skb;
	void *header;

	if (!check_net(net) || !genl_has_listeners(&mltcp_family, net, GROUP_ITERATIONS))
		return;
	skb = genlmsg_new(EVENT_BYTES, GFP_ATOMIC);
	if (!skb)
		goto dropped;
	header = genlmsg_put(skb, 0, 0, &mltcp_family, 0, MLTCP_CMD_ITERATION);
	if (!header || mltcp_put_iteration(skb, ms)) {
		nlmsg_free(skb);
		goto dropped;
	}
	genlmsg_end(skb, header);
	/*
	 * A listener whose queue is full learns of that by itself: its next read fails with
	 * ENOBUFS.
	 */
	if (genlmsg_multicast_netns(&mltcp_family, net, skb, 0, GROUP_ITERATIONS, GFP_ATOMIC) !=
	    -ENOBUFS)
		return;
dropped:
	atomic64_inc(&mltcp_net(net)->dropped);
}

void mltcp_report(const struct mltcp_sock *ms)
{
	const struct mltcp_job_ref *job;

	if (!mltcp_is_reported(&ms->flow, READ_ONCE(mltcp_defaults.gap_ns)))
		return;
	rcu_read_lock();
	job = rcu_dereference(ms->job);
	/* A job without data may have lost its namespace, too. */
	if (!job)
		tell_listeners(sock_net(ms->sk), ms);
	else if (rcu_access_pointer(job->data))
		tell_listeners(job->net, ms);
	rcu_read_unlock();
}
