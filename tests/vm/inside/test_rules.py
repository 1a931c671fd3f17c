# SPDX-License-Identifier: BSD-2-Clause
"""Rules of the kernel module: a cgroup's flows are a job's from the beginning, and no others."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import threading
import time
from pathlib import Path

import pytest
from vm.cgroups import cgroup, inside
from vm.hostile import (
    NEWNET,
    NEWUSER,
    NOBODY,
    Client,
    dump_begun,
    dump_read,
    elsewhere,
    exchange,
    gone,
    in_child,
    may_open_many,
    refused,
    unshare,
)
from vm.loading import choose, connected, pair

from mltcp_tools.kernel.backends import genl
from mltcp_tools.kernel.backends.attributes import iteration_from
from mltcp_tools.kernel.backends.base import JobParams
from mltcp_tools.kernel.backends.catch import Catch
from mltcp_tools.kernel.backends.kmod import KmodBackend
from mltcp_tools.kernel.host import cgroups
from mltcp_tools.kernel.native.uapi import GENL_GROUP, Attribute, Command

pytestmark = pytest.mark.usefixtures("module_leaves_nothing")

RULES_MAX = 1024
PAUSE_S = 0.02
"""Longer than any gap that a flow takes for the end of a burst by the parameters of the tests."""

GONE_S = 40.0


def jobs_of_flows(client: Client) -> list[int]:
    return sorted(flow.job_id for flow in client.flows())


def burst(sender: socket.socket, peer: socket.socket) -> None:
    time.sleep(PAUSE_S)
    exchange(sender, peer)


def test_flows_are_the_jobs_from_the_beginning(client: Client) -> None:
    """Those of the cgroup and of cgroups in it, both ends' and their children's; no others."""
    client.set_job(1)
    client.set_job(2)
    with cgroup("outer") as (outer, folder), cgroup("inner", outer) as (inner, inner_folder):
        client.set_rule(folder, 1)
        assert client.rules() == {os.fstat(folder).st_ino: 1}
        with pair("mltcp") as (other, _):
            client.meet(other)
            assert jobs_of_flows(client) == [0]
        assert gone(client)
        for path in (outer, inner):
            with inside(path):
                server = socket.create_server(("127.0.0.1", 0))
                choose(server, "mltcp")
            with server, socket.create_connection(server.getsockname()) as outside:
                child = server.accept()[0]
                with child:
                    exchange(outside, child)
                    assert jobs_of_flows(client) == [1]
            with inside(path), pair("mltcp"):
                assert jobs_of_flows(client) == [1]
            assert gone(client)
        client.set_rule(inner_folder, 2)
        with inside(inner), pair("mltcp"):
            assert jobs_of_flows(client) == [2]  # the nearest rule's
        assert gone(client)


def test_connections_of_a_millisecond_are_caught(client: Client) -> None:
    client.set_job(1)
    count = 200
    with cgroup("short") as (path, folder), Client() as listening:
        listening.socket.join(GENL_GROUP, 8 << 20)
        client.set_rule(folder, 1)
        with inside(path):
            for _ in range(count):
                with pair("mltcp") as (sender, peer):
                    exchange(sender, peer, 1)
        assert gone(client)
        heard = [
            iteration_from(genl.decode(data)[Attribute.ITERATION])
            for command, data in listening.socket.notifications(1)
            if command == Command.ITERATION
        ]
    assert len({each.cookie for each in heard if each.job_id == 1}) == count
    assert not any(each.job_id != 1 for each in heard)


def test_flows_that_are_there_follow_at_their_next_burst(client: Client) -> None:
    client.set_job(1)
    client.set_job(2)
    with cgroup("later") as (path, folder):
        with inside(path):
            ends = connected("mltcp"), connected("mltcp"), connected("mltcp")
        (sender, peer), (by_hand, by_hand_peer), (idle, idle_peer) = ends
        with sender, peer, by_hand, by_hand_peer, idle, idle_peer:
            exchange(sender, peer)
            client.tag(by_hand.fileno(), 2)
            client.set_rule(folder, 1)
            burst(sender, peer)
            burst(by_hand, by_hand_peer)
            assert jobs_of_flows(client) == [0, 1, 2]  # what was set by hand stays; one is idle
            client.delete_rule(os.fstat(folder).st_ino)
            burst(sender, peer)
            burst(by_hand, by_hand_peer)
            assert jobs_of_flows(client) == [0, 0, 2]
            client.set_rule(folder, 1)
            burst(sender, peer)
            client.untag(sender.fileno())
            burst(sender, peer)
            assert jobs_of_flows(client) == [0, 0, 2]  # what was taken off stays off
            with cgroup("another") as (_, another):
                client.set_rule(another, 2)
                burst(sender, peer)
                burst(by_hand, by_hand_peer)
                assert jobs_of_flows(client) == [0, 0, 2]  # whatever rules change
    assert gone(client)


def test_connections_with_other_ports_are_left_alone(client: Client) -> None:
    client.set_job(1)
    with cgroup("ports") as (path, folder), inside(path):
        server = socket.create_server(("127.0.0.1", 0))
        port = server.getsockname()[1]
        with server:
            for ports, lowest, job in (
                ((0, port, 0, 0), 0, 0),
                ((0, 0, 0, 0), 65535, 0),
                ((0, 0, 0, port ^ 1), 1024, 1),
            ):
                client.set_rule(
                    folder,
                    1,
                    not_ports=struct.pack("=4H", *ports),
                    lowest_port=struct.pack("=H", lowest),
                )
                with socket.socket() as sender:
                    choose(sender, "mltcp")
                    sender.connect(("127.0.0.1", port))
                    with server.accept()[0]:
                        assert jobs_of_flows(client) == [job or 0]
                assert gone(client)


def dying() -> int:
    """Cgroups that were removed, and which something keeps in the kernel."""
    lines = (cgroups.root() / "cgroup.stat").read_text().splitlines()
    return int(dict(line.split() for line in lines)["nr_dying_descendants"])


def test_a_rule_ends_with_its_socket_its_job_and_its_cgroup(client: Client) -> None:
    client.set_job(1)
    with cgroup("ending") as (path, folder), inside(path), pair("mltcp") as (sender, peer):
        number = os.fstat(folder).st_ino
        with Client() as owner:
            owner.set_rule(folder, 1)
            burst(sender, peer)
            assert jobs_of_flows(client) == [1]
        assert client.rules() == {}
        burst(sender, peer)
        assert jobs_of_flows(client) == [0]

        def killed() -> None:
            with Client() as own:
                own.set_rule(folder, 1)
                assert client.rules() == {number: 1}
                os.kill(os.getpid(), 9)

        with pytest.raises(AssertionError):
            in_child(killed)
        assert client.rules() == {}

        client.set_rule(folder, 1)
        client.delete_job(1)
        assert client.rules() == {}
        client.set_job(1)  # another one of that id
        burst(sender, peer)
        assert jobs_of_flows(client) == [0]
    with cgroup("ending") as (path, folder):
        client.set_rule(folder, 1)
        with inside(path):
            ends = connected("mltcp")
        with ends[0] as sender, ends[1] as peer:
            path.rmdir()
            assert client.rules() == {}
            with refused(errno.ENOENT):
                client.set_rule(folder, 1)
            with cgroup("another") as (_, another):
                client.set_rule(another, 1)
                burst(sender, peer)  # the rules are looked at once more
                assert jobs_of_flows(client) == [0]


def test_refused_rule_removes_the_one_before(client: Client) -> None:
    client.set_job(1)
    client.set_job(2)
    with (
        cgroup("refused") as (path, _),
        cgroup("other") as (other, folder),
        KmodBackend().catcher() as catcher,
    ):
        catcher.set({path: Catch(1), other: Catch(1)})
        assert len(client.rules()) == 2
        catcher.set({path: Catch(99), other: Catch(2)})  # there is no such job
        assert client.rules() == {os.fstat(folder).st_ino: 2}
        assert catcher.cgroups == [other]


def test_a_cgroup_that_has_ended_is_let_go(client: Client) -> None:
    client.set_job(1)
    before = dying()
    with cgroup("let-go") as (_, folder):
        client.set_rule(folder, 1)
    assert client.rules() == {}
    deadline = time.monotonic() + GONE_S
    while dying() > before:
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_container_with_net_admin_has_no_rules(client: Client) -> None:
    """The initial user namespace's root, without more than a network namespace of its own."""
    client.set_job(1)
    with cgroup("container") as (_, folder):
        client.set_rule(folder, 1)
        number = os.fstat(folder).st_ino
        with elsewhere(), Client() as there:
            there.set_job(1, JobParams())
            for change in (
                lambda: there.set_rule(folder, 1),
                lambda: there.delete_rule(number),
                there.rules,
            ):
                with refused(errno.EPERM):
                    change()
        assert client.rules() == {number: 1}


def test_only_the_hosts_administrator_has_rules(client: Client) -> None:
    client.set_job(1)
    with cgroup("privileged") as (path, folder):
        os.chown(path, NOBODY, NOBODY)
        client.set_rule(folder, 1)
        number = os.fstat(folder).st_ino

        def refuses(asking: Client) -> None:
            for change in (
                lambda: asking.set_rule(folder, 1),
                lambda: asking.delete_rule(number),
                asking.rules,
            ):
                with refused(errno.EPERM):
                    change()

        def unprivileged() -> None:
            os.setresuid(NOBODY, NOBODY, 0)
            refuses(client)  # root opened it, but doesn't ask
            with Client() as own:
                refuses(own)
                os.setresuid(0, 0, 0)
                refuses(own)  # root asks, but didn't open it

        def lord_of_another_namespace() -> None:
            os.setresuid(NOBODY, NOBODY, NOBODY)
            unshare(NEWUSER | NEWNET)
            with Client() as own:
                own.set_job(1, JobParams())
                refuses(own)

        in_child(unprivileged)
        in_child(lord_of_another_namespace)
        assert client.rules() == {number: 1}


def test_what_is_no_rule(client: Client, tmp_path: Path) -> None:
    client.set_job(1)
    with contextlib.ExitStack() as stack:
        path, folder = stack.enter_context(cgroup("hostile"))
        left, right = os.pipe()
        stack.callback(os.close, left)
        stack.callback(os.close, right)
        for place, flags, code in (
            (tmp_path, os.O_RDONLY | os.O_DIRECTORY, errno.EBADF),
            (path / "cgroup.procs", os.O_RDONLY, errno.EBADF),
            (Path("/proc/self"), os.O_RDONLY | os.O_DIRECTORY, errno.EBADF),
        ):
            wrong = os.open(place, flags)
            stack.callback(os.close, wrong)
            with refused(code, "not of the folder of a cgroup"):
                client.set_rule(wrong, 1)
        for wrong in (left, stack.enter_context(socket.socket()).fileno(), 1000, 2**31 - 1):
            with refused(errno.EBADF, "not of the folder of a cgroup"):
                client.set_rule(wrong, 1)
        with refused(errno.ERANGE):
            client.set_rule(-1, 1)
        with refused(errno.ERANGE):
            client.set_rule(folder, 0)
        with refused(errno.ENOENT, "no such job"):
            client.set_rule(folder, 2)
        for more in (b"", b"\1", bytes(7), bytes(9), bytes(4096)):
            with pytest.raises(genl.NetlinkError):
                client.set_rule(folder, 1, not_ports=more)
        for more in (b"", b"\1"):
            with pytest.raises(genl.NetlinkError):
                client.set_rule(folder, 1, lowest_port=more)
        with refused(errno.EINVAL):
            client.set_rule(folder, 1, cgroup=bytes(8))
        fd, job = struct.pack("=i", folder), struct.pack("=I", 1)
        for command, given in (
            (Command.RULE_SET, {Attribute.FD: fd}),
            (Command.RULE_SET, {Attribute.JOB_ID: job}),
            (Command.RULE_SET, {Attribute.FD: fd[:3], Attribute.JOB_ID: job}),
            (Command.RULE_DEL, {}),
            (Command.RULE_DEL, {Attribute.CGROUP: bytes(4)}),
            (Command.RULE_DEL, {Attribute.JOB_ID: job}),
            (Command.RULE_GET, {}),  # not for one
        ):
            with pytest.raises(genl.NetlinkError):
                client.socket.request(command, given)
        with refused(errno.EINVAL):
            client.socket.dump(Command.RULE_GET, {Attribute.JOB_ID: job})
        for number in (0, os.fstat(folder).st_ino, 2**64 - 1):
            with refused(errno.ENOENT, "no rule for this cgroup"):
                client.delete_rule(number)
        assert client.rules() == {}


def test_the_table_of_rules_is_full(client: Client) -> None:
    client.set_job(1)
    may_open_many()
    with contextlib.ExitStack() as stack:
        every = [stack.enter_context(cgroup(f"many-{number}")) for number in range(RULES_MAX + 1)]
        folders = [folder for _, folder in every]
        for folder in folders[:-1]:
            client.set_rule(folder, 1)
        with refused(errno.ENOSPC, "table of rules is full"):
            client.set_rule(folders[-1], 1)
        client.set_rule(folders[5], 1)  # there is one already
        numbers = [os.fstat(folder).st_ino for folder in folders]
        assert client.rules() == dict.fromkeys(numbers[:-1], 1)
        client.delete_rule(numbers[0])
        client.set_rule(folders[-1], 1)
        assert client.rules() == dict.fromkeys(numbers[1:], 1)


def test_a_dump_has_each_rule_that_stays_once(client: Client) -> None:
    """Whatever comes and goes between its reads, which list 1,024 rules in several."""
    client.set_job(1)
    may_open_many()
    with contextlib.ExitStack() as stack:
        folders = [
            stack.enter_context(cgroup(f"many-{number}"))[1] for number in range(RULES_MAX + 100)
        ]
        numbers = [os.fstat(folder).st_ino for folder in folders]
        for folder in folders[:RULES_MAX]:
            client.set_rule(folder, 1)
        reads, found = 0, list[int]()
        with dump_begun(client, Command.RULE_GET) as reader:
            while read := [genl.number(each[Attribute.CGROUP]) for each in dump_read(reader)]:
                found += read
                for _ in range(20):
                    client.delete_rule(found.pop())
                    client.set_rule(folders[RULES_MAX + reads], 1)
                    reads += 1
        assert reads > 20
        assert len(set(found)) == len(found)
        staying = set(client.rules()) & set(numbers[:RULES_MAX])
        assert staying <= set(found)


def test_unloading_with_rules_and_connections_that_end(client: Client) -> None:
    """The fixture unloads the module, and sees that nothing is left."""
    client.set_job(1)
    with cgroup("unloaded") as (path, folder), inside(path):
        client.set_rule(folder, 1)
        with pair("mltcp") as (sender, peer):
            exchange(sender, peer)
        assert gone(client)
        assert client.rules()


def test_rules_that_change_beside_connections_that_come_and_go(client: Client) -> None:
    client.set_job(1)
    with cgroup("busy") as (path, folder), inside(path):
        number = os.fstat(folder).st_ino
        stop = threading.Event()

        def churn() -> None:
            with pair("mltcp") as (lasting, its_peer):
                while not stop.is_set():
                    exchange(lasting, its_peer, 1)
                    with pair("mltcp_reno") as (sender, peer):
                        exchange(sender, peer, 1)

        def change(how: int) -> None:
            with Client() as own:
                while not stop.is_set():
                    with contextlib.suppress(genl.NetlinkError):  # another one was quicker
                        if how == 0:
                            own.set_job(1)
                        own.set_rule(folder, 1)
                        if how == 1:
                            own.delete_rule(number)
                        elif how == 2:
                            own.delete_job(1)
                        own.rules()

        running = [threading.Thread(target=churn) for _ in range(3)]
        running += [threading.Thread(target=change, args=(how,)) for how in range(3)]
        for each in running:
            each.start()
        time.sleep(5)
        stop.set()
        for each in running:
            each.join()
    assert gone(client)
