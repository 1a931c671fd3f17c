// SPDX-License-Identifier: GPL-2.0-only
/*
 * Rules: flows of a cgroup's processes belong to a job from their first data on, without a look at
 * any process. A socket is of the cgroup in which it was made, a peer's connection of its listener's.
 *
 * A rule stands as long as the netlink socket through which it came, so that none outlives its owner,
 * and no longer than its job. A rule whose cgroup has ended, which the kernel tells nobody, is dropped
 * where rules change or are listed: its owner lists them now and then. A flow takes its rule where it begins, and where
 * it begins to send after the rules have changed; with an ACK only where it had no memory before.
 */
#include <linux/cgroup.h>
#include <linux/hashtable.h>
#include <linux/netlink.h>
#include "mltcp.h"

#define RULE_BITS 8

struct mltcp_rule {
	struct hlist_node node; /* found under RCU */
	u64 id; /* of the cgroup; never given twice */
	u64 number; /* in the order in which rules came */
	struct cgroup *cgroup; /* with a reference */
	struct mltcp_job_ref *job; /* likewise */
	u32 portid; /* of the netlink socket, in the namespace: whose rule it is */
	const struct net *net; /* compared alone */
	struct mltcp_rule_ports ports;
	struct rcu_head rcu;
};

static DEFINE_MUTEX(rule_lock); /* to change rules */
static DEFINE_HASHTABLE(rules, RULE_BITS);
static u32 rule_count; /* changed under the lock, read without */
u32 mltcp_rules_changes; /* likewise; wraps */
static u64 rules_added; /* so many ever */

/* Flows look anew from now on. After the change, so that none keeps what was before. */
static void tell_flows(void)
{
	smp_store_release(&mltcp_rules_changes, mltcp_rules_changes + 1);
}

/* With the lock held. Flows that follow the rule have references of their own to the job. */
static void drop(struct mltcp_rule *rule)
{
	hash_del_rcu(&rule->node);
	WRITE_ONCE(rule_count, rule_count - 1);
	cgroup_put(rule->cgroup);
	mltcp_job_put(rule->job);
	kfree_rcu(rule, rcu);
}

static bool is_over(const struct mltcp_rule *rule)
{
	return !(READ_ONCE(rule->cgroup->self.flags) & CSS_ONLINE) ||
	       !rcu_access_pointer(rule->job->data);
}

/* Drop the rules that are over, and those of a netlink socket, if net isn't NULL. */
static void drop_some(const struct net *net, u32 portid)
{
	struct mltcp_rule *rule;
	struct hlist_node *next;
	bool any = false;
	int bucket;

	lockdep_assert_held(&rule_lock);
	hash_for_each_safe(rules, bucket, next, rule, node)
	{
		if ((net && rule->net == net && rule->portid == portid) || is_over(rule)) {
			drop(rule);
			any = true;
		}
	}
	if (any)
		tell_flows();
}

void mltcp_rules_reap(void)
{
	if (!READ_ONCE(rule_count))
		return;
	mutex_lock(&rule_lock);
	drop_some(NULL, 0);
	mutex_unlock(&rule_lock);
}

static struct mltcp_rule *find(u64 id)
{
	struct mltcp_rule *rule;

	hash_for_each_possible_rcu(rules, rule, node, id,
				   lockdep_is_held(&rule_lock)) if (rule->id == id) return rule;
	return NULL;
}

static bool is_left_alone(const struct sock *sk, const struct mltcp_rule_ports *ports)
{
	u16 local = inet_sk(sk)->inet_num, remote = ntohs(sk->sk_dport);
	int i;

	if (local < ports->lowest || remote < ports->lowest)
		return true;
	for (i = 0; i < MLTCP_RULE_PORTS; i++)
		if (ports->spared[i] && (ports->spared[i] == local || ports->spared[i] == remote))
			return true;
	return false;
}

/* The socket keeps its cgroup, and that its ancestors. The nearest one with a rule counts. */
struct mltcp_job_ref *mltcp_rules_job(const struct sock *sk)
{
	struct mltcp_job_ref *job = NULL;
	struct mltcp_rule *rule = NULL;
	struct cgroup *cgroup;

	if (!READ_ONCE(rule_count))
		return NULL;
	rcu_read_lock();
	cgroup = sock_cgroup_ptr((struct sock_cgroup_data *)&sk->sk_cgrp_data);
	for (; cgroup && !rule; cgroup = cgroup_parent(cgroup))
		rule = find(cgroup_id(cgroup));
	if (rule && !is_left_alone(sk, &rule->ports) && rcu_access_pointer(rule->job->data) &&
	    refcount_inc_not_zero(&rule->job->refs))
		job = rule->job;
	rcu_read_unlock();
	return job;
}

int mltcp_rule_set(int fd, struct mltcp_job_ref *job, const struct mltcp_rule_ports *ports,
		   const struct net *net, u32 portid, struct netlink_ext_ack *extack)
{
	struct mltcp_rule *rule, *old;
	int err;

	rule = kzalloc(sizeof(*rule), GFP_KERNEL_ACCOUNT);
	if (!rule)
		return -ENOMEM;
	rule->cgroup = cgroup_get_from_fd(fd);
	if (IS_ERR(rule->cgroup)) {
		NL_SET_ERR_MSG(extack,
			       "the descriptor is not of the folder of a cgroup of version 2");
		err = PTR_ERR(rule->cgroup);
		goto free;
	}
	rule->id = cgroup_id(rule->cgroup);
	rule->job = job;
	rule->ports = *ports;
	rule->net = net;
	rule->portid = portid;

	mutex_lock(&rule_lock);
	drop_some(NULL, 0);
	old = find(rule->id);
	if (!old && rule_count >= MLTCP_RULES_MAX) {
		NL_SET_ERR_MSG(extack, "the table of rules is full");
		err = -ENOSPC;
		goto unlock;
	}
	if (old)
		drop(old);
	rule->number = ++rules_added;
	hash_add_rcu(rules, &rule->node, rule->id);
	WRITE_ONCE(rule_count, rule_count + 1);
	tell_flows();
	mutex_unlock(&rule_lock);
	return 0;

unlock:
	mutex_unlock(&rule_lock);
	cgroup_put(rule->cgroup);
free:
	kfree(rule);
	return err;
}

int mltcp_rule_delete(u64 id)
{
	struct mltcp_rule *rule;

	mutex_lock(&rule_lock);
	rule = find(id);
	if (rule) {
		drop(rule);
		tell_flows();
	}
	mutex_unlock(&rule_lock);
	return rule ? 0 : -ENOENT;
}

void mltcp_rules_tell(const struct net *net, struct mltcp_place *at, mltcp_tell_rule *tell,
		      void *to)
{
	struct mltcp_rule *rule;

	mutex_lock(&rule_lock);
	drop_some(NULL, 0);
	for (; at->list < HASH_SIZE(rules); at->list++, at->number = 0) {
		hlist_for_each_entry (rule, &rules[at->list], node) {
			struct mltcp_rule_record record = {
				.cgroup = rule->id,
				.job = rule->job->id,
				.ports = rule->ports,
			};

			/* Jobs of other namespaces have ids that say nothing here. */
			if ((at->number && rule->number >= at->number) || rule->job->net != net)
				continue;
			if (!tell(to, &record))
				goto unlock;
			at->number = rule->number;
		}
	}
unlock:
	mutex_unlock(&rule_lock);
}

/* A netlink socket is closed, so whatever came through it goes. */
static int forget_socket(struct notifier_block *block, unsigned long event, void *data)
{
	const struct netlink_notify *closed = data;

	if (event != NETLINK_URELEASE || closed->protocol != NETLINK_GENERIC ||
	    !READ_ONCE(rule_count))
		return NOTIFY_DONE;
	mutex_lock(&rule_lock);
	drop_some(closed->net, closed->portid);
	mutex_unlock(&rule_lock);
	return NOTIFY_DONE;
}

static struct notifier_block socket_notifier = {.notifier_call = forget_socket};

int __init mltcp_rules_init(void)
{
	return netlink_register_notifier(&socket_notifier);
}

/* Nobody sets rules any more, and no flow is left. */
void mltcp_rules_exit(void)
{
	struct mltcp_rule *rule;
	struct hlist_node *next;
	int bucket;

	netlink_unregister_notifier(&socket_notifier);
	mutex_lock(&rule_lock);
	hash_for_each_safe(rules, bucket, next, rule, node) drop(rule);
	mutex_unlock(&rule_lock);
}
