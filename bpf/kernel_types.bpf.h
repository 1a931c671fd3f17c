/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The parts of kernel structs the programs touch. Offsets come from the running kernel's BTF
 * when an object is loaded (CO-RE), so only names and types matter here and no vmlinux.h is
 * needed to compile.
 */
#ifndef KERNEL_TYPES_BPF_H
#define KERNEL_TYPES_BPF_H

#include <linux/types.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#define AF_INET 2
#define AF_INET6 10

/* include/net/tcp.h: any user may choose this congestion control */
#define TCP_CONG_NON_RESTRICTED 1
/* its connections ask for ECN, and all their segments claim it */
#define TCP_CONG_NEEDS_ECN 2

/*
 * the same, in ecn_flags: ECN was agreed upon in the handshake, by RFC 3168 or, where kernels know
 * that, RFC 9768 (accurate ECN); before, nothing had that bit
 */
#define TCP_ECN_OK (1 | 1 << 4)

/* include/net/tcp_states.h */
enum { TCP_SYN_SENT = 2, TCP_FIN_WAIT1 = 4, TCP_LAST_ACK = 9, TCP_CLOSING = 11 };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct in6_addr {
	union {
		__be32 u6_addr32[4];
	} in6_u;
};

struct ns_common {
	unsigned int inum;
};

struct netns_ipv4 {
	__u8 sysctl_tcp_ecn;
	__u8 sysctl_tcp_ecn_option; /* where the kernel knows accurate ECN */
};

struct net {
	struct ns_common ns;
	struct netns_ipv4 ipv4;
	__u64 net_cookie; /* unique for ever */
};

typedef struct {
	struct net *net;
} possible_net_t;

typedef struct {
	__s64 counter;
} atomic64_t;

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
	atomic64_t skc_cookie;
};

struct socket;

struct sock {
	struct sock_common __sk_common;
	struct socket *sk_socket; /* NULL: no process has it, any more or yet */
	__u32 sk_pacing_status;
	unsigned long sk_pacing_rate; /* bytes per second */
	unsigned long sk_max_pacing_rate;
};

/* What a sockops program's context is of; a request of a peer, too. */
struct bpf_sock_ops_kern {
	struct sock *sk;
};

struct inet_sock {
	struct sock sk;
	__be16 inet_sport;
};

struct tcp_congestion_ops;

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	const struct tcp_congestion_ops *icsk_ca_ops;
	__u8 icsk_ca_state : 5; /* enum tcp_ca_state */
	__u8 icsk_ca_initialized : 1;
	__u64 icsk_ca_priv[13];
};

struct minmax_sample {
	__u32 t;
	__u32 v;
};

struct minmax {
	struct minmax_sample s[3];
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u32 snd_cwnd;
	__u32 snd_cwnd_cnt;
	__u32 snd_cwnd_clamp; /* the route's limit */
	__u32 snd_ssthresh;
	__u32 prior_cwnd;
	__u32 packets_out;
	__u32 snd_una;
	__u32 write_seq;
	__u32 srtt_us; /* eighths of a microsecond */
	__u32 mss_cache;
	__u32 total_retrans;
	__u8 ecn_flags;
	__u64 tcp_clock_cache; /* ns, of the latest packet that came or went */
	__u64 bytes_received;
	__u64 bytes_acked;
	struct minmax rtt_min; /* microseconds */
};

struct ack_sample {
	__u32 pkts_acked;
	__s32 rtt_us;
};

enum tcp_ca_event { CA_EVENT_TX_START };
enum tcp_ca_state { TCP_CA_Disorder = 1, TCP_CA_CWR = 2, TCP_CA_Loss = 4 };

/* libbpf matches the members by name; those missing here stay zero in the kernel's struct. */
struct tcp_congestion_ops {
	__u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, __u32 ack, __u32 acked);
	void (*set_state)(struct sock *sk, __u8 new_state);
	void (*cwnd_event)(struct sock *sk, enum tcp_ca_event event);
#ifdef HAVE_CWND_EVENT_TX_START
	void (*cwnd_event_tx_start)(struct sock *sk);
#endif
	void (*in_ack_event)(struct sock *sk, __u32 flags);
	void (*pkts_acked)(struct sock *sk, const struct ack_sample *sample);
	__u32 (*min_tso_segs)(struct sock *sk);
	__u32 (*undo_cwnd)(struct sock *sk);
	char name[16];
	__u32 flags;
	void (*init)(struct sock *sk);
	void (*release)(struct sock *sk);
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__bpf_sk_storage_map {
	struct bpf_iter_meta *meta;
	struct bpf_map *map;
	struct sock *sk;
	void *value;
};

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
};

struct task_struct {
	int pid;
	int tgid;
};

struct inode {
	unsigned long i_ino;
};

struct file {
	struct inode *f_inode;
};

struct socket {
	struct sock *sk;
};

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	__u32 fd;
	struct file *file;
};

#pragma clang attribute pop

/* An address of a socket in IPv6 form (IPv4 mapped), aligned to words. */
static __always_inline void copy_address(__u8 to[16], __u16 family, __be32 v4,
					 const struct in6_addr *v6)
{
	__be32 *words = (__be32 *)to, i;

	if (family == AF_INET6) {
		/* Word by word, which needs no helper that lockdown forbids. */
		for (i = 0; i < 4; i++)
			words[i] = v6->in6_u.u6_addr32[i];
		return;
	}
	words[0] = words[1] = 0;
	words[2] = __builtin_bswap32(0x0000ffff);
	words[3] = v4;
}

#endif
