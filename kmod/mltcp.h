/* SPDX-License-Identifier: GPL-2.0-only */
/* What the parts of the module share. */
#ifndef MLTCP_H
#define MLTCP_H

#include "compat.h"

#define mltcp_div64(n, d) div64_u64(n, d)
#define MLTCP_READ_ONCE(x) READ_ONCE(x)
#define MLTCP_WRITE_ONCE(x, value) WRITE_ONCE(x, value)
#include "mltcp_core.h"
#include "rules.h"

/* What each ACK needs of a flow's state is in so many bytes: two cache lines. */
#define MLTCP_HOT_BYTES 128

/* More jobs than a host has processes to run them is a mistake. Per network namespace. */
#define MLTCP_JOBS_MAX 4096

/* More cgroups than a host has jobs to put in them is a mistake. In all. */
#define MLTCP_RULES_MAX 1024

/*
 * Parts of a namespace's table of flows, each with its own lock, so that connections that come and go
 * at the same time rarely meet in one; and the lists of a part, so that a dump, which looks for its
 * place in one, has few flows to pass.
 */
#define MLTCP_SHARD_BITS 4
#define MLTCP_SHARDS (1 << MLTCP_SHARD_BITS)
#define MLTCP_LIST_BITS 5
#define MLTCP_LISTS (1 << MLTCP_LIST_BITS)

/* What user space may replace of a job while flows use it. */
struct mltcp_job_data {
	struct rcu_head rcu;
	bool trusted; /* the host's administrator set it, not a container's */
	struct mltcp_job job;
};

/*
 * A job. Its namespace's table holds one reference, each of its flows another. A job without
 * data was deleted, or its namespace is gone: its flows go on as flows without a job.
 */
struct mltcp_job_ref {
	refcount_t refs;
	u32 id;
	struct net *net; /* valid under RCU while there is data */
	struct mltcp_job_data __rcu *data;
	struct rcu_head rcu;
};

/* Connections that a rule leaves alone, by their ports at either end. */
struct mltcp_rule_ports {
	u16 lowest; /* and all below */
	u16 spared[MLTCP_RULE_PORTS]; /* 0: none */
};

/* A rule as it is told. */
struct mltcp_rule_record {
	u64 cgroup; /* its id */
	u32 job; /* likewise */
	struct mltcp_rule_ports ports;
};

/* A part of a namespace's table of flows: those whose sockets' addresses hash to it. */
struct mltcp_shard {
	spinlock_t lock; /* keeps the flows of the lists, and their sockets, alive */
	u32 count; /* of the flows; changed under the lock, read without */
	u64 added; /* so many flows ever */
	bool closed; /* the namespace is going: nothing is added any more */
	struct hlist_head lists[MLTCP_LISTS]; /* the latest flow first */
} ____cacheline_aligned_in_smp; /* for connections come and go on all CPUs at once */

/* How far a dump of flows, or rules, has come; zeros: not begun. The latest in a list is its first. */
struct mltcp_place {
	u32 list; /* of all shards', or the bucket */
	u64 number; /* of the one told last in it; 0: none */
};

/* What there is of a network namespace. */
struct mltcp_net {
	struct net *net;
	u32 id; /* in the table of namespaces; found there under RCU until it goes */
	struct mutex job_lock; /* to change jobs */
	struct xarray jobs; /* id -> struct mltcp_job_ref; read under RCU */
	u32 job_count; /* under the lock */
	atomic64_t dropped; /* iterations that found a listener's receive queue full */
	atomic64_t counted_ns; /* when host was counted last */
	atomic64_t host; /* what has come by IP, KiB, and in the upper half what was sent */
	struct mltcp_shard shards[MLTCP_SHARDS];
};

/* One of our congestion controls. */
struct mltcp_variant {
	const char *name;
	const char *base_name;
	u32 mechanisms; /* where a job of the host's administrator doesn't say */
	u32 flags; /* TCP_CONG_*, besides the base's */
	bool yield_holds; /* no increase while yielding: the base's makes for where it was */
	bool has_room; /* the base is known to write nothing in the private area */
	int lacks_room; /* 1: it was seen to write there, so no flow gets one */
	struct socket *holder; /* keeps the base; NULL: this kernel lacks it */
	const struct tcp_congestion_ops *base;
	struct tcp_congestion_ops ops; /* registered */
};

/* State of one flow. The private area that its base doesn't use ends in a pointer to it. */
struct mltcp_sock {
	const struct tcp_congestion_ops *base;
	u8 variant; /* its number, see mltcp_variant_at() */
	bool by_hand; /* tagged, or untagged, by its socket: rules say nothing then */
	u32 rules_seen; /* mltcp_rules_changes when the rules were looked at */
	struct mltcp_flow flow; /* protected by the socket's lock */
	struct sock *sk;
	struct mltcp_shard *shard; /* under RCU; NULL: in none, or its namespace is going */
	struct hlist_node node; /* in a list of the shard, under its lock; so is the next */
	u64 number; /* in the order in which the shard's flows came */
	struct mltcp_job_ref __rcu
		*job; /* the tag, with a reference; the socket's lock to change */
};

/*
 * What is ours of the private area. It may hold what another congestion control left there, or be
 * a copy of another socket's: the second word tells.
 */
struct mltcp_private {
	unsigned long word; /* what it is, MLTCP_* below says */
	unsigned long check; /* (word + socket) ^ MLTCP_* */
};

/* What the word is: a struct mltcp_sock, */
#define MLTCP_HAS_STATE 0UL
/* or when to ask for one again, in jiffies, as memory was short. */
#define MLTCP_LACKS_MEMORY ~0UL
static inline struct mltcp_private *mltcp_private(const struct sock *sk)
{
	return inet_csk_ca(sk) + ICSK_CA_PRIV_SIZE - sizeof(struct mltcp_private);
}

/* MLTCP_*; something else where our part doesn't hold. */
static inline unsigned long mltcp_private_is(const struct sock *sk)
{
	const struct mltcp_private *end = mltcp_private(sk);

	return READ_ONCE(end->check) ^ (READ_ONCE(end->word) + (unsigned long)sk);
}

/* Was the base initialised for this connection, and does our part hold? */
static inline bool mltcp_is_started(const struct sock *sk)
{
	unsigned long is = mltcp_private_is(sk);

	return is == MLTCP_HAS_STATE || is == MLTCP_LACKS_MEMORY;
}

/* Our part; NULL while connecting, after release, and where memory is short. */
static inline struct mltcp_sock *mltcp_state(const struct sock *sk)
{
	const struct mltcp_private *end = mltcp_private(sk);
	unsigned long word = READ_ONCE(end->word);

	if (unlikely(READ_ONCE(end->check) != ((word + (unsigned long)sk) ^ MLTCP_HAS_STATE)))
		return NULL;
	return (struct mltcp_sock *)word;
}

/* mltcp_main.c */
extern struct mltcp_params mltcp_defaults; /* of flows without a job; fields change one by one */
extern unsigned int mltcp_enabled; /* 0: every flow is its base */

/* mltcp_variants.c */
#define MLTCP_VARIANTS 4
extern struct mltcp_variant mltcp_variants[MLTCP_VARIANTS];
int mltcp_variants_init(void);
void mltcp_variants_exit(void);
size_t mltcp_variants_names(char *to, size_t size);

/* The one whose operations these are, NULL for others: all that a socket can have are in the table. */
static inline struct mltcp_variant *mltcp_variant_of(const struct tcp_congestion_ops *ops)
{
	unsigned long offset = (unsigned long)ops - (unsigned long)mltcp_variants;

	return offset < sizeof(mltcp_variants) ? &mltcp_variants[offset / sizeof(*mltcp_variants)]
					       : NULL;
}

/* A flow keeps the number of its variant, which takes less room than a pointer. */
static inline const struct mltcp_variant *mltcp_variant_at(u8 number)
{
	return &mltcp_variants[number];
}

/* The one that drives a socket, where one of ours does. */
static inline struct mltcp_variant *mltcp_variant_of_socket(const struct sock *sk)
{
	return mltcp_variant_of(inet_csk(sk)->icsk_ca_ops);
}

/* mltcp_cc.c */
extern const struct tcp_congestion_ops mltcp_cc_ops;
/*
 * Give a locked socket to a job (NULL: to none), and take over the reference to it. Fails
 * unless one of our congestion controls drives the socket.
 */
int mltcp_cc_retag(struct sock *sk, struct mltcp_job_ref *job);

/* mltcp_state.c */
/* Begin with the base, and with our part if there is memory, where the kernel calls init. */
void mltcp_start(struct sock *sk);
/*
 * Whose operations act on a locked socket without our part, begun with now if they weren't; NULL:
 * nobody's yet. It may have our part afterwards.
 */
const struct tcp_congestion_ops *mltcp_need_anew(struct sock *sk);
/*
 * Was the base initialised for a locked socket without our part? If it wrote over that since, then
 * what the part pointed to is gone.
 */
bool mltcp_has_begun_bare(struct sock *sk);

/* mltcp_flows.c */
int mltcp_flows_init(void);
void mltcp_flows_exit(void);
void mltcp_flows_net_init(struct mltcp_net *mn);
void mltcp_flows_net_close(struct mltcp_net *mn);
struct mltcp_sock *mltcp_flow_new(struct sock *sk, const struct mltcp_variant *variant);
void mltcp_flow_free(struct mltcp_sock *ms);
/* The flow of a locked socket, which the table alone knows any more; NULL: it has none. */
struct mltcp_sock *mltcp_flow_find(const struct sock *sk);
/* Is handed a flow, under the lock of a part; false: there is no room for it. */
typedef bool mltcp_tell_flow(void *to, const struct mltcp_sock *ms);
/*
 * Tell of the flows behind the place, until there is no room (false), and set the place to the last
 * one told. Flows that are there all the time are told once, whatever comes and goes between calls.
 */
bool mltcp_flows_tell(struct mltcp_net *mn, struct mltcp_place *at, mltcp_tell_flow *tell,
		      void *to);

/* mltcp_paths.c */
/* Where the flows of the socket's path, or those of a job there, keep what they share, and the key. */
u64 *mltcp_path(const struct sock *sk, u32 job, u32 *key);

/* mltcp_net.c */
int mltcp_nets_init(void);
void mltcp_nets_exit(void);
extern unsigned int mltcp_net_id;
static inline struct mltcp_net *mltcp_net(const struct net *net)
{
	return net_generic(net, mltcp_net_id);
}
/* What the namespace has received and sent by IP in all, without loopback's. */
struct mltcp_host mltcp_net_host(const struct net *net, u64 now);
/* The namespace at *id or the first after it, and set *id to it; under RCU. NULL: there is none. */
struct mltcp_net *mltcp_net_from(u32 *id);

/* mltcp_jobs.c */
void mltcp_jobs_net_init(struct mltcp_net *mn);
void mltcp_jobs_net_retire(struct mltcp_net *mn);
void mltcp_jobs_net_exit(struct mltcp_net *mn);
int mltcp_job_set(struct net *net, u32 id, const struct mltcp_job *job, bool trusted,
		  struct netlink_ext_ack *extack);
int mltcp_job_delete(struct net *net, u32 id);
struct mltcp_job_ref *mltcp_job_get(struct net *net, u32 id);
void mltcp_job_put(struct mltcp_job_ref *ref);
/* Copy the job at *id or the first after it, and set *id to it; false when there is none. */
bool mltcp_job_next(struct net *net, u32 *id, struct mltcp_job *job);

/* mltcp_rules.c */
extern u32 mltcp_rules_changes; /* so many times did rules change */
/* The job of the rule that is for the socket, with a reference; NULL: none. */
struct mltcp_job_ref *mltcp_rules_job(const struct sock *sk);
/* Forget rules whose job was deleted, or whose cgroup has ended. */
void mltcp_rules_reap(void);
/*
 * Set the rule for the cgroup behind the caller's descriptor, for as long as the netlink socket
 * `portid` of the namespace lives. Takes over the reference to the job if it succeeds.
 */
int mltcp_rule_set(int fd, struct mltcp_job_ref *job, const struct mltcp_rule_ports *ports,
		   const struct net *net, u32 portid, struct netlink_ext_ack *extack);
int mltcp_rule_delete(u64 id);
/* Is handed a rule, under the lock of rules; false: there is no room for it. */
typedef bool mltcp_tell_rule(void *to, const struct mltcp_rule_record *record);
/* Tell of the rules for jobs of the namespace, as of flows. */
void mltcp_rules_tell(const struct net *net, struct mltcp_place *at, mltcp_tell_rule *tell,
		      void *to);
int mltcp_rules_init(void);
void mltcp_rules_exit(void);

/* mltcp_attrs.c */
extern const struct nla_policy mltcp_params_policy[MLTCP_P_COUNT];
/* Those given, over what params holds already. */
int mltcp_get_params(const struct nlattr *nested, struct mltcp_params *params,
		     struct netlink_ext_ack *extack);
int mltcp_put_job(struct sk_buff *skb, u32 id, const struct mltcp_job *job);
/* A flow in the table, as it is now. */
int mltcp_put_flow(struct sk_buff *skb, const struct mltcp_sock *ms);
/* The iteration that a flow of a locked socket has ended. */
int mltcp_put_iteration(struct sk_buff *skb, const struct mltcp_sock *ms);
int mltcp_put_rule(struct sk_buff *skb, const struct mltcp_rule_record *record);

/* mltcp_reports.c */
extern struct genl_family mltcp_family; /* whose requests mltcp_netlink.c answers */
/* Tell listeners of the flow's iteration that has ended. */
void mltcp_report(const struct mltcp_sock *ms);

/* mltcp_netlink.c */
int mltcp_netlink_init(void);
void mltcp_netlink_exit(void);

#endif
