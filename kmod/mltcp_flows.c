// SPDX-License-Identifier: GPL-2.0-only
/*
 * The state of flows, and their tables: one for each network namespace, in several parts. A flow is
 * in the table for as long as it has state, see mltcp_state.c. The lock of a part keeps the sockets
 * in it alive for whoever reads there.
 */
#include <linux/hash.h>
#include "mltcp.h"

static struct kmem_cache *mltcp_cache;

/* Which of all lists of its namespace the socket's flow belongs to. */
static u32 list_of(const struct sock *sk)
{
	return hash_ptr(sk, MLTCP_SHARD_BITS + MLTCP_LIST_BITS);
}

static struct mltcp_shard *shard_at(struct mltcp_net *mn, u32 list)
{
	return &mn->shards[list >> MLTCP_LIST_BITS];
}

static struct hlist_head *head_at(struct mltcp_shard *shard, u32 list)
{
	return &shard->lists[list % MLTCP_LISTS];
}

/* Under RCU, so that the namespace's table stays where it wasn't closed before. */
static void put_in(struct mltcp_sock *ms)
{
	u32 list = list_of(ms->sk);
	struct mltcp_shard *shard = shard_at(mltcp_net(sock_net(ms->sk)), list);

	spin_lock_bh(&shard->lock);
	if (!shard->closed) {
		ms->number = ++shard->added;
		hlist_add_head(&ms->node, head_at(shard, list));
		WRITE_ONCE(shard->count, shard->count + 1);
		ms->shard = shard;
	}
	spin_unlock_bh(&shard->lock);
}

/* With the lock held. Who finds that the flow is in no shard may free it. */
static void take_out(struct mltcp_shard *shard, struct mltcp_sock *ms)
{
	hlist_del(&ms->node);
	WRITE_ONCE(shard->count, shard->count - 1);
	smp_store_release(&ms->shard, NULL);
}

/*
 * In softirq or process context, with the socket locked. NULL when memory is short. A socket of a
 * namespace that is going is in no table: the table goes before the socket.
 */
struct mltcp_sock *mltcp_flow_new(struct sock *sk, const struct mltcp_variant *variant)
{
	/* Zeros, for what mltcp_reset() keeps of before must not be another flow's. */
	struct mltcp_sock *ms = kmem_cache_zalloc(mltcp_cache, GFP_ATOMIC);
	struct mltcp_job_ref *job;

	if (!ms)
		return NULL;
	ms->sk = sk;
	ms->variant = variant - mltcp_variants;
	ms->rules_seen = smp_load_acquire(&mltcp_rules_changes);
	job = mltcp_rules_job(sk);
	RCU_INIT_POINTER(ms->job, job);
	/* bytes_acked will have one more once our SYN is acknowledged, which is no data. */
	mltcp_reset(&ms->flow, job ? job->id : 0,
		    tcp_sk(sk)->bytes_acked + (sk->sk_state == TCP_SYN_SENT),
		    tcp_sk(sk)->total_retrans);
	rcu_read_lock();
	if (check_net(sock_net(sk)))
		put_in(ms);
	rcu_read_unlock();
	return ms;
}

/* With the socket locked, or where nobody has it any more; only the table knows the flow besides. */
void mltcp_flow_free(struct mltcp_sock *ms)
{
	struct mltcp_shard *shard;

	rcu_read_lock();
	shard = smp_load_acquire(&ms->shard);
	if (shard) {
		spin_lock_bh(&shard->lock);
		if (ms->shard)
			take_out(shard, ms);
		spin_unlock_bh(&shard->lock);
	}
	rcu_read_unlock();
	mltcp_job_put(rcu_dereference_protected(ms->job, true));
	kmem_cache_free(mltcp_cache, ms);
}

struct mltcp_sock *mltcp_flow_find(const struct sock *sk)
{
	u32 list = list_of(sk);
	struct mltcp_sock *ms, *found = NULL;
	struct mltcp_shard *shard;

	rcu_read_lock();
	if (check_net(sock_net(sk))) {
		shard = shard_at(mltcp_net(sock_net(sk)), list);
		spin_lock_bh(&shard->lock);
		hlist_for_each_entry (ms, head_at(shard, list), node)
			if (ms->sk == sk)
				found = ms;
		spin_unlock_bh(&shard->lock);
	}
	rcu_read_unlock();
	return found; /* it stays while its socket is locked */
}

/*
 * Tell of the list's flows behind the place, with the lock held, and set the place to each that was
 * told; false: there was no room for one. A flow whose base wrote over our part of the socket is the
 * base's alone, though it may stay in the table for as long as the socket lives.
 */
static bool tell_list(const struct hlist_head *list, u64 *number, mltcp_tell_flow *tell, void *to)
{
	struct mltcp_sock *ms;

	hlist_for_each_entry (ms, list, node) {
		if ((*number && ms->number >= *number) || mltcp_state(ms->sk) != ms)
			continue;
		/* The socket isn't locked: what is told may be torn, but what it points to stays. */
		if (!tell(to, ms))
			return false;
		*number = ms->number;
	}
	return true;
}

bool mltcp_flows_tell(struct mltcp_net *mn, struct mltcp_place *at, mltcp_tell_flow *tell, void *to)
{
	bool told = true;

	for (; at->list < MLTCP_SHARDS * MLTCP_LISTS; at->list++, at->number = 0) {
		struct mltcp_shard *shard = shard_at(mn, at->list);

		if (!READ_ONCE(shard->count))
			at->list |= MLTCP_LISTS - 1; /* which is empty, too */
		if (hlist_empty(head_at(shard, at->list)))
			continue;
		spin_lock_bh(&shard->lock);
		told = tell_list(head_at(shard, at->list), &at->number, tell, to);
		spin_unlock_bh(&shard->lock);
		if (!told)
			break;
	}
	return told;
}

void mltcp_flows_net_init(struct mltcp_net *mn)
{
	int i;

	for (i = 0; i < MLTCP_SHARDS; i++)
		spin_lock_init(&mn->shards[i].lock);
}

/* The flows that are left are of the kernel's own sockets: let them go their own way. */
void mltcp_flows_net_close(struct mltcp_net *mn)
{
	struct mltcp_shard *shard;
	struct mltcp_sock *ms;
	struct hlist_node *next;
	int i;

	for (shard = mn->shards; shard < mn->shards + MLTCP_SHARDS; shard++) {
		spin_lock_bh(&shard->lock);
		shard->closed = true;
		for (i = 0; i < MLTCP_LISTS; i++)
			hlist_for_each_entry_safe(ms, next, &shard->lists[i], node)
				take_out(shard, ms);
		spin_unlock_bh(&shard->lock);
	}
}

int __init mltcp_flows_init(void)
{
	BUILD_BUG_ON(offsetofend(struct mltcp_sock, flow.delay) > MLTCP_HOT_BYTES);
	mltcp_cache = KMEM_CACHE(mltcp_sock, SLAB_ACCOUNT | SLAB_HWCACHE_ALIGN);
	return mltcp_cache ? 0 : -ENOMEM;
}

void mltcp_flows_exit(void)
{
	kmem_cache_destroy(mltcp_cache);
}
