/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A TCP peer made by hand: packets for 10.99.0.2 go out of a dummy interface, where they are read and
 * nothing answers them; what the peer says is sent through a raw socket. So a connection can be held
 * in any state.
 */
#ifndef PEER_H
#define PEER_H

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define OUR_ADDRESS 0x0a630001U /* 10.99.0.1 */
#define PEER_ADDRESS 0x0a630002U
#define PEER_DEVICE "peer0"

/* The two low bits of the IP header's type of service. */
#define CE 3
#define ECT0 2

#define TH_ECE 0x40
#define TH_CWR 0x80

struct peer {
	int raw, tap;
	uint16_t our_port, port;
	uint32_t next; /* sequence number of what the peer sends next */
};

/* What was read off the wire. */
struct segment {
	uint32_t sequence, acknowledged;
	uint8_t flags;
};

/* In the present network namespace; false where there are no such interfaces. */
static inline bool peer_device(void)
{
	return if_nametoindex(PEER_DEVICE) ||
	       !system("ip link add " PEER_DEVICE " type dummy && "
		       "ip addr add 10.99.0.1/24 dev " PEER_DEVICE " && "
		       "ip link set lo up && ip link set " PEER_DEVICE " up");
}

static inline bool peer_open(struct peer *p, uint16_t port)
{
	struct sockaddr_ll where = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL)};

	p->raw = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);
	p->tap = socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, htons(ETH_P_ALL));
	where.sll_ifindex = if_nametoindex(PEER_DEVICE);
	p->port = port;
	p->our_port = 0;
	p->next = 1000;
	return p->raw >= 0 && p->tap >= 0 && !bind(p->tap, (void *)&where, sizeof(where));
}

static inline struct sockaddr_in peer_address(const struct peer *p)
{
	return (struct sockaddr_in){.sin_family = AF_INET,
				    .sin_port = htons(p->port),
				    .sin_addr.s_addr = htonl(PEER_ADDRESS)};
}

/* The next segment to this peer, which comes within a minute on the slowest machine. */
static inline bool peer_hears(struct peer *p, struct segment *segment)
{
	struct pollfd ready = {.fd = p->tap, .events = POLLIN};
	unsigned char data[4096];

	while (poll(&ready, 1, 60000) > 0) {
		ssize_t length = recv(p->tap, data, sizeof(data), 0);
		const struct iphdr *ip = (void *)data;
		const struct tcphdr *tcp = (void *)(data + ip->ihl * 4);

		if (length < 40 || ip->version != 4 || ip->protocol != IPPROTO_TCP ||
		    ntohs(tcp->dest) != p->port)
			continue;
		p->our_port = ntohs(tcp->source);
		segment->sequence = ntohl(tcp->seq);
		segment->acknowledged = ntohl(tcp->ack_seq);
		segment->flags = ((const unsigned char *)tcp)[13];
		return true;
	}
	return false;
}

static inline uint32_t sum_words(const void *from, size_t bytes)
{
	const uint8_t *at = from;
	uint32_t sum = 0;
	size_t i;

	for (i = 0; i < bytes; i++)
		sum += i & 1 ? at[i] : at[i] << 8;
	return sum;
}

/* A segment from the peer, with `bytes` of data; ecn: of the IP header. */
static inline void peer_says(struct peer *p, uint8_t flags, uint32_t acknowledge, size_t bytes,
			     uint8_t ecn)
{
	struct {
		struct iphdr ip;
		struct tcphdr tcp;
		char data[64];
	} packet = {};
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(OUR_ADDRESS)};
	size_t length = sizeof(packet.tcp) + bytes;
	uint32_t sum;

	packet.ip.version = 4;
	packet.ip.ihl = 5;
	packet.ip.tos = ecn;
	packet.ip.ttl = 64;
	packet.ip.protocol = IPPROTO_TCP;
	packet.ip.saddr = htonl(PEER_ADDRESS);
	packet.ip.daddr = htonl(OUR_ADDRESS);
	packet.ip.tot_len = htons(sizeof(packet.ip) + length);
	packet.tcp.source = htons(p->port);
	packet.tcp.dest = htons(p->our_port);
	packet.tcp.seq = htonl(p->next);
	packet.tcp.ack_seq = htonl(acknowledge);
	packet.tcp.doff = 5;
	packet.tcp.window = htons(60000);
	((unsigned char *)&packet.tcp)[13] = flags;
	sum = sum_words(&packet.ip.saddr, 8) + IPPROTO_TCP + length +
	      sum_words(&packet.tcp, length);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	packet.tcp.check = htons(~sum);
	p->next += bytes + !!(flags & (TH_SYN | TH_FIN));
	sendto(p->raw, &packet, sizeof(packet.ip) + length, 0, (void *)&to, sizeof(to));
}

#endif
