// SPDX-License-Identifier: BSD-2-Clause
/*
 * Tags a socket whose owner sleeps with the socket's lock, for as long as it likes: it sends from
 * a page that it fills itself (userfaultfd; a file system of one's own would do, too). That must
 * hold up nobody: each request is refused at once, others are answered meanwhile, and later it is granted.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#include "fail.h"
#include "genl.h"

#define PAGE 4096
#define PATIENCE_SECONDS 5

static int client;
static void *page;

static void *send_page(void *unused)
{
	if (send(client, page, PAGE, 0) != PAGE)
		fail("send: %s", strerror(errno));
	return unused;
}

#define ASKED 100 /* one after the other: none may take as long as the lock is held */

static int answer = 1; /* to the latest request to tag */

static void *tag_it(void *unused)
{
	struct genl own;
	int asked;

	if (genl_open(&own))
		fail("no family");
	for (asked = 0; asked < ASKED; asked++) {
		answer = tag(&own, client, 1);
		if (answer != -EBUSY)
			break;
	}
	close(own.fd);
	return unused;
}

static void *ask_status(void *unused)
{
	struct request r;
	struct genl own;

	if (genl_open(&own))
		fail("no family");
	begin(&r, own.family, MLTCP_CMD_STATUS_GET, 0);
	if (ask(&own, &r, NULL, NULL))
		fail("no status");
	close(own.fd);
	return unused;
}

static void join_soon(pthread_t thread, const char *what)
{
	struct timespec limit;

	clock_gettime(CLOCK_REALTIME, &limit);
	limit.tv_sec += PATIENCE_SECONDS;
	if (pthread_timedjoin_np(thread, NULL, &limit))
		fail("%s takes more than %d s", what, PATIENCE_SECONDS);
}

int main(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	struct uffdio_api api = {.api = UFFD_API};
	struct uffdio_register range = {.mode = UFFDIO_REGISTER_MODE_MISSING};
	struct uffdio_zeropage fill = {};
	socklen_t length = sizeof(address);
	int fault = syscall(SYS_userfaultfd, O_CLOEXEC), listener = socket(AF_INET, SOCK_STREAM, 0);
	pthread_t sender, tagger, asker;
	struct uffd_msg message;
	struct genl g;

	if (genl_open(&g) || set_job(&g, 1, "stalled", &lively))
		fail("no job");
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	client = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listener, (void *)&address, length) || listen(listener, 1) ||
	    getsockname(listener, (void *)&address, &length) ||
	    setsockopt(client, SOL_TCP, TCP_CONGESTION, "mltcp", 5) ||
	    connect(client, (void *)&address, length))
		fail("no connection: %s", strerror(errno));
	page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	range.range.start = fill.range.start = (uintptr_t)page;
	range.range.len = fill.range.len = PAGE;
	if (ioctl(fault, UFFDIO_API, &api) || ioctl(fault, UFFDIO_REGISTER, &range))
		fail("userfaultfd: %s", strerror(errno));

	pthread_create(&sender, NULL, send_page, NULL);
	if (read(fault, &message, sizeof(message)) != sizeof(message)) /* now it has the lock */
		fail("no fault: %s", strerror(errno));
	pthread_create(&tagger, NULL, tag_it, NULL);
	usleep(100000);
	pthread_create(&asker, NULL, ask_status, NULL);
	join_soon(asker, "the status");
	join_soon(tagger, "to tag");
	if (answer != -EBUSY)
		fail("the answer was %d, not EBUSY", answer);
	if (ioctl(fault, UFFDIO_ZEROPAGE, &fill))
		fail("userfaultfd: %s", strerror(errno));
	join_soon(sender, "to send");
	if (tag(&g, client, 1))
		fail("no tag afterwards");
	return 0;
}
