/* SPDX-License-Identifier: BSD-2-Clause */
/* How a program says why it gives up. */
#ifndef FAIL_H
#define FAIL_H

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

/* Ends at once: other threads may be within the kernel, or hold what exit() waits for. */
__attribute__((format(printf, 1, 2), noreturn)) static inline void fail(const char *format, ...)
{
	va_list arguments;

	fprintf(stderr, "%s: ", program_invocation_short_name);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fprintf(stderr, "\n");
	fflush(stdout);
	_exit(1);
}

#endif
