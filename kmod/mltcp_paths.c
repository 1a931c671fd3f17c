// SPDX-License-Identifier: GPL-2.0-only
/*
 * What flows of one path tell each other, see mltcp_delay_ask() in mltcp_delay.h, and those of a job
 * on it, see mltcp_wait.h. A path is a pair of addresses in a network namespace.
 *
 * On 32-bit machines a word may be torn. A torn word lasts until the next loss, or the leader's next
 * step, and costs nothing but performance; the same is true of a value that another user's connection
 * on the path wrote.
 */
#include <linux/hash.h>
#include <linux/jhash.h>
#include <net/ipv6.h>
#include <net/netns/hash.h>
#include "mltcp.h"

/* How many paths are remembered: 8 KiB. */
#define PATHS_BITS 10

static u64 paths[1 << PATHS_BITS];
static u64 leads[1 << PATHS_BITS];

static u32 hash_path(const struct sock *sk, u32 seed)
{
	u32 hash = net_hash_mix(sock_net(sk)) ^ seed;

#if IS_ENABLED(CONFIG_IPV6)
	if (sk->sk_family == AF_INET6 && !ipv6_addr_v4mapped(&sk->sk_v6_daddr)) {
		hash = __ipv6_addr_jhash(&sk->sk_v6_rcv_saddr, hash);
		hash = __ipv6_addr_jhash(&sk->sk_v6_daddr, hash);
	} else
#endif
	{
		hash = jhash_2words((__force u32)sk->sk_rcv_saddr, (__force u32)sk->sk_daddr, hash);
	}
	return hash;
}

u64 *mltcp_path(const struct sock *sk, u32 *key)
{
	*key = hash_path(sk, 0); /* of which the low bits count */
	return &paths[*key >> (32 - PATHS_BITS)];
}

u64 *mltcp_lead_of(const struct sock *sk, u32 job, u32 *key)
{
	if (!job)
		return NULL;
	*key = hash_path(sk, hash_32(job, 32));
	return &leads[*key >> (32 - PATHS_BITS)];
}
