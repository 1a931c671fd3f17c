/* SPDX-License-Identifier: GPL-2.0-only */
/* What the parts of the module share. */
#ifndef MLTCP_H
#define MLTCP_H

#include "compat.h"

#define mltcp_div64(n, d) div64_u64(n, d)
#define MLTCP_READ_ONCE(x) READ_ONCE(x)
#define MLTCP_WRITE_ONCE(x, value) WRITE_ONCE(x, value)
#include "mltcp_core.h"

/* What each ACK needs of a flow's state is in so many bytes: two cache lines. */
#define MLTCP_HOT_BYTES 128

/* More jobs than a host has processes to run them is a mistake. Per network namespace. */
#define MLTCP_JOBS_MAX 4096

/* What user space may replace of a job while flows use it. */
struct mltcp_job_data {
	struct rcu_head rcu;
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

/* One of our congestion controls. */
struct mltcp_variant {
	const char *name;
	const char *base_name;
	u32 mechanisms; /* where a job doesn't say */
	u32 flags; /* TCP_CONG_*, besides the base's */
	bool yield_holds; /* no increase while yielding: the base's makes for where it was */
	struct socket *holder; /* keeps the base; NULL: this kernel lacks it */
	const struct tcp_congestion_ops *base;
	struct tcp_congestion_ops ops; /* registered */
	struct tcp_congestion_ops
		ops_without_ecn; /* for a base that found no ECN on a connection */
};

/* State of one flow, at the end of the private area its base doesn't use. */
struct mltcp_sock {
	const struct tcp_congestion_ops *base; /* what the base's init left in charge */
	const struct mltcp_variant *variant;
	struct sock *sk;
	u32 watches_queue; /* not 0: the flow may yield, so samples of the delay are looked at */
	struct mltcp_flow flow; /* protected by the socket's lock */
	const struct net *net; /* to compare with, never to follow */
	struct mltcp_job_ref __rcu
		*job; /* the tag, with a reference; the socket's lock to change */
	u32 index; /* in the table of flows */
	struct rcu_head rcu;
};

/* mltcp_main.c */
extern struct mltcp_params mltcp_defaults; /* of flows without a job; fields change one by one */

/* mltcp_variants.c */
int mltcp_variants_init(void);
void mltcp_variants_exit(void);
size_t mltcp_variants_names(char *to, size_t size);
/* The one whose operations these are, NULL for others. */
struct mltcp_variant *mltcp_variant_of(const struct tcp_congestion_ops *ops);

/* mltcp_cc.c */
extern const struct tcp_congestion_ops mltcp_cc_ops;
/*
 * Give a locked socket to a job (NULL: to none), and take over the reference to it. Fails
 * unless one of our congestion controls drives the socket.
 */
int mltcp_cc_retag(struct sock *sk, struct mltcp_job_ref *job);

/* mltcp_flows.c */
int mltcp_flows_init(void);
void mltcp_flows_exit(void);
struct mltcp_sock *mltcp_flow_new(struct sock *sk);
void mltcp_flow_free(struct mltcp_sock *ms);
/* The flows of one namespace, or with NULL of all. May sleep. */
u32 mltcp_flow_count(const struct net *net);
/* Describe the first of them from *index on, and set *index to it; false after the last one. */
bool mltcp_flow_next(const struct net *net, u32 *index, struct mltcp_flow_record *record);
void mltcp_flow_event(const struct mltcp_sock *ms, struct mltcp_event *event);

/* mltcp_paths.c */
/* Where what is known of the socket's path is kept, and the path's key. */
u64 *mltcp_path(const struct sock *sk, u32 *key);

/* mltcp_jobs.c */
int mltcp_jobs_init(void);
void mltcp_jobs_exit(void);
int mltcp_job_set(struct net *net, u32 id, const struct mltcp_job *job,
		  struct netlink_ext_ack *extack);
int mltcp_job_delete(struct net *net, u32 id);
struct mltcp_job_ref *mltcp_job_get(struct net *net, u32 id);
void mltcp_job_put(struct mltcp_job_ref *ref);
/* Copy the job at *id or the first after it, and set *id to it; false when there is none. */
bool mltcp_job_next(struct net *net, u32 *id, struct mltcp_job *job);
u32 mltcp_job_count(struct net *net);
atomic64_t *mltcp_dropped(struct net *net);

/* mltcp_netlink.c */
int mltcp_netlink_init(void);
void mltcp_netlink_exit(void);
/* Tell the namespace's listeners of the iteration that has ended. */
void mltcp_netlink_report(struct net *net, const struct mltcp_sock *ms);

#endif
