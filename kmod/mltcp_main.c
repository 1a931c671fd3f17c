// SPDX-License-Identifier: GPL-2.0-only
/*
 * MLTCP as a module: TCP congestion controls that keep the bursts of training jobs apart.
 *
 * Paper: "MLTCP: Congestion Control for DNN Training", arXiv 2402.09589; what differs from it
 * is said in mltcp_core.h and mltcp_learn.h. For hosts whose flows are mostly training traffic:
 * flows that repeat nothing behave as their base algorithm.
 *
 * mltcp_variants.c  the congestion controls, and which of the kernel's own they are around
 * mltcp_cc.c        what they do
 * mltcp_state.c     where a flow's state comes from and goes to
 * mltcp_net.c       network namespaces; of each:
 * mltcp_flows.c     its table of flows
 * mltcp_jobs.c      its jobs
 * mltcp_rules.c     which cgroups' flows are a job's from the beginning
 * mltcp_paths.c     what flows of one path tell each other
 * mltcp_netlink.c   control from user space
 * mltcp_reports.c   reports to it
 * mltcp_attrs.c     the attributes that these are made of
 * This file: parameters of the module, its start and its end.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include "mltcp.h"

#define THOUSAND 1000U

struct mltcp_params mltcp_defaults = {
	MLTCP_DEFAULTS,
	.mechanisms = MLTCP_MECHANISMS_DEFAULT,
};

/* Fixed point is for the machine; people write and read thousandths. */
static int set_thousandths(const char *text, const struct kernel_param *kp, unsigned int max)
{
	unsigned int value;
	int err = kstrtouint(text, 0, &value);

	if (err)
		return err;
	if (value > max)
		return -ERANGE;
	WRITE_ONCE(*(u32 *)kp->arg, div_u64((u64)value * MLTCP_ONE + THOUSAND / 2, THOUSAND));
	return 0;
}

static int set_gain(const char *text, const struct kernel_param *kp)
{
	return set_thousandths(text, kp, THOUSAND * (MLTCP_GAIN_MAX >> MLTCP_SHIFT));
}

static int set_share(const char *text, const struct kernel_param *kp)
{
	return set_thousandths(text, kp, THOUSAND);
}

static int get_thousandths(char *buffer, const struct kernel_param *kp)
{
	u64 fixed = READ_ONCE(*(u32 *)kp->arg);

	return sysfs_emit(buffer, "%llu\n", (fixed * THOUSAND + MLTCP_ONE / 2) >> MLTCP_SHIFT);
}

static const struct kernel_param_ops gain_ops = {.set = set_gain, .get = get_thousandths};
static const struct kernel_param_ops share_ops = {.set = set_share, .get = get_thousandths};

static int set_below(const char *text, const struct kernel_param *kp, u64 max)
{
	u64 value;
	int err = kstrtou64(text, 0, &value);

	if (err)
		return err;
	if (value > max)
		return -ERANGE;
	WRITE_ONCE(*(u64 *)kp->arg, value);
	return 0;
}

static int set_gap(const char *text, const struct kernel_param *kp)
{
	return set_below(text, kp, MLTCP_GAP_MAX_NS);
}

static int set_total(const char *text, const struct kernel_param *kp)
{
	return set_below(text, kp, MLTCP_TOTAL_MAX);
}

static const struct kernel_param_ops gap_ops = {.set = set_gap, .get = param_get_ullong};
static const struct kernel_param_ops total_ops = {.set = set_total, .get = param_get_ullong};

module_param_cb(slope, &gain_ops, &mltcp_defaults.slope, 0644);
MODULE_PARM_DESC(slope, "slope of F for flows without a job, thousandths, 0 to 8000 (1750)");
module_param_cb(intercept, &gain_ops, &mltcp_defaults.intercept, 0644);
MODULE_PARM_DESC(intercept, "intercept of F likewise; F is 8000 at most (250)");
module_param_cb(yield_min, &share_ops, &mltcp_defaults.yield_min, 0644);
MODULE_PARM_DESC(yield_min, "share of a full queue's delay borne at ratio 0, thousandths (600)");
module_param_cb(yield_max, &share_ops, &mltcp_defaults.yield_max, 0644);
MODULE_PARM_DESC(yield_max, "the same at ratio 1, thousandths (1000)");
module_param_cb(burst_bytes, &total_ops, &mltcp_defaults.burst_bytes, 0644);
MODULE_PARM_DESC(burst_bytes, "bytes per iteration of a flow without a job; 0: learned (0)");
module_param_cb(gap_ns, &gap_ops, &mltcp_defaults.gap_ns, 0644);
MODULE_PARM_DESC(gap_ns, "nanoseconds with nothing unacknowledged between iterations; 0: learned");

unsigned int mltcp_enabled = 1;

module_param_named(enabled, mltcp_enabled, uint, 0644);
MODULE_PARM_DESC(enabled, "0: every flow is its base from its next decision on (1)");

static int __init mltcp_module_init(void)
{
	int err;

	err = mltcp_flows_init();
	if (err)
		return err;
	err = mltcp_nets_init();
	if (err)
		goto undo_flows;
	err = mltcp_rules_init();
	if (err)
		goto undo_nets;
	err = mltcp_netlink_init();
	if (err)
		goto undo_rules;
	/* This comes last: from here on sockets may choose our congestion controls. */
	err = mltcp_variants_init();
	if (err)
		goto undo_netlink;
	return 0;

undo_netlink:
	mltcp_netlink_exit();
undo_rules:
	mltcp_rules_exit();
undo_nets:
	mltcp_nets_exit();
undo_flows:
	mltcp_flows_exit();
	return err;
}

static void __exit mltcp_module_exit(void)
{
	mltcp_variants_exit();
	mltcp_netlink_exit();
	mltcp_rules_exit();
	mltcp_nets_exit();
	mltcp_flows_exit();
}

module_init(mltcp_module_init);
module_exit(mltcp_module_exit);

MODULE_DESCRIPTION("MLTCP: TCP congestion control for training jobs");
MODULE_LICENSE("GPL");
MODULE_VERSION(MLTCP_VERSION);
