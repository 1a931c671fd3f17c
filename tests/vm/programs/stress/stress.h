/* SPDX-License-Identifier: BSD-2-Clause */
/* What the threads of the stress test share: see main.c. */
#ifndef STRESS_H
#define STRESS_H

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "../fail.h"
#include "../genl.h"
#include "../random.h"

#define SLOTS_MAX 1000
#define JOBS 6

/* What is counted; each must have happened in the end. */
/* clang-format off */
#define COUNTED(X)                                                                      \
	X(connected) X(connecting) X(accepted) X(deferred) X(reconnected) X(listened)       \
	X(reset) X(repaired) X(sent) X(closed) X(switched) X(tagged) X(untagged) X(refused) \
	X(jobs_set) X(jobs_deleted) X(flows) X(sock_diag) X(cc_info) X(namespaces)          \
	X(parameters) X(busy) X(unloaded) X(crossed) X(rules_set) X(rules_deleted) X(rules)
/* clang-format on */

#define ENUM(name) name,
enum count { COUNTED(ENUM) COUNTS };

/* A thread; `work` is a turn of what it does. */
struct worker {
	void (*work)(struct worker *);
	const char *name;
	uint64_t random;
	atomic_ulong turns;
	struct genl genl; /* of the namespace the worker is in; fd -1: none */
	int listener; /* -1: none */
	struct sockaddr_in address;
};

extern atomic_ulong counts[COUNTS];
extern atomic_int slots[SLOTS_MAX]; /* sockets that all threads see; -1: none */
extern int n_slots;
extern char **names; /* congestion controls to switch between */
extern int n_names;
extern const char *module_path;

/* shared.c */
void count(enum count which);
bool one_in(struct worker *w, uint32_t n);
bool write_file(const char *path, const char *text);
void publish(struct worker *w, int fd);
int any(struct worker *w);
bool choose(struct worker *w, int fd);
bool open_genl(struct worker *w);
void close_genl(struct worker *w);
void looked_after(struct worker *w, int err);

/* connections.c */
void connect_one(struct worker *w);
void some_data(struct worker *w, int from, int to);
void connector(struct worker *w);
void crosser(struct worker *w);
void switcher(struct worker *w);

/* requests.c */
void tagger(struct worker *w);
void dumper(struct worker *w);
void tuner(struct worker *w);

/* namespaces.c */
void hurry_orphans(void);
void emigrant(struct worker *w);

/* rules.c */
void enter_cgroup(void);
void ruler(struct worker *w);

/* loading.c */
bool unload(void);
void load(void);
void loader(struct worker *w);

#endif
