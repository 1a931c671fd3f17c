// SPDX-License-Identifier: GPL-2.0-only
/*
 * Where a flow's state comes from and goes to. It lives from where its base is initialised to the
 * kernel's call of release, and is made only where that call is certain: since 6.13 (commit
 * cf44bd08cdee) it isn't made for a socket without icsk_ca_initialized, which one that was connected to
 * from both sides at once, and closed before it was told, never gets.
 *
 * The base keeps its own state at the start of the socket's private area (cubic 60 of 104 bytes,
 * dctcp 56 in 7.x, reno none), ours is behind a pointer at the end, 16 bytes. Whether there is
 * room shows when the base begins with a flow, or writes there later.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include "mltcp.h"

/* A flow without state, for want of memory, asks again that much later. */
#define AGAIN HZ

/* What our end of the private area holds while the base is initialised: nothing that one writes. */
#define UNTOUCHED 0x5a

/* States in which nothing is begun. While a socket connects its route may still take over. */
#define WITHOUT (TCPF_CLOSE | TCPF_LISTEN | TCPF_SYN_SENT)

static void set_private(struct sock *sk, unsigned long word, unsigned long is)
{
	struct mltcp_private *end = mltcp_private(sk);

	WRITE_ONCE(end->word, word);
	WRITE_ONCE(end->check, (word + (unsigned long)sk) ^ is);
}

/*
 * dctcp without ECN puts operations of its own on Reno in its place, which its own module owns. Ours
 * on Reno take it instead: the modules' reference counts stay right, and the socket has a name by
 * which it can be chosen again.
 */
static void init_base(struct sock *sk, struct mltcp_variant *variant)
{
	struct inet_connection_sock *icsk = inet_csk(sk);

	if (variant->base->init)
		variant->base->init(sk);
	if (icsk->icsk_ca_ops == &variant->ops)
		return;
	WRITE_ONCE(icsk->icsk_ca_ops, &mltcp_variants->ops);
	INET_ECN_dontxmit(sk);
}

/* From here on no flow of the variant gets state: it is its base, and nothing else. */
static void give_up(struct mltcp_variant *variant)
{
	if (!xchg(&variant->lacks_room, 1))
		pr_warn("%s is plain %s from now: on this kernel that leaves no room for more\n",
			variant->name, variant->base_name);
}

static void make_state(struct sock *sk)
{
	const struct mltcp_variant *variant = mltcp_variant_of_socket(sk);
	struct mltcp_sock *ms = mltcp_flow_new(sk, variant);

	if (!ms) {
		pr_warn_ratelimited("out of memory: a flow is plain for a while\n");
		set_private(sk, jiffies + AGAIN, MLTCP_LACKS_MEMORY);
		return;
	}
	ms->base = variant->base;
	set_private(sk, (unsigned long)ms, MLTCP_HAS_STATE);
}

static void start(struct sock *sk, struct mltcp_variant *variant)
{
	struct mltcp_private *end = mltcp_private(sk);

	BUILD_BUG_ON(ICSK_CA_PRIV_SIZE % sizeof(unsigned long));

	if (unlikely(READ_ONCE(variant->lacks_room))) {
		init_base(sk, variant);
		return;
	}
	if (!variant->has_room) {
		memset(inet_csk_ca(sk), 0, ICSK_CA_PRIV_SIZE - sizeof(*end));
		memset(end, UNTOUCHED, sizeof(*end));
	}
	init_base(sk, variant);
	if (!variant->has_room && memchr_inv(end, UNTOUCHED, sizeof(*end))) {
		give_up(variant);
		return;
	}
	make_state(sk);
}

/*
 * Of a socket whose end isn't as we leave it. The base wrote over it after it was initialised, if
 * the table knows the socket; whatever it wrote, for zeros are what a new
 * socket has, too. Otherwise nothing was begun, or another congestion control wrote there, in whose
 * place a route put ours without a word: TCP's release and init aren't called where a connect()
 * waited for its first data (TCP_FASTOPEN_CONNECT). Nothing clones a socket that has begun, whose
 * part then wouldn't hold either. The table is looked through only where the base keeps anything.
 */
static bool is_overwritten(struct sock *sk, struct mltcp_variant *variant)
{
	struct mltcp_sock *ms;

	if (likely(variant->has_room))
		return false;
	ms = mltcp_flow_find(sk);
	if (!ms)
		return false;
	give_up(variant);
	mltcp_flow_free(ms);
	return true;
}

const struct tcp_congestion_ops *mltcp_need_anew(struct sock *sk)
{
	struct mltcp_variant *variant = mltcp_variant_of_socket(sk);

	if (mltcp_is_started(sk)) {
		if (time_after_eq(jiffies, mltcp_private(sk)->word))
			make_state(sk);
		return variant->base;
	}
	if (1 << sk->sk_state & WITHOUT || !inet_csk(sk)->icsk_ca_initialized)
		return NULL;
	if (!READ_ONCE(variant->lacks_room) && !is_overwritten(sk, variant))
		start(sk, variant);
	return mltcp_variant_of_socket(sk)->base;
}

void mltcp_start(struct sock *sk)
{
	struct mltcp_variant *variant = mltcp_variant_of_socket(sk);

	if (!mltcp_is_started(sk) &&
	    (!(1 << sk->sk_state & WITHOUT) || READ_ONCE(variant->lacks_room)))
		start(sk, variant);
}

bool mltcp_has_begun_bare(struct sock *sk)
{
	struct mltcp_variant *variant = mltcp_variant_of_socket(sk);

	/* Nothing was begun, or overwritten, where the kernel never called init. */
	return (inet_csk(sk)->icsk_ca_initialized && is_overwritten(sk, variant)) ||
	       READ_ONCE(variant->lacks_room);
}
