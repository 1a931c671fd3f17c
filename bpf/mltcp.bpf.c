// SPDX-License-Identifier: GPL-2.0-only
/*
 * `mltcp`: the recommended default. Reno with both mechanisms;
 * mltcp_tools/lab/experiments/NOTES.md has the measurements behind the choice of base and constants.
 */
#include <linux/types.h>
#include "../kmod/mltcp_uapi.h"

#define MLTCP_NAME "mltcp"
#define MLTCP_OPS mltcp
#define MLTCP_MECHANISMS (MLTCP_SCALE_INCREASE | MLTCP_YIELD)

#include "reno.bpf.h"
