// SPDX-License-Identifier: BSD-2-Clause
/* Rules for the cgroup of the sockets, and what goes while they stand: cgroups, jobs, their setter. */
#include "stress.h"

#include <sys/stat.h>

#define ROOT "/sys/fs/cgroup"
#define OURS ROOT "/stress"
#define PASSING ROOT "/stress-passing"

/* All sockets made from now on are of a cgroup below the root. */
void enter_cgroup(void)
{
	if ((mkdir(OURS, 0755) && errno != EEXIST) || !write_file(OURS "/cgroup.procs", "0"))
		fail("%s: %s", OURS, strerror(errno));
}

static int set_rule(struct worker *w, const char *folder, uint64_t *cgroup)
{
	uint16_t lowest = one_in(w, 4) ? 40000 : 0;
	struct request r;
	struct stat about;
	int err, fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &about))
		fail("%s: %s", folder, strerror(errno));
	*cgroup = about.st_ino;
	begin(&r, w->genl.family, MLTCP_CMD_RULE_SET, 0);
	put_u32(&r, MLTCP_A_FD, fd);
	put_u32(&r, MLTCP_A_JOB_ID, 1 + below(&w->random, JOBS));
	put(&r, MLTCP_A_LOWEST_PORT, &lowest, sizeof(lowest));
	err = ask(&w->genl, &r, NULL, NULL);
	close(fd);
	return err;
}

static int delete_rule(struct worker *w, uint64_t cgroup)
{
	struct request r;

	begin(&r, w->genl.family, MLTCP_CMD_RULE_DEL, 0);
	put(&r, MLTCP_A_CGROUP, &cgroup, sizeof(cgroup));
	return ask(&w->genl, &r, NULL, NULL);
}

static void note_rule(const struct nlmsghdr *m, void *data)
{
	if (!message_attribute(m, MLTCP_A_CGROUP))
		fail("a rule without a cgroup");
	count(rules);
	(void)data;
}

void ruler(struct worker *w)
{
	static const char *const folders[] = {ROOT, OURS, PASSING};
	const char *folder = folders[below(&w->random, 3)];
	uint64_t cgroup;
	int err;

	if (!open_genl(w)) {
		usleep(1000);
		return;
	}
	if (!strcmp(folder, PASSING) && mkdir(PASSING, 0755) && errno != EEXIST)
		fail("%s: %s", PASSING, strerror(errno));
	err = set_rule(w, folder, &cgroup);
	if (!err)
		count(rules_set);
	if (!strcmp(folder, PASSING)) {
		rmdir(PASSING);
	} else if (!err && one_in(w, 3)) {
		err = delete_rule(w, cgroup);
		if (!err)
			count(rules_deleted);
	}
	if (one_in(w, 4))
		dump(&w->genl, MLTCP_CMD_RULE_GET, note_rule, NULL);
	looked_after(w, err == -ENOENT ? 0 : err);
	if (one_in(w, 10))
		close_genl(w); /* and its rules go */
	usleep(500);
}
