// SPDX-License-Identifier: GPL-2.0-only
/*
 * State of flows, and the table of them. A flow is in the table from its congestion control's
 * init to its release; the table's lock is what keeps its socket alive for who reads it there.
 */
#include "mltcp.h"

static struct kmem_cache *mltcp_cache;
static struct xarray mltcp_table;

static void copy_address(u8 to[16], const struct sock *sk, __be32 v4, const struct in6_addr *v6)
{
	struct in6_addr address;

#if IS_ENABLED(CONFIG_IPV6)
	if (sk->sk_family == AF_INET6) {
		memcpy(to, v6, sizeof(*v6));
		return;
	}
#endif
	ipv6_addr_set_v4mapped(v4, &address);
	memcpy(to, &address, sizeof(address));
}

#if IS_ENABLED(CONFIG_IPV6)
#define local_v6(sk) (&(sk)->sk_v6_rcv_saddr)
#define remote_v6(sk) (&(sk)->sk_v6_daddr)
#else
#define local_v6(sk) NULL
#define remote_v6(sk) NULL
#endif

static u64 socket_cookie(const struct sock *sk)
{
	u32 halves[2];

	sock_diag_save_cookie((struct sock *)sk, halves);
	return halves[0] | (u64)halves[1] << 32;
}

/* In softirq or process context, with the socket locked. NULL when memory is short. */
struct mltcp_sock *mltcp_flow_new(struct sock *sk)
{
	struct mltcp_sock *ms = kmem_cache_zalloc(mltcp_cache, GFP_ATOMIC);

	if (!ms)
		return NULL;
	ms->sk = sk;
	ms->net = sock_net(sk);
	mltcp_reset(&ms->flow, 0, tcp_sk(sk)->bytes_acked, tcp_sk(sk)->total_retrans);
	if (xa_alloc_bh(&mltcp_table, &ms->index, ms, xa_limit_31b, GFP_ATOMIC)) {
		kmem_cache_free(mltcp_cache, ms);
		return NULL;
	}
	return ms;
}

static void mltcp_flow_free_rcu(struct rcu_head *head)
{
	kmem_cache_free(mltcp_cache, container_of(head, struct mltcp_sock, rcu));
}

/* The memory outlives those who count the flows under RCU. */
void mltcp_flow_free(struct mltcp_sock *ms)
{
	xa_erase_bh(&mltcp_table, ms->index);
	mltcp_job_put(rcu_replace_pointer(ms->job, NULL, true));
	call_rcu(&ms->rcu, mltcp_flow_free_rcu);
}

/* net NULL: all are. */
static bool visible(const struct mltcp_sock *ms, const struct net *net)
{
	return !net || net_eq(net, ms->net);
}

u32 mltcp_flow_count(const struct net *net)
{
	struct mltcp_sock *ms;
	unsigned long index;
	u32 count = 0;

	rcu_read_lock();
	xa_for_each (&mltcp_table, index, ms) {
		count += visible(ms, net);
		cond_resched_rcu();
	}
	rcu_read_unlock();
	return count;
}

static void describe(const struct mltcp_sock *ms, struct mltcp_flow_record *record)
{
	const struct sock *sk = ms->sk;
	const struct tcp_sock *tp = tcp_sk(sk);
	const struct mltcp_job_ref *job;

	memset(record, 0, sizeof(*record));
	record->cookie = socket_cookie(sk);
	record->netns = sock_net(sk)->ns.inum;
	rcu_read_lock();
	job = rcu_dereference(ms->job);
	record->tagged_job = job ? job->id : 0;
	rcu_read_unlock();
	record->snd_cwnd = tcp_snd_cwnd(tp);
	record->snd_ssthresh = tp->snd_ssthresh;
	copy_address(record->local_addr, sk, sk->sk_rcv_saddr, local_v6(sk));
	copy_address(record->remote_addr, sk, sk->sk_daddr, remote_v6(sk));
	record->local_port = ntohs(inet_sk(sk)->inet_sport);
	record->remote_port = ntohs(sk->sk_dport);
	record->state = sk->sk_state;
	strscpy(record->ca_name, inet_csk(sk)->icsk_ca_ops->name, sizeof(record->ca_name));
	record->flow = ms->flow;
	mltcp_note(&record->flow, tcp_snd_cwnd(tp), tp->srtt_us >> 3, tp->total_retrans);
}

/* Whether there is a visible flow at exactly this index; describes it. */
static bool describe_at(const struct net *net, unsigned long index,
			struct mltcp_flow_record *record)
{
	struct mltcp_sock *ms;
	bool found;

	/* The socket isn't locked: a record may be torn, but what it points to stays. */
	xa_lock_bh(&mltcp_table);
	ms = xa_load(&mltcp_table, index);
	found = ms && visible(ms, net);
	if (found)
		describe(ms, record);
	xa_unlock_bh(&mltcp_table);
	return found;
}

bool mltcp_flow_next(const struct net *net, u32 *index, struct mltcp_flow_record *record)
{
	struct mltcp_sock *ms;
	unsigned long at = *index;
	bool found = false;

	/* Without the lock, which ACKs of new and closing sockets wait for. */
	rcu_read_lock();
	xa_for_each_start (&mltcp_table, at, ms, *index) {
		if (visible(ms, net)) {
			rcu_read_unlock();
			found = describe_at(net, at, record);
			rcu_read_lock();
			if (found)
				break;
		}
		cond_resched_rcu();
	}
	rcu_read_unlock();
	*index = at;
	return found;
}

void mltcp_flow_event(const struct mltcp_sock *ms, struct mltcp_event *event)
{
	const struct mltcp_flow *flow = &ms->flow;
	const struct sock *sk = ms->sk;

	memset(event, 0, sizeof(*event));
	event->cookie = socket_cookie(sk);
	event->first_ack_ns = flow->start_ns;
	event->last_ack_ns = flow->last_ns;
	event->bytes = mltcp_sent(flow);
	event->job = flow->job;
	event->iteration = flow->iteration;
	event->retransmits = flow->retransmits - flow->start_retransmits;
	event->srtt_us = flow->srtt_us;
	event->cwnd = flow->cwnd;
	event->ratio = flow->ratio;
	copy_address(event->local_addr, sk, sk->sk_rcv_saddr, local_v6(sk));
	copy_address(event->remote_addr, sk, sk->sk_daddr, remote_v6(sk));
	event->local_port = ntohs(inet_sk(sk)->inet_sport);
	event->remote_port = ntohs(sk->sk_dport);
}

int mltcp_flows_init(void)
{
	xa_init_flags(&mltcp_table, XA_FLAGS_ALLOC | XA_FLAGS_LOCK_BH);
	BUILD_BUG_ON(offsetof(struct mltcp_sock, flow.shrink_ns) > MLTCP_HOT_BYTES);
	mltcp_cache = KMEM_CACHE(mltcp_sock, SLAB_ACCOUNT | SLAB_HWCACHE_ALIGN);
	return mltcp_cache ? 0 : -ENOMEM;
}

void mltcp_flows_exit(void)
{
	rcu_barrier();
	xa_destroy(&mltcp_table);
	kmem_cache_destroy(mltcp_cache);
}
