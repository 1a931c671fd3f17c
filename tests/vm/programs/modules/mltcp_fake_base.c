// SPDX-License-Identifier: GPL-2.0-only
/*
 * DCTCP as a later kernel might have it: with a state that takes all of a socket's private area.
 * While this is loaded it has the name of the kernel's own. What it has written into the area must
 * stay there until its release, else it warns.
 *
 * writes: when it fills the area, as the type information of this module says that it does
 *   0  in its init
 *   1  at the ACK number LATER of a connection
 *   2  there, too, but with zeros alone, and with what else it has at the next one
 *   3  never, unless by accident: in its release
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/net.h>
#include <net/tcp.h>

#define NAME "dctcp"
#define LATER 3

/* Found by this name in the module's type information. */
struct dctcp {
	u32 acks; /* of this connection */
	u16 begun; /* 1: by init; the kernel calls release of sockets without, too */
	u16 filled; /* how many of the words hold what was written, the last ones of the area */
	u64 words[12];
};

static uint writes;
module_param(writes, uint, 0444);

/* How many connections it was initialised for, and how many of these it was released of. */
static atomic_t begun, ended;

static int get_count(char *buffer, const struct kernel_param *kp)
{
	return sysfs_emit(buffer, "%d\n", atomic_read((atomic_t *)kp->arg));
}

static const struct kernel_param_ops count_ops = {.get = get_count};

module_param_cb(begun, &count_ops, &begun, 0444);
module_param_cb(ended, &count_ops, &ended, 0444);

static struct dctcp *state(struct sock *sk)
{
	return inet_csk_ca(sk);
}

static void fill(struct sock *sk, u64 value)
{
	struct dctcp *d = state(sk);
	int i;

	d->filled = ARRAY_SIZE(d->words);
	for (i = 0; i < ARRAY_SIZE(d->words); i++)
		d->words[i] = value;
}

static void look(struct sock *sk)
{
	const struct dctcp *d = state(sk);
	int i;

	for (i = 1; i < ARRAY_SIZE(d->words) && d->filled; i++)
		WARN_ONCE(d->words[i] != d->words[0], "word %d of a base's state was changed", i);
}

static void fake_init(struct sock *sk)
{
	atomic_inc(&begun);
	state(sk)->acks = 0;
	state(sk)->begun = 1;
	state(sk)->filled = 0;
	if (writes == 0)
		fill(sk, 0x0123456789abcdefULL);
}

static void fake_release(struct sock *sk)
{
	if (!state(sk)->begun)
		return;
	state(sk)->begun = 0;
	atomic_inc(&ended);
	if (writes == 3)
		fill(sk, 0x0123456789abcdefULL);
	look(sk);
}

static void fake_pkts_acked(struct sock *sk, const struct ack_sample *sample)
{
	u32 acks = ++state(sk)->acks;

	look(sk);
	if ((writes == 1 && acks == LATER) || (writes == 2 && acks == LATER + 1))
		fill(sk, 0x0123456789abcdefULL);
	else if (writes == 2 && acks == LATER)
		fill(sk, 0);
}

static struct tcp_congestion_ops fake = {
	.init = fake_init,
	.release = fake_release,
	.ssthresh = tcp_reno_ssthresh,
	.cong_avoid = tcp_reno_cong_avoid,
	.undo_cwnd = tcp_reno_undo_cwnd,
	.pkts_acked = fake_pkts_acked,
	.flags = TCP_CONG_NON_RESTRICTED,
	.name = NAME,
	.owner = THIS_MODULE,
};

static struct socket *holder; /* of the kernel's own */
static struct tcp_congestion_ops *replaced;

static int __init fake_base_init(void)
{
	int err = sock_create_kern(&init_net, PF_INET, SOCK_STREAM, IPPROTO_TCP, &holder);

	BUILD_BUG_ON(sizeof(struct dctcp) != ICSK_CA_PRIV_SIZE);
	if (err)
		return err;
	err = holder->ops->setsockopt(holder, SOL_TCP, TCP_CONGESTION, KERNEL_SOCKPTR(NAME),
				      strlen(NAME));
	if (err)
		goto release;
	replaced = (struct tcp_congestion_ops *)inet_csk(holder->sk)->icsk_ca_ops;
	tcp_unregister_congestion_control(replaced);
	err = tcp_register_congestion_control(&fake);
	if (!err)
		return 0;
	tcp_register_congestion_control(replaced);
release:
	sock_release(holder);
	return err;
}

static void __exit fake_base_exit(void)
{
	tcp_unregister_congestion_control(&fake);
	if (tcp_register_congestion_control(replaced))
		pr_err("the kernel's own doesn't come back\n");
	sock_release(holder);
}

module_init(fake_base_init);
module_exit(fake_base_exit);
MODULE_DESCRIPTION("A base that leaves no room in a socket's private area, for tests");
MODULE_LICENSE("GPL");
