// SPDX-License-Identifier: BSD-2-Clause
/* What is counted, the sockets that all see, and the way to the module. */
#include "stress.h"

#define FIRST_SEEN 512 /* lowest of the descriptors of slots */

atomic_ulong counts[COUNTS];
atomic_int slots[SLOTS_MAX];
int n_slots;
char **names;
int n_names;
const char *module_path;

void count(enum count which)
{
	atomic_fetch_add_explicit(&counts[which], 1, memory_order_relaxed);
}

bool one_in(struct worker *w, uint32_t n)
{
	return !below(&w->random, n);
}

/*
 * Put a socket where the others see it, and close the one that was there. Its descriptor is then
 * one of those that nothing else gets: who uses it while it is being closed hits a socket like it.
 */
void publish(struct worker *w, int fd)
{
	int seen = fcntl(fd, F_DUPFD_CLOEXEC, FIRST_SEEN);
	int old = atomic_exchange(&slots[below(&w->random, n_slots)], seen);

	if (seen < 0)
		fail("fcntl: %s", strerror(errno));
	close(fd);
	if (old < 0)
		return;
	if (one_in(w, 3)) {
		struct linger now = {.l_onoff = 1};

		setsockopt(old, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
		count(reset);
	}
	close(old);
	count(closed);
}

/* A socket that another thread may be closing at this moment. */
int any(struct worker *w)
{
	return slots[below(&w->random, n_slots)];
}

bool choose(struct worker *w, int fd)
{
	const char *name = names[below(&w->random, n_names)];

	return !setsockopt(fd, SOL_TCP, TCP_CONGESTION, name, strlen(name));
}

bool write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);
	bool written = fd >= 0 && write(fd, text, strlen(text)) > 0;

	if (fd >= 0)
		close(fd);
	return written;
}

bool open_genl(struct worker *w)
{
	if (w->genl.fd >= 0)
		return true;
	if (genl_open(&w->genl)) {
		w->genl.fd = -1; /* the module is away just now */
		return false;
	}
	return true;
}

void close_genl(struct worker *w)
{
	if (w->genl.fd >= 0)
		close(w->genl.fd);
	w->genl.fd = -1;
}

/* Without the module's answer: it was unloaded, the next one has another number. */
void looked_after(struct worker *w, int err)
{
	if (err == -EAGAIN || err == -EINTR)
		fail("%s: no answer from the kernel", w->name);
	if (err == -ENOENT || err == -EOPNOTSUPP)
		close_genl(w);
}
