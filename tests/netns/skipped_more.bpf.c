// SPDX-License-Identifier: BSD-2-Clause
/* The same where programs were skipped before the cut, too, so that it began at a window of garbage. */
#define SKIPPED skipped_more
#define SKIPPED_NAME "skipped_more"
#define LEFT 0x5a582d8f /* one that was seen */
#include "skipped.bpf.c"
