// SPDX-License-Identifier: GPL-2.0-only
/* `mltcp_reno`: the published algorithm on Reno, the window's increase scaled by F. */
#include <linux/types.h>
#include "../kmod/mltcp_uapi.h"

#define MLTCP_NAME "mltcp_reno"
#define MLTCP_OPS mltcp_reno
#define MLTCP_MECHANISMS MLTCP_SCALE_INCREASE

#include "reno.bpf.h"
