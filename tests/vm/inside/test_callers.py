# SPDX-License-Identifier: BSD-2-Clause
"""The kernel module against users who ask for what they can't have, or mean harm."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import random
import socket
import struct
import subprocess
import time

import pytest
from support.scripted_peer import MSS, RECOVERY, Peer, scripted_peer_here
from vm.cgroups import cgroup
from vm.fuzz import IDS, Fuzzer
from vm.hostile import (
    NEWNET,
    NEWUSER,
    NOBODY,
    Client,
    elsewhere,
    exchange,
    gone,
    in_child,
    refused,
    unshare,
)
from vm.loading import choose, connected, pair

from mltcp_tools.kernel.backends import genl
from mltcp_tools.kernel.backends.base import JobParams
from mltcp_tools.kernel.congestion_controls import offered_by
from mltcp_tools.kernel.native.uapi import GENL_NAME, Attribute, Command

pytestmark = pytest.mark.usefixtures("module_leaves_nothing")

JOBS_MAX = 4096
RTT_S = 0.02
BURST = 100_000


def test_descriptors_that_cannot_be_tagged(client: Client) -> None:
    client.set_job(1)
    with contextlib.ExitStack() as stack:
        enter = stack.enter_context
        left, right = os.pipe()
        stack.callback(os.close, left)
        stack.callback(os.close, right)
        sender, _ = map(enter, connected("mltcp"))
        file = os.open("/proc/self/status", os.O_RDONLY)
        stack.callback(os.close, file)
        path_only = os.open("/proc/self/status", os.O_PATH)
        stack.callback(os.close, path_only)
        event = os.eventfd(0)
        stack.callback(os.close, event)
        listener = enter(socket.create_server(("127.0.0.1", 0)))
        choose(listener, "mltcp")
        new = enter(socket.socket())
        choose(new, "mltcp")
        other = enter(socket.socket())
        other.connect(listener.getsockname())
        choose(other, "reno")
        datagram = enter(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        raw = enter(socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP))
        local, _ = map(enter, socket.socketpair())
        netlink = enter(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0))
        packet = enter(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
        strangers = [datagram, raw, local, netlink, packet]
        with contextlib.suppress(OSError):  # where the kernel has it
            mptcp = enter(socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262))
            strangers.append(mptcp)
        for take_off in (False, True):

            def ask(fd: int, take_off: bool = take_off) -> None:
                if take_off:
                    client.untag(fd)
                else:
                    client.tag(fd, 1)

            for fd in (1000, 2**31 - 1, path_only):
                with refused(errno.EBADF, "not a socket"):
                    ask(fd)
            for fd in (left, right, file, event):
                with refused(errno.ENOTSOCK, "not a socket"):
                    ask(fd)
            for stranger in strangers:
                with refused(errno.EOPNOTSUPP, "not a TCP socket"):
                    ask(stranger.fileno())
            for useless in (listener, new, other):
                with refused(errno.ENOTCONN, "not connected, or not under MLTCP"):
                    ask(useless.fileno())
            with refused(errno.ERANGE):
                ask(-1)
            ask(sender.fileno())
        with refused(errno.ENOENT, "no such job"):
            client.tag(sender.fileno(), 2)


def test_the_callers_that_may_not(client: Client) -> None:
    client.set_job(1)
    sender, peer = connected("mltcp")
    with sender, peer:

        def refuses(asking: Client) -> None:
            for change in (
                lambda: asking.set_job(2),
                lambda: asking.set_job(1),
                lambda: asking.delete_job(1),
                lambda: asking.tag(sender.fileno(), 1),
                lambda: asking.untag(sender.fileno()),
            ):
                with refused(errno.EPERM):
                    change()
            assert asking.jobs() == [1]
            asking.flows()

        def unprivileged() -> None:
            os.setresuid(NOBODY, NOBODY, 0)
            refuses(client)  # root opened it, but doesn't ask
            with Client() as own:
                refuses(own)
                os.setresuid(0, 0, 0)
                refuses(own)  # root asks, but didn't open it

        def lord_of_another_namespace() -> None:
            os.setresuid(NOBODY, NOBODY, NOBODY)
            unshare(NEWUSER)
            with Client() as there:
                refuses(there)  # still root's namespace
            unshare(NEWNET)
            with Client() as own:
                for pushy in (
                    JobParams(slope=2),
                    JobParams(slope=0, intercept=1),
                ):
                    with refused(errno.EACCES, "pushier"):
                        own.set_job(1, pushy)
                own.set_job(1, JobParams(mechanisms=("increase", "yield"), slope=1))
                own.set_job(1, JobParams())
                with refused(errno.EPERM, "socket's namespace"):
                    own.tag(sender.fileno(), 1)
                with refused(errno.EPERM, "socket's namespace"):
                    own.untag(sender.fileno())
                with socket.create_server(("127.0.0.1", 0)) as server:
                    choose(server, "mltcp")  # anyone may choose it
                assert own.flows() == []
                own.delete_job(1)

        client.tag(sender.fileno(), 1)
        in_child(unprivileged)
        in_child(lord_of_another_namespace)
        (tagged,) = (flow for flow in client.flows() if flow.job_id)
        assert tagged.job_id == 1
    assert client.jobs() == [1]


def test_container_with_net_admin_is_not_trusted(client: Client) -> None:
    """The initial user namespace's root, without more than a network namespace of its own."""
    client.set_job(1)
    with elsewhere(), Client() as there:
        for pushy in (JobParams(slope=4, intercept=4),):
            with refused(errno.EACCES, "pushier"):
                there.set_job(1, pushy)
        assert there.jobs() == []
        with refused(errno.ENOENT):
            there.delete_job(1)
        there.set_job(2, JobParams())
        assert there.jobs() == [2]
    assert client.jobs() == [1]


@pytest.mark.parametrize("by", ["a job", "what was learned"])
def test_container_root_gets_only_the_base_of_admin_variants(
    by: str,
) -> None:
    """Any user may be that, of namespaces of his own, and choose what is restricted there."""
    subprocess.run(["modprobe", "tun"], check=True)
    os.chmod("/dev/net/tun", 0o666)

    def lord() -> None:
        os.setresuid(NOBODY, NOBODY, NOBODY)
        unshare(NEWUSER)
        unshare(NEWNET)
        with Client() as own, scripted_peer_here("mltcp_dctcp", RTT_S) as peer:
            if by == "a job":
                own.set_job(1, JobParams(burst_bytes=2**40, gap_s=30))
                own.tag(peer.sender.fileno(), 1)
                lost = 0
            else:
                for _ in range(8):
                    send_and_receive(peer, BURST)
                    time.sleep(5 * RTT_S)
                assert any(each.learned_bytes for each in own.flows())
                lost = BURST // MSS - 10
            peer.send(BURST)
            before = peer.info().cwnd
            peer.round_trip(RTT_S, lose=[lost])
            assert peer.info().ca_state == RECOVERY
            assert peer.info().ssthresh <= (before + 1) / 2

    in_child(lord)


def send_and_receive(peer: Peer, size: int) -> None:
    peer.send(size)
    while peer.under_way:
        peer.round_trip(RTT_S)


def test_who_sees_whose_flows(client: Client) -> None:
    """The initial namespace's administrator all; others, there too, those of their own."""
    here, peer_here = connected("mltcp")
    client.meet(here)
    with elsewhere(), Client() as there:
        foreign, peer_there = connected("mltcp")
        there.meet(foreign)
        (seen,) = (flow.netns for flow in there.flows() if flow.state == "established")

        def unprivileged() -> None:
            os.setresuid(NOBODY, NOBODY, NOBODY)
            assert {flow.netns for flow in there.flows()} == {seen}

        in_child(unprivileged)

    def unprivileged_here() -> None:
        os.setresuid(NOBODY, NOBODY, NOBODY)
        with Client() as own:
            assert [flow.netns for flow in own.flows()] == [os.stat("/proc/self/ns/net").st_ino]

    with here, peer_here, foreign, peer_there:
        assert len(client.flows()) == 2
        in_child(unprivileged_here)
    assert gone(client)


def test_a_dump_of_the_jobs_takes_no_attribute(client: Client) -> None:
    client.set_job(1)
    with refused(errno.EINVAL):  # 6.1 gives such a refusal no text
        client.socket.dump(Command.JOB_GET, {Attribute.JOB_ID: struct.pack("=I", 1)})
    assert client.jobs() == [1]


def test_the_table_of_jobs_is_full(client: Client) -> None:
    numbers = [2**32 - 1 - 7919 * number for number in range(JOBS_MAX)]
    for number in numbers:
        client.set_job(number)
    with refused(errno.ENOSPC, "table of jobs is full"):
        client.set_job(1)
    client.set_job(numbers[5])  # there is one already
    assert client.jobs() == sorted(numbers)
    with elsewhere(), Client() as there:
        there.set_job(1)
        assert there.jobs() == [1]
    client.delete_job(numbers[0])
    client.set_job(1)
    with refused(errno.ENOSPC, "table of jobs is full"):
        client.set_job(2)
    for number in [1, *numbers[1:]]:
        client.delete_job(number)
    assert client.jobs() == []
    with refused(errno.ENOENT, "no such job"):
        client.delete_job(1)


def test_a_listener_that_never_reads(client: Client) -> None:
    client.set_job(1)
    deaf = genl.GenericSocket(GENL_NAME)
    deaf.join("iterations", 1)
    keen = genl.GenericSocket(GENL_NAME)
    keen.join("iterations", 1 << 20)
    sender, peer = connected("mltcp")
    with sender, peer:
        client.tag(sender.fileno(), 1)
        for _ in range(100):
            exchange(sender, peer, 1)
            time.sleep(0.002)
    heard = []
    while more := keen.notifications(0.2):
        heard += more
    assert len(heard) > 50
    assert deaf.dropped() > len(heard) / 2
    assert client.lost() >= deaf.dropped()
    deaf.close()
    keen.close()


STRANGERS = (
    (socket.AF_INET, socket.SOCK_STREAM),
    (socket.AF_INET, socket.SOCK_DGRAM),
    (socket.AF_INET6, socket.SOCK_STREAM),
    (socket.AF_UNIX, socket.SOCK_STREAM),
    (socket.AF_NETLINK, socket.SOCK_RAW),
)
"""Sockets that can't be tagged."""


@pytest.mark.parametrize(
    ("count", "user"),
    [
        (10_000, 0),
        pytest.param(300_000, 0, marks=pytest.mark.full),
        pytest.param(300_000, NOBODY, marks=pytest.mark.full),
    ],
)
def test_random_messages(client: Client, count: int, user: int) -> None:
    """All are answered, and the module works as ever afterwards. Those of a user, half of them over
    a socket that root opened, change nothing."""
    names = [*offered_by("kmod"), "reno"]
    for number in range(1, IDS + 1):
        client.set_job(number)
    before = client.socket.dump(Command.JOB_GET)
    with contextlib.ExitStack() as stack:
        enter = stack.enter_context
        pairs = [enter(pair(name)) for name in names * 2]
        others = [enter(socket.socket(*kind)) for kind in STRANGERS]
        _, folder = enter(cgroup("fuzzed"))
        fds = [each.fileno() for each in (*(sender for sender, _ in pairs), *others)]
        given = (client.socket.id, count, [*fds, folder], os.fstat(folder).st_ino)

        def some_traffic(draw: random.Random) -> None:
            for sender, peer in pairs:
                with contextlib.suppress(BlockingIOError):
                    sender.send(bytes(draw.randrange(4096)), socket.MSG_DONTWAIT)
                    while peer.recv(4096, socket.MSG_DONTWAIT):
                        pass
            with contextlib.suppress(PermissionError):
                choose(draw.choice(pairs)[0], draw.choice(names))

        def attack() -> None:
            fuzzers = [Fuzzer(*given)]
            if user:
                os.setresuid(user, user, user)
                fuzzers.append(Fuzzer(*given))
            draw, sent = random.Random(count), 0
            for turn in itertools.count():
                if sent >= count:
                    break
                fuzzer = fuzzers[turn % len(fuzzers)]
                sent += fuzzer.send_batch(may_change=not user)
                if turn % 64 == 0:
                    some_traffic(draw)
                if turn % 16 == 0:
                    fuzzer.send_garbage()
            print([dict(fuzzer.answers) for fuzzer in fuzzers], flush=True)

        in_child(attack)
        assert not user or client.socket.dump(Command.JOB_GET) == before
        for number in client.jobs():
            client.delete_job(number)
        client.set_job(1)
        sender = pairs[0][0]
        choose(sender, "mltcp")
        client.tag(sender.fileno(), 1)
        assert [flow.job_id for flow in client.flows()].count(1) == 1
        client.untag(sender.fileno())
        client.delete_job(1)
        assert client.jobs() == []
