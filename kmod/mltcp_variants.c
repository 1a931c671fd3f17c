// SPDX-License-Identifier: GPL-2.0-only
/*
 * The congestion controls there are, around which of the kernel's own, and their registration. A
 * kernel socket that chose the base by its name yields the base's operations and holds its module.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include "mltcp.h"

#define SCALE_ALL (MLTCP_SCALE_INCREASE | MLTCP_YIELD)

struct mltcp_variant mltcp_variants[MLTCP_VARIANTS] = {
	{.name = "mltcp",
	 .base_name = "reno",
	 .has_room = true,
	 .mechanisms = SCALE_ALL,
	 .flags = TCP_CONG_NON_RESTRICTED},
	{.name = "mltcp_reno",
	 .base_name = "reno",
	 .has_room = true,
	 .mechanisms = MLTCP_SCALE_INCREASE,
	 .flags = TCP_CONG_NON_RESTRICTED},
	{.name = "mltcp_cubic",
	 .base_name = "cubic",
	 .mechanisms = MLTCP_SCALE_INCREASE,
	 .yield_holds = true,
	 .flags = TCP_CONG_NON_RESTRICTED},
	/* For whom the administrator allows it, as dctcp: it pushes others aside (RFC 8257, 5). */
	{.name = "mltcp_dctcp", .base_name = "dctcp", .mechanisms = SCALE_ALL},
};

/* Choosing an unknown congestion control asks for tcp_NAME; tcp_mltcp is the module's own name. */
MODULE_ALIAS("tcp_mltcp_reno");
MODULE_ALIAS("tcp_mltcp_cubic");
MODULE_ALIAS("tcp_mltcp_dctcp");
MODULE_SOFTDEP("pre: tcp_cubic tcp_dctcp");

/* A socket that holds the algorithm of that name, so that its module stays. */
static struct socket *__init hold_base(const char *name)
{
	struct socket *holder;
	int err;

	err = sock_create_kern(&init_net, PF_INET, SOCK_STREAM, IPPROTO_TCP, &holder);
	if (err)
		return ERR_PTR(err);
	err = holder->ops->setsockopt(holder, SOL_TCP, TCP_CONGESTION, KERNEL_SOCKPTR((char *)name),
				      strlen(name));
	if (err) {
		sock_release(holder);
		return ERR_PTR(err);
	}
	return holder;
}

/* Ours, without the optional operations that the base does without. */
static void __init wrap(struct mltcp_variant *variant)
{
	const struct tcp_congestion_ops *base = variant->base;
	struct tcp_congestion_ops *ops = &variant->ops;

	*ops = mltcp_cc_ops;
	if (!base->in_ack_event)
		ops->in_ack_event = NULL;
	if (!base->get_info)
		ops->get_info = NULL;
	strscpy(ops->name, variant->name, sizeof(ops->name));
	ops->flags = variant->flags | (base->flags & ~TCP_CONG_NON_RESTRICTED);
}

/* Why no variant can be built on these operations; NULL: one can. */
static const char *__init unfit(const struct tcp_congestion_ops *base)
{
	if (!base->cong_avoid || base->cong_control)
		return "it does without cong_avoid";
	if (base->flags & TCP_CONG_NEEDS_ECN && !mltcp_variants->holder)
		return "its connections without ECN need mltcp";
	if (base->owner == BPF_MODULE_OWNER)
		return "it is an eBPF program here";
	return NULL;
}

static int __init add(struct mltcp_variant *variant)
{
	struct socket *holder = hold_base(variant->base_name);
	const char *why;
	int err;

	if (IS_ERR(holder)) {
		pr_info("no %s: this kernel lacks %s (%ld)\n", variant->name, variant->base_name,
			PTR_ERR(holder));
		return PTR_ERR(holder);
	}
	variant->base = inet_csk(holder->sk)->icsk_ca_ops;
	why = unfit(variant->base);
	if (why) {
		pr_warn("no %s on %s: %s\n", variant->name, variant->base_name, why);
		err = -EOPNOTSUPP;
		goto release;
	}
	wrap(variant);
	err = tcp_register_congestion_control(&variant->ops);
	if (err) {
		pr_warn("no %s: the name is taken or refused (%d)\n", variant->name, err);
		goto release;
	}
	variant->holder = holder;
	return 0;

release:
	sock_release(holder);
	return err;
}

/* Those whose base this kernel has; an error if that is none. */
int __init mltcp_variants_init(void)
{
	int i, err = 0, added = 0;

	for (i = 0; i < ARRAY_SIZE(mltcp_variants); i++) {
		int result = add(&mltcp_variants[i]);

		if (result)
			err = result;
		else
			added++;
	}
	return added ? 0 : err;
}

/* No socket has them any more: each holds a reference to the module. */
void mltcp_variants_exit(void)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(mltcp_variants); i++) {
		if (!mltcp_variants[i].holder)
			continue;
		tcp_unregister_congestion_control(&mltcp_variants[i].ops);
		sock_release(mltcp_variants[i].holder);
	}
}

/* The names registered, separated by blanks; the length without the terminator. */
size_t mltcp_variants_names(char *to, size_t size)
{
	size_t length = 0;
	int i;

	*to = '\0';
	for (i = 0; i < ARRAY_SIZE(mltcp_variants); i++)
		if (mltcp_variants[i].holder)
			length += scnprintf(to + length, size - length, "%s%s", length ? " " : "",
					    mltcp_variants[i].name);
	return length;
}
