# SPDX-License-Identifier: BSD-2-Clause
"""The kernel module on connections in unusual states, and on those that come without memory."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import dpkt
import pytest
from dpkt.tcp import TH_ACK as ACK
from dpkt.tcp import TH_ECE as ECE
from dpkt.tcp import TH_PUSH as PUSH
from dpkt.tcp import TH_RST as RST
from dpkt.tcp import TH_SYN as SYN
from support.scripted_peer import ADDRESS, PEER, PORT, ip_packet, tun
from support.waiting import wait_for
from vm.hostile import (
    NOBODY,
    Client,
    elsewhere,
    exchange,
    gone,
    in_child,
    refused,
)
from vm.loading import SLAB, choose, chosen, connected, disconnect, pair

from mltcp_tools.kernel.backends import genl
from mltcp_tools.kernel.backends.base import JobParams
from mltcp_tools.kernel.congestion_controls import offered_by
from mltcp_tools.kernel.host.tcpstates import tcp_state
from mltcp_tools.lab.testbed.namespaces import sysctls_set, write_sysctl

MODULE_NAMES = offered_by("kmod")

pytestmark = pytest.mark.usefixtures("module_leaves_nothing")

FAILSLAB = Path("/sys/kernel/debug/failslab")


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_connection_in_every_state(client: Client, family: int) -> None:
    client.set_job(1)

    def is_tagged(sender: socket.socket) -> bool:
        port = sender.getsockname()[1]
        return [flow.job_id for flow in client.flows() if flow.local_port == port] == [1]

    sender, peer = connected("mltcp_cubic", family)
    with sender, peer:
        peer.shutdown(socket.SHUT_WR)  # close-wait
        client.tag(sender.fileno(), 1)
        exchange(sender, peer)
        assert is_tagged(sender)
        client.untag(sender.fileno())
        sender.shutdown(socket.SHUT_WR)
        with contextlib.suppress(genl.NetlinkError):  # its last ACK may be on the way
            client.tag(sender.fileno(), 1)
    sender, peer = connected("mltcp_cubic", family)
    with sender, peer:
        sender.shutdown(socket.SHUT_WR)  # fin-wait
        client.tag(sender.fileno(), 1)
        assert is_tagged(sender)
    sender, peer = connected("mltcp_cubic", family)
    with sender:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()  # reset: closed without having been closed here
        with refused(errno.ENOTCONN):
            client.tag(sender.fileno(), 1)
        client.untag(sender.fileno())
        choose(sender, "reno")
        choose(sender, "mltcp")
        with refused(errno.ENOTCONN):
            client.tag(sender.fileno(), 1)
    assert gone(client)


@pytest.mark.parametrize("name", MODULE_NAMES)
@pytest.mark.parametrize("mechanisms", [None, ("increase", "yield")])
def test_choosing_the_same_name_again_changes_nothing(
    client: Client, name: str, mechanisms: tuple[str, ...] | None
) -> None:
    """Its peer agrees to no ECN, so what needs that goes by the name of what it has instead."""
    with pair(name) as (sender, peer):
        if mechanisms:
            client.set_job(1, JobParams(mechanisms=mechanisms))
            client.tag(sender.fileno(), 1)
        exchange(sender, peer, 3)
        (before,) = client.flows()
        name = chosen(sender)
        choose(sender, name)
        assert client.flows() == [before]

        def as_nobody() -> None:
            os.setuid(NOBODY)
            choose(sender, name)

        in_child(as_nobody)
        assert client.flows() == [before]
    assert gone(client)


def test_switching_while_it_connects() -> None:
    """Its state is made when it has connected; see need_state() in kmod/mltcp_cc.c."""
    loss = ["tc", "qdisc", "add", "dev", "lo", "root", "netem", "loss", "100%"]
    with elsewhere(), socket.create_server(("127.0.0.1", 0)) as server, Client() as here:
        here.set_job(1)
        subprocess.run(loss, check=True)
        sender = socket.socket()
        sender.setblocking(False)
        sender.connect_ex(server.getsockname())
        choose(sender, "mltcp")
        with refused(errno.ENOTCONN):
            here.tag(sender.fileno(), 1)
        assert here.flows() == []
        subprocess.run(["tc", "qdisc", "del", "dev", "lo", "root"], check=True)
        peer, _ = server.accept()  # the SYN comes again after a second
        sender.setblocking(True)
        with sender, peer:
            here.tag(sender.fileno(), 1)
            (flow,) = here.flows()
            assert (flow.job_id, flow.state) == (1, "established")
            exchange(sender, peer)
            (flow,) = here.flows()
            assert flow.acks > 0


@pytest.mark.parametrize(
    ("before", "after"), [("mltcp_cubic", "reno"), ("bbr", "mltcp"), ("mltcp", "mltcp_dctcp")]
)
def test_a_route_takes_over_while_the_first_data_is_awaited(
    client: Client, before: str, after: str
) -> None:
    """The kernel then changes the operations without release or init."""
    with elsewhere():
        write_sysctl("net.ipv4.tcp_fastopen", "1543")  # 0x607: without cookies
        route = ["ip", "route", "replace", "local", "127.0.0.1", "dev", "lo", "table", "local"]
        subprocess.run([*route, "congctl", after], check=True)
        with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as sender:
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN, 5)
            sender.setsockopt(socket.IPPROTO_TCP, 30, 1)  # TCP_FASTOPEN_CONNECT
            sender.connect(server.getsockname())
            choose(sender, before)
            sender.sendall(b"first")
            assert chosen(sender) == after
            peer, _ = server.accept()
            with peer:
                assert peer.recv(5) == b"first"
                exchange(sender, peer)
                if after.startswith("mltcp"):
                    client.meet(sender, peer)
                names = [flow.congestion_control for flow in client.flows()]
                assert names.count(after) == (2 if after.startswith("mltcp") else 0)
                assert not [name for name in names if name not in (before, after)]
        assert gone(client)


def test_a_listener_hands_its_congestion_control_on(client: Client) -> None:
    client.set_job(1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        choose(server, "mltcp_cubic")
        assert client.flows() == []
        with contextlib.ExitStack() as stack:
            for _ in range(20):
                sender = stack.enter_context(socket.create_connection(server.getsockname()))
                peer = stack.enter_context(server.accept()[0])
                assert chosen(peer) == "mltcp_cubic"
                client.tag(peer.fileno(), 1)
                exchange(peer, sender)
                choose(server, "reno")  # doesn't change the children
                choose(server, "mltcp_cubic")
            assert [flow.job_id for flow in client.flows()] == [1] * 20
            # One that nobody accepts, and one that becomes a listener itself.
            stack.enter_context(socket.create_connection(server.getsockname()))
            disconnect(peer)
            peer.bind(("127.0.0.1", 0))
            peer.listen()
            child = stack.enter_context(socket.create_connection(peer.getsockname()))
            accepted = stack.enter_context(peer.accept()[0])
            assert chosen(accepted) == "mltcp_cubic"
            exchange(accepted, child)
    assert gone(client)


@pytest.mark.parametrize("name", MODULE_NAMES)
def test_the_same_socket_connects_again_and_again(client: Client, name: str) -> None:
    client.set_job(1)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as sender:
        choose(sender, name)
        name = name.replace("dctcp", "").rstrip("_")  # for want of ECN
        for ecn in ("0", "1", "0", "1"):
            with sysctls_set({"net.ipv4.tcp_ecn": ecn}):
                sender.connect(server.getsockname())
            with server.accept()[0] as peer:
                assert chosen(sender) == name
                client.tag(sender.fileno(), 1)
                exchange(sender, peer)
                assert [flow.job_id for flow in client.flows()] == [1]
            disconnect(sender)
            assert client.flows() == []
            assert chosen(sender) == name


@pytest.mark.parametrize("ecn", ["0", "1"])
def test_dctcp_with_and_without_ecn(client: Client, ecn: str) -> None:
    """Its base puts other operations in its place without ECN; references must come out even."""
    with elsewhere():
        write_sysctl("net.ipv4.tcp_ecn", ecn)
        for name in ("mltcp_dctcp", "dctcp"):
            for _ in range(20):
                sender, peer = connected(name)
                with sender, peer:
                    exchange(sender, peer)
                    choose(sender, "reno")
                    choose(sender, "mltcp_dctcp")
                    exchange(sender, peer)
                    choose(sender, "dctcp")
                    choose(sender, name)
                    exchange(sender, peer)
        with socket.create_server(("127.0.0.1", 0)) as server:
            choose(server, "mltcp_dctcp")
            for _ in range(20):
                with socket.create_connection(server.getsockname()) as sender:
                    server.accept()[0].close()
    assert gone(client)


ECT0, CE = 2, 3


class Peer:
    """The end of connections to PEER; it says what a test has it say, and nothing else."""

    def __init__(self, device: int) -> None:
        self.sequence = 1000
        self._device = device
        self._port = 0

    def meet(self, before: str | None, after: str | None) -> tuple[socket.socket, int]:
        """A socket that connects, with what it has chosen before and since; what its SYN wants to
        be acknowledged."""
        sender = socket.socket()
        sender.setblocking(False)
        if before:
            choose(sender, before)
        with contextlib.suppress(BlockingIOError):
            sender.connect((PEER, PORT))
        while (syn := self.hears(SYN)).flags & ACK:
            pass
        self._port = syn.sport
        if after:
            choose(sender, after)
        return sender, syn.seq + 1

    def hears(self, flags: int) -> dpkt.tcp.TCP:
        """The next segment with these flags."""
        while True:
            assert select.select([self._device], [], [], 60)[0], f"nothing comes with {flags:#x}"
            tcp = dpkt.ip.IP(os.read(self._device, 4096)).data
            if tcp.flags & flags == flags:
                return tcp

    def says(self, flags: int, ack: int = 0, size: int = 0, ecn: int = 0) -> None:
        ports = {"sport": PORT, "dport": self._port}
        given = {"seq": self.sequence, "ack": ack, "flags": flags, "win": 60_000}
        tcp = dpkt.tcp.TCP(**ports, **given, data=bytes(size))
        os.write(self._device, ip_packet(PEER, ADDRESS, dpkt.ip.IP_PROTO_TCP, tcp, ecn))
        self.sequence += size + bool(flags & SYN)


@pytest.fixture
def alone() -> Iterator[tuple[Client, Peer]]:
    """The module's interface in a namespace with a peer."""
    with elsewhere(), Client() as here, tun() as device:
        write_sysctl("net.ipv4.tcp_orphan_retries", "1")
        write_sysctl("net.ipv4.tcp_ecn", "1")
        here.set_job(1)
        yield here, Peer(device)
        assert gone(here, 60)


def await_state(sock: socket.socket, wanted: str) -> None:
    def state() -> str:
        return tcp_state(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0])

    wait_for(lambda: state() == wanted, wanted)


@pytest.mark.parametrize(
    ("before", "after"),
    [("mltcp", None), ("mltcp_dctcp", None), (None, "mltcp_cubic"), ("mltcp", "mltcp_dctcp")],
)
def test_a_socket_of_crossed_syns_that_closes_leaves_nothing(
    alone: tuple[Client, Peer], before: str | None, after: str | None
) -> None:
    """It was never established: since 6.13 the kernel calls no release then."""
    client, peer = alone
    for _ in range(20):
        sender, ack = peer.meet(before, after)
        with refused(errno.ENOTCONN):
            client.tag(sender.fileno(), 1)
        peer.sequence = 1000
        peer.says(SYN)
        peer.hears(SYN | ACK)
        await_state(sender, "syn-recv")
        with contextlib.suppress(genl.NetlinkError):
            client.tag(sender.fileno(), 1)
        sender.close()
        peer.says(ACK, ack)
        client.flows()
        peer.says(RST | ACK, ack)
        with socket.socket():  # has the memory of the other one soon
            client.flows()


@pytest.mark.parametrize("name", ["dctcp", "mltcp_dctcp"])
@pytest.mark.parametrize("late", [False, True])
def test_dctcp_tells_its_peer_of_each_mark_and_no_more(
    alone: tuple[Client, Peer], name: str, late: bool
) -> None:
    """Though the peer hasn't reduced its window (RFC 8257, 3.2)."""
    _, peer = alone
    sender, ack = peer.meet(None if late else name, name if late else None)

    def is_told(mark: int) -> bool:
        peer.says(ACK | PUSH, ack, 10, mark)
        while (answer := peer.hears(ACK)).ack != peer.sequence:
            pass
        return bool(answer.flags & ECE)

    with sender:
        peer.says(SYN | ACK | ECE, ack)
        await_state(sender, "established")
        assert [is_told(each) for each in (ECT0, CE, ECT0, ECT0)] == [False, True, False, False]
        peer.says(RST | ACK, ack)


@contextlib.contextmanager
def no_memory() -> Iterator[None]:
    """No flow gets its state."""
    settings = {"probability": 100, "times": -1, "verbose": 0, "cache-filter": "Y"}
    for name, value in settings.items():
        (FAILSLAB / name).write_text(str(value))
    (SLAB / "failslab").write_text("1")
    try:
        yield
    finally:
        (SLAB / "failslab").write_text("0")
        (FAILSLAB / "probability").write_text("0")


def test_flow_without_memory_is_its_base_and_gets_state_later() -> None:
    if not FAILSLAB.exists():
        pytest.skip("this kernel fails no allocation on purpose: it takes a debug kernel")
    cc_info = 26  # TCP_CC_INFO, of DCTCP: enabled, CE state, alpha, bytes marked, bytes
    with contextlib.ExitStack() as stack:
        stack.enter_context(elsewhere())
        here = stack.enter_context(Client())
        here.set_job(1)
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        choose(server, "dctcp")  # a SYN of DCTCP asks for ECN in a way that only its like answers
        sender = stack.enter_context(socket.socket())
        choose(sender, "mltcp_dctcp")
        with no_memory():
            sender.connect(server.getsockname())
            peer = stack.enter_context(server.accept()[0])
            exchange(sender, peer, 50)
            assert here.flows() == []
            with refused(errno.ENOTCONN):
                here.tag(sender.fileno(), 1)
            info = sender.getsockopt(socket.IPPROTO_TCP, cc_info, 16)
            enabled, _, alpha, _, _ = struct.unpack("=HHIII", info)
            # It starts at 1024, and falls with each window that came without a mark.
            assert enabled
            assert alpha < 1024
        deadline = time.monotonic() + 60
        while not here.flows() and time.monotonic() < deadline:
            time.sleep(0.1)  # it asks for memory once a second, when an ACK comes
            exchange(sender, peer, 1)
        here.tag(sender.fileno(), 1)
        assert [flow.job_id for flow in here.flows()] == [1]
