// SPDX-License-Identifier: BSD-2-Clause
/* The same where 0 lies on the stack: recovery would end with a window of 0. */
#define SKIPPED skipped_zero
#define SKIPPED_NAME "skipped_zero"
#define LEFT 0
#define GARBAGE 0
#include "skipped.bpf.c"
