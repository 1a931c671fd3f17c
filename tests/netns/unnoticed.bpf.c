// SPDX-License-Identifier: GPL-2.0-only
#define SKIPPED unnoticed
#include "skipped.bpf.c"
