// SPDX-License-Identifier: GPL-2.0-only
/*
 * Jobs, per network namespace. Changes come from generic netlink, one at a time (its mutex);
 * flows read under RCU.
 */
#include "mltcp.h"

struct mltcp_net {
	struct xarray jobs; /* id -> struct mltcp_job_ref */
	u32 count;
	atomic64_t dropped; /* iterations that found a listener's receive queue full */
};

static unsigned int mltcp_net_id;

static struct mltcp_net *mltcp_net(struct net *net)
{
	return net_generic(net, mltcp_net_id);
}

void mltcp_job_put(struct mltcp_job_ref *ref)
{
	if (ref && refcount_dec_and_test(&ref->refs))
		kfree_rcu(ref, rcu);
}

struct mltcp_job_ref *mltcp_job_get(struct net *net, u32 id)
{
	struct mltcp_job_ref *ref;

	rcu_read_lock();
	ref = xa_load(&mltcp_net(net)->jobs, id);
	if (ref && !refcount_inc_not_zero(&ref->refs))
		ref = NULL;
	rcu_read_unlock();
	return ref;
}

/* Take the data away, so that its flows have no job, and drop the table's reference. */
static void mltcp_job_retire(struct mltcp_job_ref *ref)
{
	struct mltcp_job_data *data = rcu_replace_pointer(ref->data, NULL, true);

	if (data)
		kfree_rcu(data, rcu);
	mltcp_job_put(ref);
}

int mltcp_job_set(struct net *net, u32 id, const struct mltcp_job *job,
		  struct netlink_ext_ack *extack)
{
	struct mltcp_net *mn = mltcp_net(net);
	struct mltcp_job_data *data, *old;
	struct mltcp_job_ref *ref;
	int err;

	data = kzalloc(sizeof(*data), GFP_KERNEL_ACCOUNT);
	if (!data)
		return -ENOMEM;
	data->job = *job;

	ref = xa_load(&mn->jobs, id);
	if (ref) {
		old = rcu_replace_pointer(ref->data, data, true);
		if (old)
			kfree_rcu(old, rcu);
		return 0;
	}

	err = -ENOSPC;
	if (mn->count >= MLTCP_JOBS_MAX) {
		NL_SET_ERR_MSG(extack, "the table of jobs is full");
		goto free_data;
	}
	err = -ENOMEM;
	ref = kzalloc(sizeof(*ref), GFP_KERNEL_ACCOUNT);
	if (!ref)
		goto free_data;
	refcount_set(&ref->refs, 1);
	ref->id = id;
	ref->net = net;
	RCU_INIT_POINTER(ref->data, data);
	err = xa_err(xa_store(&mn->jobs, id, ref, GFP_KERNEL));
	if (err)
		goto free_ref;
	mn->count++;
	return 0;

free_ref:
	kfree(ref);
free_data:
	kfree(data);
	return err;
}

int mltcp_job_delete(struct net *net, u32 id)
{
	struct mltcp_net *mn = mltcp_net(net);
	struct mltcp_job_ref *ref = xa_erase(&mn->jobs, id);

	if (!ref)
		return -ENOENT;
	mn->count--;
	mltcp_job_retire(ref);
	return 0;
}

bool mltcp_job_next(struct net *net, u32 *id, struct mltcp_job *job)
{
	const struct mltcp_job_data *data = NULL;
	struct mltcp_job_ref *ref;
	unsigned long index = *id;

	rcu_read_lock();
	ref = xa_find(&mltcp_net(net)->jobs, &index, U32_MAX, XA_PRESENT);
	if (ref)
		data = rcu_dereference(ref->data);
	if (data)
		*job = data->job;
	rcu_read_unlock();
	*id = index;
	return data;
}

u32 mltcp_job_count(struct net *net)
{
	return READ_ONCE(mltcp_net(net)->count);
}

atomic64_t *mltcp_dropped(struct net *net)
{
	return &mltcp_net(net)->dropped;
}

static int __net_init mltcp_net_init(struct net *net)
{
	xa_init_flags(&mltcp_net(net)->jobs, XA_FLAGS_ACCOUNT);
	return 0;
}

/* The core waits for RCU readers after this and before it takes netlink down. */
static void __net_exit mltcp_net_pre_exit(struct net *net)
{
	struct mltcp_job_ref *ref;
	unsigned long id;

	xa_for_each (&mltcp_net(net)->jobs, id, ref)
		mltcp_job_retire(ref);
}

static void __net_exit mltcp_net_exit(struct net *net)
{
	xa_destroy(&mltcp_net(net)->jobs);
}

static struct pernet_operations mltcp_net_ops = {
	.init = mltcp_net_init,
	.pre_exit = mltcp_net_pre_exit,
	.exit = mltcp_net_exit,
	.id = &mltcp_net_id,
	.size = sizeof(struct mltcp_net),
};

int mltcp_jobs_init(void)
{
	return register_pernet_subsys(&mltcp_net_ops);
}

void mltcp_jobs_exit(void)
{
	unregister_pernet_subsys(&mltcp_net_ops);
}
