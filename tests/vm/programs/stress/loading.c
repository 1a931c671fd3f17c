// SPDX-License-Identifier: BSD-2-Clause
/* The module unloaded and loaded. */
#include "stress.h"

#include <sys/syscall.h>

/* True when it was loaded and is no more. */
bool unload(void)
{
	if (!syscall(SYS_delete_module, "tcp_mltcp", O_NONBLOCK)) {
		count(unloaded);
		return true;
	}
	if (errno == EAGAIN || errno == EBUSY)
		count(busy);
	return false;
}

void load(void)
{
	int fd = open(module_path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		fail("%s: %s", module_path, strerror(errno));
	/* A socket that asked for the name may have loaded it, or be doing so. */
	if (syscall(SYS_finit_module, fd, "", 0) && errno != EEXIST && errno != EBUSY)
		fail("load: %s", strerror(errno));
	close(fd);
}

void loader(struct worker *w)
{
	(void)w;
	if (unload())
		load();
	usleep(5000);
}
