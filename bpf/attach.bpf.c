// SPDX-License-Identifier: GPL-2.0-only
/*
 * Makes sockets flows of jobs without touching the processes that hold them: existing ones while an
 * iterator walks over all sockets of a network namespace, new ones as a cgroup's processes open
 * them. What a socket ran before stays with it, until it is put back.
 */
#include "kernel_types.bpf.h"
#include "attach.bpf.h"

#define SOL_TCP 6
#define TCP_CONGESTION 13
#define TCP_ESTABLISHED 1
#define TCP_CLOSE_WAIT 8
#define TCP_ECN_RFC3168_MAX 2 /* the largest tcp_ecn without accurate ECN */
#define ENOENT 2
#define EINVAL 22
#define EBUSY 16
#define EOPNOTSUPP 95
#define ENOTCONN 107
#define SOCKETS_MAX (1 << 20)

char _license[] SEC("license") = "GPL";

/* Those of the congestion controls, where they are loaded. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct mltcp_tag);
} mltcp_tags SEC(".maps");

/* What each attached socket ran before. It outlives the congestion controls. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct mltcp_first);
} mltcp_first SEC(".maps");

/* By cookie. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SOCKETS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, struct mltcp_wish);
} mltcp_wishes SEC(".maps");

/* One for each cgroup that the program is attached to. */
struct {
	__uint(type, BPF_MAP_TYPE_CGROUP_STORAGE);
	__type(key, struct bpf_cgroup_storage_key);
	__type(value, struct mltcp_rule);
} mltcp_rules SEC(".maps");

static __always_inline int is_same(const struct mltcp_ca_name *a, const struct mltcp_ca_name *b)
{
	const __u64 *left = (const void *)a, *right = (const void *)b;

	return left[0] == right[0] && left[1] == right[1];
}

/* All of our congestion controls' names begin so, and nobody else's. */
static __always_inline int is_ours(const struct mltcp_ca_name *name)
{
	const char *text = name->text;

	return text[0] == 'm' && text[1] == 'l' && text[2] == 't' && text[3] == 'c' &&
	       text[4] == 'p';
}

/*
 * Does it live on ECN, on which both ends agree in the handshake? Without, it takes another one in
 * its place. The kernel refuses that while a program switches the socket: then it would run with
 * neither a flow's state nor its base's, and its packets would claim ECN.
 */
static __always_inline int needs_ecn(const struct mltcp_ca_name *name)
{
	const struct mltcp_ca_name dctcp = {"mltcp_dctcp"};

	return is_same(name, &dctcp);
}

/* The kernel's own, which takes what the last answer was for the next one's until that comes. */
static __always_inline int is_dctcp(const struct mltcp_ca_name *name)
{
	const struct mltcp_ca_name dctcp = {"dctcp"};

	return is_same(name, &dctcp);
}

/* On a connection without ECN it goes by another name, by which nobody can choose it. */
static __always_inline void by_its_name(struct mltcp_ca_name *name)
{
	const struct mltcp_ca_name dctcp = {"dctcp"}, without = {"dctcp-reno"};

	if (is_same(name, &without))
		*name = dctcp;
}

/* A socket that has asked, and has no answer yet, is marked as if the peer had agreed. */
static __always_inline int has_ecn(const struct tcp_sock *tp)
{
	return tp->ecn_flags & TCP_ECN_OK &&
	       ((const struct sock *)tp)->__sk_common.skc_state != TCP_SYN_SENT;
}

/* Do all connections of its network namespace ask? net.ipv4.tcp_ecn; 3: for accurate ECN. */
static __always_inline int all_ask_for_ecn(const struct tcp_sock *tp)
{
	const struct sock *sk = (const struct sock *)tp;
	__u8 tcp_ecn = sk->__sk_common.skc_net.net->ipv4.sysctl_tcp_ecn;

	return tcp_ecn == 1 || tcp_ecn == 3 || tcp_ecn == 4;
}

extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym __weak;

/*
 * Does the namespace of a peer's request agree to accurate ECN by itself? Kernels that know it have
 * that function; the request isn't a socket that a program may look at otherwise.
 */
static __always_inline int agrees_accurately(struct bpf_sock_ops *ctx)
{
	const struct bpf_sock_ops_kern *kern;

	if (!bpf_core_field_exists(((struct netns_ipv4 *)0)->sysctl_tcp_ecn_option))
		return 0;
	kern = bpf_cast_to_kern_ctx(ctx);
	return kern->sk->__sk_common.skc_net.net->ipv4.sysctl_tcp_ecn > TCP_ECN_RFC3168_MAX;
}

/* Read the name that a socket's algorithm has, filled up with zeros. */
#define READ_NAME(to, socket)                                                                 \
	({                                                                                    \
		__builtin_memset((to), 0, sizeof(*(to)));                                     \
		bpf_getsockopt((socket), SOL_TCP, TCP_CONGESTION, (to)->text, sizeof(*(to))); \
	})

/* Give the socket the tag and keep what it ran before; 0: there is no memory for that. */
#define TAG(socket, its_tag, was)                                                      \
	({                                                                             \
		struct mltcp_first none = {.name = *(was)};                            \
		struct mltcp_first *first;                                             \
		struct mltcp_tag *held;                                                \
                                                                                       \
		first = bpf_sk_storage_get(&mltcp_first, (socket), &none,              \
					   BPF_SK_STORAGE_GET_F_CREATE);               \
		held = first ? bpf_sk_storage_get(&mltcp_tags, (socket), 0,            \
						  BPF_SK_STORAGE_GET_F_CREATE)         \
			     : NULL;                                                   \
		if (held) {                                                            \
			*held = *(its_tag);                                            \
			first->job = held->job;                                        \
			if (!is_ours(was)) /* else it stays what it was before that */ \
				first->name = *(was);                                  \
		}                                                                      \
		held != NULL;                                                          \
	})

/* Has its process closed it, so that what is left of the connection ends by itself? */
static __always_inline int is_closed(const struct sock *sk)
{
	__u8 state = sk->__sk_common.skc_state;

	return !sk->sk_socket && state != TCP_ESTABLISHED && state != TCP_CLOSE_WAIT;
}

static __always_inline int give(struct tcp_sock *tp, struct mltcp_wish *wish,
				struct mltcp_ca_name *was)
{
	struct mltcp_ca_name name = wish->name, before = *was;
	int error;

	if (!is_same(was, &wish->expected))
		return EBUSY;
	by_its_name(&before);
	if (needs_ecn(&name) && !has_ecn(tp))
		return EOPNOTSUPP;
	/* Of the same name the present one, should the socket run one that was unloaded. */
	error = -bpf_setsockopt(tp, SOL_TCP, TCP_CONGESTION, name.text, sizeof(name));
	if (error || !wish->tag.job)
		return error;
	if (TAG(tp, &wish->tag, &before))
		return 0;
	bpf_setsockopt(tp, SOL_TCP, TCP_CONGESTION, before.text, sizeof(before));
	return EINVAL;
}

/*
 * Without ECN, or before its peer has answered, a socket gets something else in place of what needs
 * that.
 */
static __always_inline int take(struct tcp_sock *tp, struct mltcp_wish *wish,
				const struct mltcp_ca_name *was)
{
	__u8 state = ((const struct sock *)tp)->__sk_common.skc_state;
	const struct mltcp_ca_name ours = {"mltcp"}, reno = {"reno"};
	struct mltcp_ca_name name = wish->name;
	int error = 0;

	by_its_name(&name);
	if (is_ours(was) && !is_same(was, &name)) {
		if (is_dctcp(&name) && state == TCP_SYN_SENT)
			name = reno;
		if (needs_ecn(&name) && !has_ecn(tp))
			name = ours;
		error = -bpf_setsockopt(tp, SOL_TCP, TCP_CONGESTION, name.text, sizeof(name));
		if (error == ENOENT && needs_ecn(&wish->name))
			error = -bpf_setsockopt(tp, SOL_TCP, TCP_CONGESTION, (void *)reno.text,
						sizeof(reno));
	}
	if (error)
		return error;
	bpf_sk_storage_delete(&mltcp_tags, tp);
	bpf_sk_storage_delete(&mltcp_first, tp);
	return 0;
}

SEC("iter/tcp")
int fulfil(struct bpf_iter__tcp *ctx)
{
	struct sock_common *common = ctx->sk_common;
	struct mltcp_found found = {};
	struct mltcp_wish *wish;
	struct tcp_sock *tp;
	__u8 state;

	tp = common ? bpf_skc_to_tcp_sock(common) : NULL;
	if (!tp || is_closed((struct sock *)tp))
		return 0;
	found.cookie = bpf_get_socket_cookie(tp);
	wish = bpf_map_lookup_elem(&mltcp_wishes, &found.cookie);
	if (!wish)
		return 0;
	state = common->skc_state;
	READ_NAME(&found.was, tp);
	if (wish->action != MLTCP_TAKE && state != TCP_ESTABLISHED && state != TCP_CLOSE_WAIT)
		found.error = ENOTCONN;
	else if (wish->action == MLTCP_GIVE)
		found.error = give(tp, wish, &found.was);
	else if (wish->action == MLTCP_TAKE)
		found.error = take(tp, wish, &found.was);
	READ_NAME(&found.now, tp);
	bpf_seq_write(ctx->meta->seq, &found, sizeof(found));
	return 0;
}

SEC("iter/bpf_sk_storage_map")
int list_attached(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct mltcp_first *first = ctx->value;
	struct mltcp_attached found = {};
	const struct sock_common *common;
	struct sock *sk = ctx->sk;
	struct mltcp_tag *tag;
	struct tcp_sock *tp;
	__u32 i;

	if (!sk || !first || is_closed(sk))
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	common = &sk->__sk_common;
	found.cookie = bpf_get_socket_cookie(sk);
	found.netns = common->skc_net.net->ns.inum;
	found.job = first->job;
	copy_address(found.local_addr, common->skc_family, common->skc_rcv_saddr,
		     &common->skc_v6_rcv_saddr);
	copy_address(found.remote_addr, common->skc_family, common->skc_daddr,
		     &common->skc_v6_daddr);
	found.local_port = common->skc_num;
	found.remote_port = __builtin_bswap16(common->skc_dport);
	found.state = common->skc_state;
	tag = bpf_sk_storage_get(&mltcp_tags, sk, 0, 0);
	if (tag)
		found.tag = *tag;
	found.first = first->name;
	/* Not by a helper: lockdown=confidentiality refuses those that read the kernel's memory. */
	for (i = 0; i < sizeof(found.now.text); i++)
		found.now.text[i] = tp->inet_conn.icsk_ca_ops->name[i];
	bpf_seq_write(ctx->meta->seq, &found, sizeof(found));
	return 0;
}

SEC("iter/task_file")
int list_held(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct mltcp_held held = {};
	struct socket *sock;
	struct tcp_sock *tp;

	if (!task || !file || task->pid != task->tgid)
		return 0;
	sock = bpf_sock_from_file(file);
	if (!sock || !sock->sk)
		return 0;
	tp = bpf_skc_to_tcp_sock(sock->sk);
	if (!tp)
		return 0;
	held.cookie = bpf_get_socket_cookie(tp);
	held.inode = file->f_inode->i_ino;
	held.tgid = task->tgid;
	held.fd = ctx->fd;
	held.netns = sock->sk->__sk_common.skc_net.net->ns.inum;
	bpf_seq_write(ctx->meta->seq, &held, sizeof(held));
	return 0;
}

/* Are both ends on this host, so that the connection shares no link? */
static __always_inline int stays_here(const struct bpf_sock_ops *ctx)
{
	__u32 remote = ctx->remote_ip4, differs = 0;
	int i;

	if (ctx->family == AF_INET) {
		differs = remote ^ ctx->local_ip4;
	} else {
		/* Of four bytes each: the verifier takes no longer reads, which comparing becomes. */
#pragma unroll
		for (i = 0; i < 4; i++)
			differs |= ctx->remote_ip6[i] ^ ctx->local_ip6[i];
		if (ctx->remote_ip6[0] || ctx->remote_ip6[1] ||
		    ctx->remote_ip6[2] != __builtin_bswap32(0xffff))
			return !differs;
		remote = ctx->remote_ip6[3]; /* IPv4's */
	}
	return !differs || __builtin_bswap32(remote) >> 24 == 127;
}

/* Is the connection one of those that the rule leaves alone? */
static __always_inline int is_left_alone(const struct bpf_sock_ops *ctx,
					 const struct mltcp_rule *rule)
{
	__u32 local = ctx->local_port, remote = __builtin_bswap32(ctx->remote_port);
	int i;

	if (local < rule->lowest_port || remote < rule->lowest_port ||
	    (!rule->stays_here && stays_here(ctx)))
		return 1;
#pragma unroll
	for (i = 0; i < MLTCP_PORTS; i++) {
		if (rule->ports[i] && (rule->ports[i] == local || rule->ports[i] == remote))
			return 1;
	}
	return 0;
}

/* What a socket that runs `was` gets by the rule; empty: nothing fits. */
static __always_inline void choose(const struct mltcp_rule *rule, const struct mltcp_ca_name *was,
				   struct mltcp_ca_name *name)
{
	int i;

	*name = rule->name;
#pragma unroll
	for (i = 0; i < MLTCP_CHOICES; i++) {
		if (!name->text[0] && is_same(&rule->choices[i].base, was))
			*name = rule->choices[i].name;
	}
}

/*
 * Must a connection ask for ECN, or say that it can, for the rule's sake? Asked of a socket whose
 * SYN is about to leave, and of a peer's request, which has none yet. A SYN that asks for a
 * congestion control's sake is answered by its like alone; so none does where all of the namespace
 * ask as RFCs 3168 and 9768 have it, which any peer with ECN answers. Nor does a socket that
 * something has given a congestion control at connect(): where the peer refuses, the kernel would
 * not clear what it claims. A namespace that agrees to accurate ECN by itself answers as that has it,
 * which an answer of ours would look like damage to.
 */
static __always_inline int asks_for_ecn(struct bpf_sock_ops *ctx, const struct mltcp_rule *rule)
{
	struct bpf_sock *sk = ctx->sk;
	struct tcp_sock *tp;

	if (!needs_ecn(&rule->name))
		return 0;
	if (!ctx->is_fullsock)
		return !agrees_accurately(ctx);
	tp = sk ? bpf_skc_to_tcp_sock(sk) : NULL;
	return tp && !all_ask_for_ecn(tp) &&
	       !BPF_CORE_READ_BITFIELD(&tp->inet_conn, icsk_ca_initialized);
}

/*
 * Has the socket been caught for its present connection? What its process has chosen since then
 * stays. One that connects again still runs what it was given, but has lost its tag with its first
 * connection, unless that was never a flow of ours. What needs ECN isn't given at connect(), so
 * without a tag it wasn't.
 *
 * was: what it runs. name: what the rule has for it.
 */
static __always_inline int is_caught(struct bpf_sock *sk, const struct mltcp_first *first,
				     const struct mltcp_ca_name *was,
				     const struct mltcp_ca_name *name, int at_connect)
{
	if (!first)
		return 0;
	return (!at_connect && !needs_ecn(name)) ||
	       (is_ours(was) && bpf_sk_storage_get(&mltcp_tags, sk, 0, 0));
}

/*
 * Gives a socket that connects, or is connected now, what the rule says: by what it ran before the
 * rule, should it connect again.
 */
static __always_inline void give_new(struct bpf_sock_ops *ctx, struct bpf_sock *sk,
				     const struct mltcp_rule *rule)
{
	int at_connect = ctx->op == BPF_SOCK_OPS_TCP_CONNECT_CB;
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct mltcp_ca_name was, base, name;
	struct mltcp_tag tag = rule->tag;
	struct mltcp_first *first;

	first = bpf_sk_storage_get(&mltcp_first, sk, 0, 0);
	if (!tp || READ_NAME(&was, ctx))
		return;
	by_its_name(&was);
	base = was;
	if (first && is_ours(&was))
		base = first->name;
	choose(rule, &base, &name);
	if (!name.text[0] || is_caught(sk, first, &was, &name, at_connect))
		return;
	if (needs_ecn(&name) && at_connect) {
		/* What an earlier connection was given would ask in its own way, as dctcp does. */
		if (is_same(&was, &name) && !needs_ecn(&base) && !is_dctcp(&base) &&
		    all_ask_for_ecn(tp))
			bpf_setsockopt(ctx, SOL_TCP, TCP_CONGESTION, base.text, sizeof(base));
		return;
	}
	if (needs_ecn(&name) && !has_ecn(tp)) {
		/* What its process has chosen itself takes another one in its place, of the same job. */
		if (!is_same(&base, &name)) {
			/* An earlier connection may have left one of ours. */
			if (!is_same(&was, &base) &&
			    !bpf_setsockopt(ctx, SOL_TCP, TCP_CONGESTION, base.text, sizeof(base)))
				bpf_sk_storage_delete(&mltcp_first, sk);
			return;
		}
	} else if ((first ||
		    !is_same(&was, &name)) && /* what connects again may run what was unloaded */
		   bpf_setsockopt(ctx, SOL_TCP, TCP_CONGESTION, name.text, sizeof(name))) {
		return;
	}
	bpf_get_socket_cookie(ctx); /* the kernel makes it; reports of iterations can't */
	if (!TAG(sk, &tag, &was))
		bpf_setsockopt(ctx, SOL_TCP, TCP_CONGESTION, was.text, sizeof(was));
}

/*
 * A process of the cgroup connects, or a connection of one is established, before its first data.
 * The algorithm is chosen at connect(); one that needs ECN asks for it there, and is chosen once
 * that is agreed upon. A peer's connection is established in place of its listener, and belongs to
 * the listener's cgroup.
 */
SEC("sockops")
int catch_new(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	struct mltcp_rule *rule;
	__u32 op = ctx->op;

	if (op != BPF_SOCK_OPS_TCP_CONNECT_CB && op != BPF_SOCK_OPS_NEEDS_ECN &&
	    op != BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB && op != BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
		return 1;
	rule = bpf_get_local_storage(&mltcp_rules, 0);
	if (!rule->tag.job || is_left_alone(ctx, rule))
		return 1;
	if (op != BPF_SOCK_OPS_NEEDS_ECN) {
		if (sk)
			give_new(ctx, sk, rule);
	} else if (asks_for_ecn(ctx, rule)) {
		ctx->reply = 1;
	}
	return 1;
}
