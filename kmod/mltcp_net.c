// SPDX-License-Identifier: GPL-2.0-only
/* The state of each network namespace, its jobs and flows, and the table of namespaces. */
#include "mltcp.h"

static unsigned int mltcp_net_id;
static DEFINE_XARRAY_ALLOC(mltcp_nets);

struct mltcp_net *mltcp_net(const struct net *net)
{
	return net_generic(net, mltcp_net_id);
}

struct mltcp_net *mltcp_net_from(u32 *id)
{
	unsigned long index = *id;
	struct mltcp_net *mn = xa_find(&mltcp_nets, &index, U32_MAX, XA_PRESENT);

	*id = index;
	return mn;
}

static int __net_init mltcp_net_init(struct net *net)
{
	struct mltcp_net *mn = mltcp_net(net);

	mn->net = net;
	mltcp_jobs_net_init(mn);
	mltcp_flows_net_init(mn);
	return xa_alloc(&mltcp_nets, &mn->id, mn, xa_limit_31b, GFP_KERNEL);
}

/* The core waits for RCU readers after this and before it takes netlink down. */
static void __net_exit mltcp_net_pre_exit(struct net *net)
{
	struct mltcp_net *mn = mltcp_net(net);

	xa_erase(&mltcp_nets, mn->id);
	mltcp_jobs_net_retire(mn);
	mltcp_flows_net_drain(mn);
}

static void __net_exit mltcp_net_exit(struct net *net)
{
	struct mltcp_net *mn = mltcp_net(net);

	mltcp_jobs_net_exit(mn);
	/* A socket of the kernel's own may have come since: it holds no reference to its namespace. */
	if (mltcp_flow_count(mn)) {
		mltcp_flows_net_drain(mn);
		synchronize_rcu();
	}
}

static struct pernet_operations mltcp_net_ops = {
	.init = mltcp_net_init,
	.pre_exit = mltcp_net_pre_exit,
	.exit = mltcp_net_exit,
	.id = &mltcp_net_id,
	.size = sizeof(struct mltcp_net),
};

int __init mltcp_nets_init(void)
{
	return register_pernet_subsys(&mltcp_net_ops);
}

void mltcp_nets_exit(void)
{
	unregister_pernet_subsys(&mltcp_net_ops);
	xa_destroy(&mltcp_nets);
}
