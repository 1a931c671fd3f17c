# SPDX-License-Identifier: BSD-2-Clause
"""Sends of flows, put together from packets."""

from __future__ import annotations

from socket import inet_aton

import dpkt
from support.wire import Sent, flows_of

HERE, THERE = "10.0.1.1", "10.0.0.1"
SYN, ACK, FIN = dpkt.tcp.TH_SYN, dpkt.tcp.TH_ACK, dpkt.tcp.TH_FIN
START = 2**32 - 2000  # so that sequence numbers wrap within the first segments
HEADERS = 14 + 20 + 20


def out(time_s: float, offset: int, size: int = 0, flags: int = ACK) -> tuple[float, bytes]:
    """A packet from here with data from that offset of the connection on, without the data."""
    return _packet(time_s, HERE, THERE, (START + 1 + offset) % 2**32, 1, size, flags)


def back(time_s: float, acked: int, size: int = 0) -> tuple[float, bytes]:
    """A packet from there that acknowledges so many bytes."""
    return _packet(time_s, THERE, HERE, 1, (START + 1 + acked) % 2**32, size, ACK)


def _packet(
    time_s: float, source: str, target: str, seq: int, ack: int, size: int, flags: int
) -> tuple[float, bytes]:
    ports = (1000, 2000) if source == HERE else (2000, 1000)
    tcp = dpkt.tcp.TCP(sport=ports[0], dport=ports[1], seq=seq, ack=ack, flags=flags)
    tcp.data = bytes(size)
    ip = dpkt.ip.IP(src=inet_aton(source), dst=inet_aton(target), p=dpkt.ip.IP_PROTO_TCP, data=tcp)
    ip.len = len(ip)
    return time_s, bytes(dpkt.ethernet.Ethernet(data=ip))[:HEADERS]


SYN_SENT = _packet(0, HERE, THERE, START, 0, 0, SYN)


def sent(*packets: tuple[float, bytes]) -> list[Sent]:
    (flow,) = flows_of([SYN_SENT, *packets], HERE).values()
    return flow


def test_a_piece_lasts_until_nothing_is_outstanding() -> None:
    packets = [out(1, 0, 1448), out(1.1, 1448, 1448), back(1.2, 1448), out(1.3, 2896, 1448)]
    packets += [back(1.4, 4344), out(3, 4344, 100), back(3.5, 4444)]
    assert sent(*packets) == [Sent(1, 1.2, 1.4, 4344), Sent(3, 3.5, 3.5, 100)]


def test_a_retransmission_begins_nothing() -> None:
    packets = [out(1, 0, 1448), out(1.1, 1448, 1448), out(2, 0, 1448), back(2.1, 2896)]
    packets += [out(2.2, 1448, 1448), back(2.3, 2896), out(3, 2896, 10), back(3.1, 2906)]
    assert sent(*packets) == [Sent(1, 2.1, 2.1, 2896), Sent(3, 3.1, 3.1, 10)]


def test_what_comes_back_with_an_ack_is_no_part_of_it() -> None:
    packets = [back(0.5, 0, 700), out(1, 0, 1448), back(1.5, 1448, 700), back(1.6, 1448, 700)]
    assert sent(*packets) == [Sent(1, 1.5, 1.5, 1448)]


def test_a_fin_is_no_byte() -> None:
    packets = [out(1, 0, 100), back(1.1, 100), out(2, 100, 0, FIN | ACK), back(2.1, 101)]
    assert sent(*packets) == [Sent(1, 1.1, 1.1, 100)]


def test_flows_are_told_apart_and_others_left_out() -> None:
    assert flows_of([SYN_SENT, out(1, 0, 10), back(2, 10)], THERE) == {}
    with_arp = [(0.0, bytes(dpkt.ethernet.Ethernet(data=dpkt.arp.ARP(), type=0x0806)))]
    flows = flows_of([*with_arp, out(1, 0, 10), back(2, 10)], HERE)
    assert list(flows) == [(HERE, 1000, THERE, 2000)]
    assert flows.popitem()[1] == [Sent(1, 2, 2, 10)]
