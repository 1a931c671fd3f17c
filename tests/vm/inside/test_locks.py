# SPDX-License-Identifier: BSD-2-Clause
"""The locks that the module takes: those of one network namespace are no other's.

Counted by a probe on the kernel's function that takes them (Documentation/trace/kprobetrace.rst).
It is set on one CPU: where a second one takes locks meanwhile, kernel 6.1 in emulation jumps to
address 0 after a few dozen probes, without any module of ours.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from vm.hostile import Client, elsewhere, exchange, gone, may_open_many
from vm.loading import MODULE, connected, insert, pair, remove
from vm.machines import VIRTUAL_TIME

pytestmark = VIRTUAL_TIME

TRACING = Path("/sys/kernel/tracing")
EVENT = TRACING / "events/mltcp/lock"

FLOWS = 40
LISTS = 512
"""Of a namespace's table of flows."""
MESSAGES = 40
"""More than a dump of two flows for each of these takes."""


@pytest.fixture(autouse=True)
def module() -> Iterator[None]:
    insert()
    yield
    if MODULE.exists():
        remove()


@pytest.fixture
def taken() -> Iterator[Callable[[], list[int]]]:
    """Says which spin locks the module has taken since the last call, by their addresses."""
    (TRACING / "kprobe_events").write_text("p:mltcp/lock _raw_spin_lock_bh lock=%di by=$stack0\n")
    start, size = module_text()

    def ask() -> list[int]:
        text = (TRACING / "trace").read_text()
        (TRACING / "trace").write_text("")
        events = re.findall(r" lock=0x(\w+) by=0x(\w+)", text)
        return [int(lock, 16) for lock, by in events if 0 <= int(by, 16) - start < size]

    try:
        (TRACING / "buffer_size_kb").write_text("8192")
        (EVENT / "enable").write_text("1")
        ask()
        yield ask
    finally:
        (EVENT / "enable").write_text("0")
        (TRACING / "kprobe_events").write_text("")
        (TRACING / "trace").write_text("")


def module_text() -> tuple[int, int]:
    """Return where the module lies, and how many bytes it has there."""
    for line in Path("/proc/modules").read_text().splitlines():
        name, size, *_, address = line.split("(")[0].split()
        if name == "tcp_mltcp":
            return int(address, 16), int(size)
    raise AssertionError("the module isn't loaded")


def connect(client: Client, stack: contextlib.ExitStack, count: int) -> None:
    """Connections that send: tagging them takes locks."""
    pairs = [connected("mltcp") for _ in range(count)]
    for each in itertools.chain(*pairs):
        stack.enter_context(each)
    deadline = time.monotonic() + 60
    while len(client.flows()) < count and time.monotonic() < deadline:
        for sender, peer in pairs:
            exchange(sender, peer, 6)
        time.sleep(0.1)  # a delayed ACK's time, and a pause
    assert len(client.flows()) == count


def come_and_go(client: Client) -> None:
    with contextlib.ExitStack() as stack:
        connect(client, stack, FLOWS)
    assert gone(client)


def test_namespaces_share_no_lock(taken: Callable[[], list[int]]) -> None:
    """And within one, connections that come and go rarely have the same."""
    locks: list[set[int]] = []
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            with elsewhere():
                # Open to the end, so that no namespace has another's memory.
                there = stack.enter_context(Client())
                taken()
                come_and_go(there)
                locks.append(set(taken()))
    assert all(len(found) > 4 for found in locks)
    assert not locks[0] & locks[1]
    assert not locks[0] & locks[2]
    assert not locks[1] & locks[2]


def test_a_dump_takes_no_lock_of_other_namespaces(taken: Callable[[], list[int]]) -> None:
    with contextlib.ExitStack() as stack:
        with Client() as here:
            connect(here, stack, FLOWS)
        with elsewhere(), Client() as there:
            taken()
            assert there.flows() == []
            assert taken() == []
            connect(there, stack, 1)
            own = set(taken())
            assert len(there.flows()) == 1
            assert set(taken()) == own


def test_a_dump_takes_locks_for_lists_not_for_flows(taken: Callable[[], list[int]]) -> None:
    may_open_many()
    with contextlib.ExitStack() as stack, Client() as here:
        for _ in range(2 * LISTS):
            here.meet(stack.enter_context(pair("mltcp"))[0])
        taken()
        assert len(here.flows()) == 2 * LISTS
        assert LISTS // 2 < len(taken()) <= LISTS + MESSAGES
