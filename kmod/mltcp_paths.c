// SPDX-License-Identifier: GPL-2.0-only
/*
 * What flows of one path tell each other, see mltcp_ask_path() in mltcp_core.h. A path is a pair
 * of addresses in a network namespace.
 *
 * The table has no lock: a slot is one word, and whoever writes last is right. Where a word isn't
 * written at once (32-bit machines), a torn one lasts until the next loss and costs performance
 * alone.
 */
#include <linux/jhash.h>
#include <linux/once.h>
#include <net/netns/hash.h>
#include "mltcp.h"

/* Paths that are kept in mind, a power of two: 8 KiB. */
#define PATHS 1024

static u64 paths[PATHS];
static u32 secret __read_mostly; /* so that nobody can choose whose slot to share */

u64 *mltcp_path(const struct sock *sk, u32 *key)
{
	u32 hash;

	get_random_once(&secret, sizeof(secret));
	hash = secret ^ net_hash_mix(sock_net(sk));
#if IS_ENABLED(CONFIG_IPV6)
	if (sk->sk_family == AF_INET6) {
		hash = jhash2(sk->sk_v6_rcv_saddr.s6_addr32, 4, hash);
		hash = jhash2(sk->sk_v6_daddr.s6_addr32, 4, hash);
	} else
#endif
		hash = jhash_2words((__force u32)sk->sk_rcv_saddr, (__force u32)sk->sk_daddr, hash);
	*key = hash;
	return &paths[hash % PATHS];
}
