// SPDX-License-Identifier: BSD-2-Clause
/* Network namespaces that go while their sockets live on. */
#include "stress.h"

#include <net/if.h>
#include <sys/ioctl.h>

static void loopback_up(void)
{
	struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP};
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	if (ioctl(fd, SIOCSIFFLAGS, &request))
		fail("lo: %s", strerror(errno));
	close(fd);
}

/*
 * A closed socket holds its congestion control until its peer has acknowledged and said its FIN
 * too, and a repaired peer vanishes without. How long the kernel waits for it in this namespace:
 * by default 60 s for the FIN, and eight retransmissions, 102 s and more, for the ACK.
 */
void hurry_orphans(void)
{
	if (!write_file("/proc/sys/net/ipv4/tcp_fin_timeout", "5") ||
	    !write_file("/proc/sys/net/ipv4/tcp_orphan_retries", "4"))
		fail("/proc/sys/net/ipv4: %s", strerror(errno));
}

/* Namespaces with jobs, listeners, a default and live sockets, that go while these live on. */
void emigrant(struct worker *w)
{
	const char *name = names[below(&w->random, n_names)];
	struct genl deaf;
	uint32_t job;
	int i;

	close_genl(w);
	if (w->listener >= 0)
		close(w->listener);
	w->listener = -1;
	if (unshare(CLONE_NEWNET))
		fail("unshare: %s", strerror(errno));
	loopback_up();
	hurry_orphans();
	/* The kernel leaks a reference when it refuses a restricted one, as dctcp and ours are, here. */
	if (!strncmp(name, "mltcp", 5) && !strstr(name, "dctcp"))
		write_file("/proc/sys/net/ipv4/tcp_congestion_control", name);
	count(namespaces);
	deaf.fd = -1;
	if (open_genl(w) && !genl_open(&deaf)) {
		int small = 1;

		setsockopt(deaf.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
		join_iterations(&deaf);
		for (job = 1; job <= JOBS; job++)
			set_job(&w->genl, job, "abroad", &lively);
	}
	for (i = 0; i < 10; i++) {
		connect_one(w);
		if (w->genl.fd >= 0)
			tag(&w->genl, any(w), 1 + below(&w->random, JOBS));
		some_data(w, any(w), any(w));
	}
	if (deaf.fd >= 0)
		close(deaf.fd);
	usleep(1000);
}
