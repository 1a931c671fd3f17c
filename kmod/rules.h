/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the kernel module and user space agree on about rules: numbers of the generic netlink family
 * that follow those of mltcp_uapi.h. They stand apart, for that file is of the algorithm, by whose
 * version published figures are known.
 */
#ifndef MLTCP_RULES_H
#define MLTCP_RULES_H

#include "mltcp_uapi.h"

/* Ports that a rule names. */
#define MLTCP_RULE_PORTS 4

/* MLTCP_A_FD is of a cgroup's folder here. */
enum mltcp_rule_cmd {
	MLTCP_CMD_RULE_SET = MLTCP_CMD_COUNT, /* do: flows of a cgroup are the job's */
	MLTCP_CMD_RULE_GET, /* dump: the rules for jobs of the namespace */
	MLTCP_CMD_RULE_DEL, /* do: the rule for the cgroup MLTCP_A_CGROUP */
	MLTCP_CMDS
};

enum mltcp_rule_attr {
	MLTCP_A_CGROUP = MLTCP_A_COUNT, /* u64, id of a cgroup v2, the inode of its folder */
	MLTCP_A_LOWEST_PORT, /* u16, a rule leaves connections with a lower port alone */
	MLTCP_A_NOT_PORTS, /* MLTCP_RULE_PORTS u16, and those with one of these; 0: none */
	MLTCP_ATTRS
};

#endif
