// SPDX-License-Identifier: GPL-2.0-only
/*
 * What user space asks of the generic netlink family "mltcp": jobs, tags, flows. mltcp.yaml
 * describes the interface, mltcp_reports.c has the family and what it tells unasked.
 *
 * Several requests run at once, each under locks of its own. None waits for anything that a user
 * can hold.
 */
#include "mltcp.h"

/* The policies also say which attributes a command takes: any other is refused. */
static const struct nla_policy no_policy[] = {
	[MLTCP_A_PAD] = {.type = NLA_REJECT},
};

static const struct nla_policy fd_policy[] = {
	[MLTCP_A_FD] = NLA_POLICY_MIN(NLA_S32, 0),
};

static const struct nla_policy job_policy[] = {
	[MLTCP_A_JOB_ID] = NLA_POLICY_MIN(NLA_U32, 1),
};

static const struct nla_policy job_set_policy[] = {
	[MLTCP_A_JOB_ID] = NLA_POLICY_MIN(NLA_U32, 1),
	[MLTCP_A_JOB_NAME] = {.type = NLA_NUL_STRING, .len = MLTCP_JOB_NAME_BYTES - 1},
	[MLTCP_A_JOB_PARAMS] = NLA_POLICY_NESTED(mltcp_params_policy),
};

static const struct nla_policy tag_policy[] = {
	[MLTCP_A_JOB_ID] = NLA_POLICY_MIN(NLA_U32, 1),
	[MLTCP_A_FD] = NLA_POLICY_MIN(NLA_S32, 0),
};

static const struct nla_policy rule_set_policy[] = {
	[MLTCP_A_JOB_ID] = NLA_POLICY_MIN(NLA_U32, 1),
	[MLTCP_A_FD] = NLA_POLICY_MIN(NLA_S32, 0),
	[MLTCP_A_LOWEST_PORT] = {.type = NLA_U16},
	[MLTCP_A_NOT_PORTS] = NLA_POLICY_EXACT_LEN(MLTCP_RULE_PORTS * sizeof(u16)),
};

static const struct nla_policy rule_policy[] = {
	[MLTCP_A_CGROUP] = {.type = NLA_U64},
};

/* Is the attribute given? If not, the message, a literal, says so. */
static bool has(const struct genl_info *info, int attr, const char *message)
{
	if (info->attrs[attr])
		return true;
	if (info->extack)
		info->extack->_msg = message;
	return false;
}

/*
 * Is a request by the host's administrator? CAP_NET_ADMIN in the initial user namespace isn't enough:
 * a container may be given it with a network namespace of its own.
 */
static bool is_trusted(struct sk_buff *request, const struct net *net)
{
	return net_eq(net, &init_net) && netlink_capable(request, CAP_NET_ADMIN);
}

/* Rules are of the whole host, for cgroups are. */
static int check_rules(struct sk_buff *request, const struct net *net,
		       struct netlink_ext_ack *extack)
{
	if (is_trusted(request, net))
		return 0;
	NL_SET_ERR_MSG(extack, "rules are for the administrator in the host's network namespace");
	return -EPERM;
}

static int mltcp_nl_status_get(struct sk_buff *request, struct genl_info *info)
{
	struct mltcp_net *mn = mltcp_net(genl_info_net(info));
	struct sk_buff *skb;
	char names[64];
	void *header;

	skb = genlmsg_new(NLMSG_GOODSIZE, GFP_KERNEL);
	if (!skb)
		return -ENOMEM;
	header = genlmsg_put_reply(skb, info, &mltcp_family, 0, MLTCP_CMD_STATUS_GET);
	mltcp_variants_names(names, sizeof(names));
	if (!header || nla_put_string(skb, MLTCP_A_NAMES, names) ||
	    nla_put_string(skb, MLTCP_A_VERSION, MLTCP_VERSION) ||
	    nla_put_u64_64bit(skb, MLTCP_A_DROPPED, atomic64_read(&mn->dropped), MLTCP_A_PAD)) {
		nlmsg_free(skb);
		return -EMSGSIZE;
	}
	genlmsg_end(skb, header);
	return genlmsg_reply(skb, info);
}

static int mltcp_nl_job_set(struct sk_buff *request, struct genl_info *info)
{
	struct mltcp_job job = {.params = mltcp_defaults};
	bool trusted;
	int err;

	if (!has(info, MLTCP_A_JOB_ID, "the job's id is missing") ||
	    !has(info, MLTCP_A_JOB_NAME, "the job's name is missing") ||
	    !has(info, MLTCP_A_JOB_PARAMS, "the job's parameters are missing"))
		return -EINVAL;
	err = mltcp_get_params(info->attrs[MLTCP_A_JOB_PARAMS], &job.params, info->extack);
	if (err)
		return err;
	nla_strscpy(job.name, info->attrs[MLTCP_A_JOB_NAME], sizeof(job.name));
	if (!mltcp_params_valid(&job.params)) {
		NL_SET_ERR_MSG_ATTR(info->extack, info->attrs[MLTCP_A_JOB_PARAMS],
				    "a parameter is out of range");
		return -ERANGE;
	}
	trusted = is_trusted(request, genl_info_net(info));
	if (!trusted && !mltcp_params_open(&job.params, &mltcp_defaults)) {
		GENL_SET_ERR_MSG(info, "pushier than without a job: only for the host's own root");
		return -EACCES;
	}
	return mltcp_job_set(genl_info_net(info), nla_get_u32(info->attrs[MLTCP_A_JOB_ID]), &job,
			     trusted, info->extack);
}

/* A message of a dump. */
struct part {
	struct sk_buff *skb;
	struct netlink_callback *cb;
	u8 cmd;
};

static void *begin(const struct part *part)
{
	return genlmsg_put(part->skb, NETLINK_CB(part->cb->skb).portid, part->cb->nlh->nlmsg_seq,
			   &mltcp_family, NLM_F_MULTI, part->cmd);
}

/* False: there is no room for it, so it comes with the next ones. */
static bool end(const struct part *part, void *header, int err)
{
	if (err)
		genlmsg_cancel(part->skb, header);
	else
		genlmsg_end(part->skb, header);
	return !err;
}

/* cb->args[0]: the next id to look at, args[1]: whether the last one was reached. */
static int mltcp_nl_job_dump(struct sk_buff *skb, struct netlink_callback *cb)
{
	struct part part = {skb, cb, MLTCP_CMD_JOB_GET};
	struct net *net = sock_net(skb->sk);
	struct mltcp_job job;
	u32 id = cb->args[0];
	void *header;

	while (!cb->args[1] && mltcp_job_next(net, &id, &job)) {
		header = begin(&part);
		if (!end(&part, header, !header || mltcp_put_job(skb, id, &job)))
			break;
		cb->args[1] = id == U32_MAX;
		cb->args[0] = ++id;
	}
	return skb->len;
}

static int mltcp_nl_job_del(struct sk_buff *request, struct genl_info *info)
{
	int err;

	if (!has(info, MLTCP_A_JOB_ID, "the job's id is missing"))
		return -EINVAL;
	err = mltcp_job_delete(genl_info_net(info), nla_get_u32(info->attrs[MLTCP_A_JOB_ID]));
	if (err)
		GENL_SET_ERR_MSG(info, "there is no such job");
	return err;
}

/*
 * lock_sock() would wait too long: whoever holds a socket's lock may sleep with it at will, for
 * instance in a page fault of its own making. No other wait is allowed either: registering a family
 * waits for all requests under way, and meanwhile all of generic netlink waits.
 */
static int retag_now(struct sock *sk, struct mltcp_job_ref *job)
{
	int err;

	spin_lock_bh(&sk->sk_lock.slock);
	err = sock_owned_by_user(sk) ? -EBUSY : mltcp_cc_retag(sk, job);
	spin_unlock_bh(&sk->sk_lock.slock);
	return err;
}

/*
 * Replace the tag of the socket behind the caller's descriptor. Takes over the reference to the job
 * (NULL: none) if it succeeds. The job and the socket may be of different namespaces: the caller
 * has the job by its own namespace, and the socket by the descriptor.
 */
static int retag(struct sk_buff *request, struct genl_info *info, struct mltcp_job_ref *job)
{
	struct socket *sock;
	struct sock *sk;
	int err = 0;

	sock = sockfd_lookup(nla_get_s32(info->attrs[MLTCP_A_FD]), &err);
	if (!sock) {
		NL_SET_ERR_MSG_ATTR(info->extack, info->attrs[MLTCP_A_FD],
				    "the descriptor is not a socket");
		return err;
	}
	sk = sock->sk;
	if (sk->sk_type != SOCK_STREAM || sk->sk_protocol != IPPROTO_TCP ||
	    (sk->sk_family != AF_INET && sk->sk_family != AF_INET6)) {
		NL_SET_ERR_MSG_ATTR(info->extack, info->attrs[MLTCP_A_FD],
				    "the descriptor is not a TCP socket");
		err = -EOPNOTSUPP;
		goto put;
	}
	/*
	 * Check both the caller and the opener of the netlink socket: one of them may act for the
	 * other.
	 */
	if (!netlink_ns_capable(request, sock_net(sk)->user_ns, CAP_NET_ADMIN)) {
		GENL_SET_ERR_MSG(info, "CAP_NET_ADMIN is lacking in the socket's namespace");
		err = -EPERM;
		goto put;
	}

	err = retag_now(sk, job);
	if (err == -EBUSY)
		GENL_SET_ERR_MSG(info, "the socket is in use at this moment; ask again");
	else if (err)
		GENL_SET_ERR_MSG(info, "the socket is not connected, or not under MLTCP");
put:
	sockfd_put(sock);
	return err;
}

/* The job that what is behind the descriptor is to have, with a reference, or an error. */
static struct mltcp_job_ref *job_to_give(struct genl_info *info)
{
	struct mltcp_job_ref *job;

	if (!has(info, MLTCP_A_FD, "the descriptor is missing") ||
	    !has(info, MLTCP_A_JOB_ID, "the job's id is missing"))
		return ERR_PTR(-EINVAL);
	job = mltcp_job_get(genl_info_net(info), nla_get_u32(info->attrs[MLTCP_A_JOB_ID]));
	if (!job) {
		GENL_SET_ERR_MSG(info, "there is no such job");
		return ERR_PTR(-ENOENT);
	}
	return job;
}

static int mltcp_nl_tag(struct sk_buff *request, struct genl_info *info)
{
	struct mltcp_job_ref *job = job_to_give(info);
	int err;

	if (IS_ERR(job))
		return PTR_ERR(job);
	err = retag(request, info, job);
	if (err)
		mltcp_job_put(job);
	return err;
}

static int mltcp_nl_untag(struct sk_buff *request, struct genl_info *info)
{
	if (!has(info, MLTCP_A_FD, "the descriptor is missing"))
		return -EINVAL;
	return retag(request, info, NULL);
}

static int mltcp_nl_rule_set(struct sk_buff *request, struct genl_info *info)
{
	struct mltcp_rule_ports ports = {};
	struct mltcp_job_ref *job;
	int err = check_rules(request, genl_info_net(info), info->extack);

	if (err)
		return err;
	job = job_to_give(info);
	if (IS_ERR(job))
		return PTR_ERR(job);
	if (info->attrs[MLTCP_A_LOWEST_PORT])
		ports.lowest = nla_get_u16(info->attrs[MLTCP_A_LOWEST_PORT]);
	if (info->attrs[MLTCP_A_NOT_PORTS])
		nla_memcpy(ports.spared, info->attrs[MLTCP_A_NOT_PORTS], sizeof(ports.spared));
	err = mltcp_rule_set(nla_get_s32(info->attrs[MLTCP_A_FD]), job, &ports, genl_info_net(info),
			     info->snd_portid, info->extack);
	if (err)
		mltcp_job_put(job);
	return err;
}

static int mltcp_nl_rule_del(struct sk_buff *request, struct genl_info *info)
{
	int err = check_rules(request, genl_info_net(info), info->extack);

	if (err)
		return err;
	if (!has(info, MLTCP_A_CGROUP, "the cgroup's id is missing"))
		return -EINVAL;
	err = mltcp_rule_delete(nla_get_u64(info->attrs[MLTCP_A_CGROUP]));
	if (err)
		GENL_SET_ERR_MSG(info, "there is no rule for this cgroup");
	return err;
}

static int mltcp_nl_rule_dump_start(struct netlink_callback *cb)
{
	return check_rules(cb->skb, sock_net(cb->skb->sk), cb->extack);
}

static bool tell_rule(void *to, const struct mltcp_rule_record *record)
{
	struct part *part = to;
	void *header = begin(part);

	return end(part, header, !header || mltcp_put_rule(part->skb, record));
}

static int mltcp_nl_rule_dump(struct sk_buff *skb, struct netlink_callback *cb)
{
	struct part part = {skb, cb, MLTCP_CMD_RULE_GET};
	struct mltcp_place *at = (void *)cb->ctx;

	mltcp_rules_tell(sock_net(skb->sk), at, tell_rule, &part);
	return skb->len;
}

/* How far a dump of the flows has got. */
struct flow_cursor {
	bool all; /* namespaces, as decided when it began */
	u32 net; /* from here on */
	struct mltcp_place place; /* in its table */
};

static int mltcp_nl_flow_dump_start(struct netlink_callback *cb)
{
	struct flow_cursor *at = (void *)cb->ctx;
	struct net *net = sock_net(cb->skb->sk);

	BUILD_BUG_ON(sizeof(*at) > sizeof(cb->ctx));
	/* Everybody may list the sockets of their own namespace, as through sock_diag. */
	at->all = is_trusted(cb->skb, net);
	at->net = at->all ? 0 : mltcp_net(net)->id;
	return 0;
}

static bool tell_flow(void *to, const struct mltcp_sock *ms)
{
	struct part *part = to;
	void *header = begin(part);

	return end(part, header, !header || mltcp_put_flow(part->skb, ms));
}

static int mltcp_nl_flow_dump(struct sk_buff *skb, struct netlink_callback *cb)
{
	struct part part = {skb, cb, MLTCP_CMD_FLOW_GET};
	struct flow_cursor *at = (void *)cb->ctx;
	struct mltcp_net *mn;
	u32 id = at->net;

	rcu_read_lock();
	mn = mltcp_net_from(&id);
	while (mn && (at->all || id == at->net)) {
		if (id != at->net)
			at->place = (struct mltcp_place){};
		at->net = id;
		if (!mltcp_flows_tell(mn, &at->place, tell_flow, &part))
			break;
		id++;
		mn = mltcp_net_from(&id);
	}
	rcu_read_unlock();
	return skb->len;
}

#define MLTCP_OP(command, takes, ...)                                  \
	{                                                              \
		.cmd = MLTCP_CMD_##command, .policy = takes##_policy,  \
		.maxattr = ARRAY_SIZE(takes##_policy) - 1, __VA_ARGS__ \
	}

static const struct genl_ops mltcp_ops[] = {
	MLTCP_OP(STATUS_GET, no, .doit = mltcp_nl_status_get),
	MLTCP_OP(JOB_SET, job_set, .doit = mltcp_nl_job_set, .flags = GENL_UNS_ADMIN_PERM),
	MLTCP_OP(JOB_GET, no, .dumpit = mltcp_nl_job_dump),
	MLTCP_OP(JOB_DEL, job, .doit = mltcp_nl_job_del, .flags = GENL_UNS_ADMIN_PERM),
	MLTCP_OP(TAG, tag, .doit = mltcp_nl_tag, .flags = GENL_UNS_ADMIN_PERM),
	MLTCP_OP(UNTAG, fd, .doit = mltcp_nl_untag, .flags = GENL_UNS_ADMIN_PERM),
	MLTCP_OP(FLOW_GET, no, .start = mltcp_nl_flow_dump_start, .dumpit = mltcp_nl_flow_dump),
	MLTCP_OP(RULE_SET, rule_set, .doit = mltcp_nl_rule_set),
	MLTCP_OP(RULE_GET, no, .start = mltcp_nl_rule_dump_start, .dumpit = mltcp_nl_rule_dump),
	MLTCP_OP(RULE_DEL, rule, .doit = mltcp_nl_rule_del),
};

int __init mltcp_netlink_init(void)
{
	mltcp_family.ops = mltcp_ops;
	mltcp_family.n_ops = ARRAY_SIZE(mltcp_ops);
	return genl_register_family(&mltcp_family);
}

void mltcp_netlink_exit(void)
{
	genl_unregister_family(&mltcp_family);
}
