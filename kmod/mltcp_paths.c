// SPDX-License-Identifier: GPL-2.0-only
/*
 * Where the flows of a path keep what they share: all of them what a full queue is, see
 * mltcp_delay_ask(), those of a job their ratio, see mltcp_job_ratio(). A path is a pair of addresses in
 * a network namespace, which net_hash_mix() tells from those that came before it.
 *
 * On 32-bit machines a word may be torn. A torn word lasts until the next one, and costs nothing but
 * performance; the same is true of a value that another user's connection on the path wrote.
 */
#include <linux/jhash.h>
#include <net/ipv6.h>
#include <net/netns/hash.h>
#include "mltcp.h"

/* How many words are kept, one for a path and one for each job there: 32 KiB. */
#define PATHS_BITS 12

static u64 paths[1 << PATHS_BITS];

u64 *mltcp_path(const struct sock *sk, u32 job, u32 *key)
{
	u32 hash = net_hash_mix(sock_net(sk)) + job;

#if IS_ENABLED(CONFIG_IPV6)
	if (sk->sk_family == AF_INET6 && !ipv6_addr_v4mapped(&sk->sk_v6_daddr)) {
		hash = __ipv6_addr_jhash(&sk->sk_v6_rcv_saddr, hash);
		hash = __ipv6_addr_jhash(&sk->sk_v6_daddr, hash);
	} else
#endif
	{
		hash = jhash_2words((__force u32)sk->sk_rcv_saddr, (__force u32)sk->sk_daddr, hash);
	}
	*key = hash;
	return &paths[hash >> (32 - PATHS_BITS)];
}
