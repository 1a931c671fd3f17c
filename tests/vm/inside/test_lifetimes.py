# SPDX-License-Identifier: BSD-2-Clause
"""The kernel module when flows, jobs, namespaces and the module itself go at bad times."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import functools
import mmap
import os
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from vm.hostile import (
    KERNELS_OWN,
    PROGRAMS,
    Client,
    dump_begun,
    dump_read,
    elsewhere,
    exchange,
    gone,
    refused,
)
from vm.loading import FILE, connected, libc, pair, remove
from vms.kernels import DEBUG

from mltcp_tools.kernel.backends import attributes, get_backend
from mltcp_tools.kernel.congestion_controls import offered_by
from mltcp_tools.kernel.native.uapi import Attribute, Command

MODULE_NAMES = offered_by("kmod")

SOAKED_KIB = 8 * 1024
"""Noise of the kernel's own memory; a state lost with each connection would be far more."""

pytestmark = pytest.mark.usefixtures("module_leaves_nothing")


def test_a_namespace_goes_before_its_flows_and_jobs(client: Client) -> None:
    """Its sockets are tagged with jobs here, and sockets from here with its jobs."""
    client.set_job(1)
    here, peer_here = connected("mltcp")
    with elsewhere(), Client() as there:
        there.set_job(1)
        foreign, peer_there = connected("mltcp_cubic")
        own, peer_own = connected("mltcp")
        client.tag(foreign.fileno(), 1)
        there.tag(here.fileno(), 1)
        there.tag(own.fileno(), 1)
        for ends in ((here, peer_here), (foreign, peer_there), (own, peer_own)):
            exchange(*ends)
    own.close()
    peer_own.close()
    foreign.close()
    peer_there.close()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        exchange(here, peer_here)
        (flow,) = (flow for flow in client.flows() if flow.job_id)
        if not flow.active:
            break
        time.sleep(0.1)
    assert not flow.active, "the namespace's job outlives it"
    client.tag(here.fileno(), 1)
    exchange(here, peer_here)
    client.delete_job(1)
    exchange(here, peer_here)
    here.close()
    peer_here.close()
    assert gone(client)


def test_each_namespace_has_its_own_table(client: Client) -> None:
    """Dumps of all go from one to the next, whatever comes and goes between."""
    with contextlib.ExitStack() as stack:
        inside = set()
        for _ in range(5):
            with elsewhere(), Client() as there:
                assert there.flows() == []
                for _ in range(40):
                    sender, peer = map(stack.enter_context, connected("mltcp"))
                    exchange(sender, peer, 1)
                    there.meet(sender)
                inside.add(os.stat("/proc/thread-self/ns/net").st_ino)
                assert {flow.netns for flow in there.flows()} <= inside
                assert len(there.flows()) == 40
        found = client.flows()
        assert {flow.netns for flow in found} == inside
        assert len({flow.cookie for flow in found}) == len(found) == 200
    assert gone(client)


def cookies_read(reader: socket.socket) -> list[int]:
    """Those of the flows of the next read; none after the last."""
    flows = (each.get(Attribute.FLOW) for each in dump_read(reader))
    return [attributes.flow_from(data).cookie for data in flows if data]


def test_a_dump_has_each_flow_that_stays_once(client: Client) -> None:
    """Whatever comes and goes between its reads."""
    with contextlib.ExitStack() as stack, contextlib.ExitStack() as others:
        going = []
        for _ in range(200):
            client.meet(stack.enter_context(pair("mltcp"))[0])
            going.append(others.enter_context(contextlib.ExitStack()))
            client.meet(going[-1].enter_context(pair("mltcp"))[0])
        with dump_begun(client, Command.FLOW_GET) as reader:
            read = cookies_read(reader)
            reads, found = 0, []
            while read:
                reads, found = reads + 1, found + read
                for _ in range(10):
                    going.pop().close()
                    client.meet(others.enter_context(pair("mltcp"))[0])
                read = cookies_read(reader)
        others.close()
        assert reads > 2
        assert len(set(found)) == len(found)
        deadline = time.monotonic() + 20
        while len(staying := client.flows()) > 200 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert {flow.cookie for flow in staying} <= set(found)
    assert gone(client)


def test_unloading_during_a_dump(client: Client) -> None:
    with contextlib.ExitStack() as stack:
        for i in range(300):
            client.meet(stack.enter_context(pair(MODULE_NAMES[i % 4]))[0])
        reader = dump_begun(client, Command.FLOW_GET)
        assert len(reader.recv(1 << 16)) > 1000
    assert gone(client)
    client.socket.close()
    with pytest.raises(OSError, match="delete_module"):
        remove(seconds=1)  # the rest of the dump is still to come
    reader.close()
    remove()


PAGE = 4096
USERFAULTFD, UFFD_API, MISSING = 323, 0xAA, 1
UFFDIO_API, UFFDIO_REGISTER, UFFDIO_ZEROPAGE = 0xC018AA3F, 0xC020AA00, 0xC020AA04
ASKED, PATIENCE_S = 100, 5.0
"""Requests one after the other, none of which may take as long as the lock is held, and the time
for all."""


@contextlib.contextmanager
def absent_page() -> Iterator[tuple[mmap.mmap, int, Callable[[], None]]]:
    """A page that isn't there yet, a descriptor that can be read once somebody wants it, and what
    brings it. A file system of one's own would do, too."""
    page = mmap.mmap(-1, PAGE)
    where = ctypes.addressof(ctypes.c_char.from_buffer(page)), PAGE
    fault = libc.syscall(USERFAULTFD, os.O_CLOEXEC)
    fcntl.ioctl(fault, UFFDIO_API, struct.pack("=QQQ", UFFD_API, 0, 0))
    fcntl.ioctl(fault, UFFDIO_REGISTER, struct.pack("=QQQQ", *where, MISSING, 0))
    bring = functools.partial(
        fcntl.ioctl, fault, UFFDIO_ZEROPAGE, struct.pack("=QQQQ", *where, 0, 0)
    )
    try:
        yield page, fault, bring
    finally:
        os.close(fault)


def test_a_sender_that_sleeps_with_its_lock_holds_up_nobody(client: Client) -> None:
    """Requests for its socket are refused at once and granted later; others are answered."""
    client.set_job(1)
    given = {Attribute.JOB_ID: struct.pack("=I", 1)}
    refusals = []

    def tag_it() -> None:
        with Client() as own:
            for _ in range(ASKED):
                with refused(errno.EBUSY):
                    own.socket.request(Command.TAG, given)
                refusals.append(True)

    with pair("mltcp") as (sender, _), absent_page() as (page, fault, bring):
        given[Attribute.FD] = struct.pack("=i", sender.fileno())
        sending = threading.Thread(target=sender.send, args=[page])
        sending.start()
        os.read(fault, 32)  # now it has the lock
        try:
            asking = threading.Thread(target=tag_it), threading.Thread(target=client.jobs)
            for each in asking:
                each.start()
            for each in asking:
                each.join(PATIENCE_S)
                assert not each.is_alive()
            assert len(refusals) == ASKED
        finally:
            bring()
            sending.join()
        client.tag(sender.fileno(), 1)


FEW, MANY = 48, 1000
"""Sockets that are open at a time: so few that threads meet at one, or many."""


def stress(seconds: float, seed: int, sockets: int, *names: str) -> None:
    words = [str(seconds), str(seed), str(sockets), FILE, *names]
    done = subprocess.run([PROGRAMS / "stress", *words])
    assert done.returncode == 0


@pytest.mark.parametrize("seconds", [10, pytest.param(300, marks=pytest.mark.full)])
def test_everything_at_once(seconds: int) -> None:
    remove()
    stress(seconds, seconds, FEW, *MODULE_NAMES, *KERNELS_OWN)


def unreclaimable_kib() -> int:
    """The kernel's memory that it can't give back, once closed sockets are gone."""
    time.sleep(10)
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return sum(int(fields[name].split()[0]) for name in ("SUnreclaim", "Percpu", "VmallocUsed"))


@pytest.mark.full
def test_a_soak_leaves_no_memory_behind(request: pytest.FixtureRequest, VM: str) -> None:
    """As long as --minutes says. What the kernel keeps for the next time, it has after the first.

    On a debug kernel, which holds freed memory back to watch it, kmemleak looks for what is lost.
    """
    remove()
    stress(20, 1, MANY, *MODULE_NAMES, *KERNELS_OWN)
    remove()
    before = unreclaimable_kib()
    stress(60 * request.config.getoption("minutes"), 2, MANY, *MODULE_NAMES, *KERNELS_OWN)
    remove()
    grown = unreclaimable_kib() - before
    print(f"unreclaimable memory: {before} KiB before, {grown:+} KiB after")
    if VM not in DEBUG:
        assert grown < SOAKED_KIB


@pytest.mark.bpf
@pytest.mark.full
def test_switching_between_base_bpf_and_module() -> None:
    """The eBPF backend has one of the names, the module the others."""
    remove()
    bpf = get_backend("bpf")
    bpf.load(["mltcp"])
    try:
        stress(120, 120, FEW, *MODULE_NAMES, "reno", "cubic")
        remove()
    finally:
        bpf.unload()
