// SPDX-License-Identifier: GPL-2.0-only
/* Jobs, per network namespace. One change at a time in each; flows read under RCU. */
#include "mltcp.h"

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

/* Take the data away, so that flows of the job have none, and drop the table's reference. */
static void mltcp_job_retire(struct mltcp_job_ref *ref)
{
	struct mltcp_job_data *data = rcu_replace_pointer(ref->data, NULL, true);

	if (data)
		kfree_rcu(data, rcu);
	mltcp_job_put(ref);
}

int mltcp_job_set(struct net *net, u32 id, const struct mltcp_job *job, bool trusted,
		  struct netlink_ext_ack *extack)
{
	struct mltcp_net *mn = mltcp_net(net);
	struct mltcp_job_data *data, *old;
	struct mltcp_job_ref *ref;
	int err = 0;

	data = kzalloc(sizeof(*data), GFP_KERNEL_ACCOUNT);
	if (!data)
		return -ENOMEM;
	data->job = *job;
	data->trusted = trusted;

	mutex_lock(&mn->job_lock);
	ref = xa_load(&mn->jobs, id);
	if (ref) {
		old = rcu_replace_pointer(ref->data, data, lockdep_is_held(&mn->job_lock));
		if (old)
			kfree_rcu(old, rcu);
		goto unlock;
	}

	err = -ENOSPC;
	if (mn->job_count >= MLTCP_JOBS_MAX) {
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
	mn->job_count++;
	goto unlock;

free_ref:
	kfree(ref);
free_data:
	kfree(data);
unlock:
	mutex_unlock(&mn->job_lock);
	return err;
}

int mltcp_job_delete(struct net *net, u32 id)
{
	struct mltcp_net *mn = mltcp_net(net);
	struct mltcp_job_ref *ref;

	mutex_lock(&mn->job_lock);
	ref = xa_erase(&mn->jobs, id);
	if (ref) {
		mn->job_count--;
		mltcp_job_retire(ref);
	}
	mutex_unlock(&mn->job_lock);
	mltcp_rules_reap();
	return ref ? 0 : -ENOENT;
}

bool mltcp_job_next(struct net *net, u32 *id, struct mltcp_job *job)
{
	const struct mltcp_job_data *data = NULL;
	struct mltcp_job_ref *ref;
	unsigned long index;

	rcu_read_lock();
	xa_for_each_start (&mltcp_net(net)->jobs, index, ref, *id) {
		/* A job without data was deleted just now; those behind it are still to come. */
		data = rcu_dereference(ref->data);
		if (data)
			break;
	}
	if (data) {
		*job = data->job;
		*id = index;
	}
	rcu_read_unlock();
	return data;
}

void mltcp_jobs_net_init(struct mltcp_net *mn)
{
	mutex_init(&mn->job_lock);
	xa_init_flags(&mn->jobs, XA_FLAGS_ACCOUNT);
}

/* The namespace goes away, and nobody can change its jobs any more. */
void mltcp_jobs_net_retire(struct mltcp_net *mn)
{
	struct mltcp_job_ref *ref;
	unsigned long id;

	xa_for_each (&mn->jobs, id, ref)
		mltcp_job_retire(ref);
}

void mltcp_jobs_net_exit(struct mltcp_net *mn)
{
	xa_destroy(&mn->jobs);
}
