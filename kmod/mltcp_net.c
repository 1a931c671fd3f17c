// SPDX-License-Identifier: GPL-2.0-only
/* The state of each network namespace, its jobs and flows, and the table of namespaces. */
#include <linux/netdevice.h>
#include <net/ip.h>
#include "mltcp.h"

/* Packets stand before their octets, under a name that changed. */
#define OUT_PACKETS (IPSTATS_MIB_OUTOCTETS - 1)

unsigned int mltcp_net_id;
static DEFINE_XARRAY_ALLOC(mltcp_nets);

struct mltcp_net *mltcp_net_from(u32 *id)
{
	unsigned long index = *id;
	struct mltcp_net *mn = xa_find(&mltcp_nets, &index, U32_MAX, XA_PRESENT);

	*id = index;
	return mn;
}

static u64 of_all_cpus(void __percpu *mib, int field)
{
	/* 32-bit machines read the counters, of 64 bits all the same, under a lock of the CPU's. */
	const size_t lock = offsetof(struct ipstats_mib, syncp);
	u64 sum = 0;
	int cpu;

	for_each_possible_cpu (cpu)
		sum += snmp_get_cpu_field64(mib, cpu, field, lock);
	return sum;
}

/*
 * What IP has counted but loopback's, see mltcp_host_kib(). What comes by loopback was sent by it, so one
 * count serves both ways.
 */
static u64 count_kib(const struct net *net, int octets_at, int packets_at)
{
	u64 octets = of_all_cpus(net->mib.ip_statistics, octets_at);
	u64 packets = of_all_cpus(net->mib.ip_statistics, packets_at);
	u64 looped_octets, looped_packets;

#if IS_ENABLED(CONFIG_IPV6)
	if (net->mib.ipv6_statistics) { /* not without the module ipv6 */
		octets += of_all_cpus(net->mib.ipv6_statistics, octets_at);
		packets += of_all_cpus(net->mib.ipv6_statistics, packets_at);
	}
#endif
	dev_lstats_read(net->loopback_dev, &looped_packets, &looped_octets);
	return mltcp_host_kib(octets - looped_octets, packets - looped_packets);
}

/*
 * One of those who ask at the same time counts; the others take what was counted before. Under RCU: the
 * counters and the loopback device of a namespace that isn't going yet stay, and so does our part of
 * it, which a socket of the kernel's own may outlive.
 */
struct mltcp_host mltcp_net_host(const struct net *net, u64 now)
{
	struct mltcp_net *mn;
	s64 counted_ns;
	u64 host;

	if (!check_net(net))
		return (struct mltcp_host){};
	mn = mltcp_net(net);
	counted_ns = atomic64_read(&mn->counted_ns);
	if (!mltcp_host_is_due(counted_ns, now) ||
	    !atomic64_try_cmpxchg(&mn->counted_ns, &counted_ns, now)) {
		host = atomic64_read(&mn->host);
	} else {
		host = count_kib(net, IPSTATS_MIB_INOCTETS, IPSTATS_MIB_INPKTS) |
		       count_kib(net, IPSTATS_MIB_OUTOCTETS, OUT_PACKETS) << 32;
		atomic64_set(&mn->host, host);
	}
	return (struct mltcp_host){.rx_kib = (u32)host, .tx_kib = host >> 32};
}

static int __net_init mltcp_net_init(struct net *net)
{
	struct mltcp_net *mn = mltcp_net(net);

	mn->net = net;
	mltcp_jobs_net_init(mn);
	mltcp_flows_net_init(mn);
	return xa_alloc(&mltcp_nets, &mn->id, mn, xa_limit_31b, GFP_KERNEL);
}

/* The core waits for RCU readers after this, before it frees our part of the namespace. */
static void __net_exit mltcp_net_pre_exit(struct net *net)
{
	struct mltcp_net *mn = mltcp_net(net);

	xa_erase(&mltcp_nets, mn->id);
	mltcp_jobs_net_retire(mn);
	mltcp_flows_net_close(mn);
}

static void __net_exit mltcp_net_exit(struct net *net)
{
	mltcp_jobs_net_exit(mltcp_net(net));
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
