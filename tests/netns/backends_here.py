# SPDX-License-Identifier: BSD-2-Clause
"""The backends that this kernel can run, for tests on them."""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from netns.connections import send_burst

from mltcp_tools.base.errors import BusyError, HostError, MltcpError
from mltcp_tools.kernel.backends import BACKENDS, get_backend, module
from mltcp_tools.kernel.backends.base import Backend, IterationEvent, IterationStream
from mltcp_tools.kernel.native import requirements
from mltcp_tools.live.attach.restore import detach
from mltcp_tools.live.attach.state import StateFiles


def why_not(name: str) -> str:
    """Return why this process can't run the backend on this kernel; empty when it can."""
    if os.geteuid() != 0:
        return "nobody but root can load it"
    if name == "bpf":
        return "" if Path("/sys/kernel/btf/vmlinux").exists() else "the kernel has no BTF"
    try:
        module.require_loading()
        if not module.installed():
            module.built_for_this_kernel()
    except HostError as error:
        return str(error)
    return ""


@functools.cache
def skips_programs() -> bool:
    """Return whether this kernel runs no programs while process 1 is the current one."""
    return requirements.skips_for_process_1(
        Path("/sys/kernel/btf/vmlinux").read_text(errors="replace")
    )


def uncounted(backend: Backend) -> int:
    """Bytes at the end of a burst that a flow may count with its next ACK only.

    Where the kernel has skipped the programs for its last ACKs.
    """
    return 20 * 1448 if backend.name == "bpf" and skips_programs() else 0


RUNNABLE = tuple(name for name in BACKENDS if not why_not(name))

BPF_IN_GUEST = pytest.param("bpf", marks=(pytest.mark.bpf, pytest.mark.full))
"""It takes minutes in a VM, and its tests run on the host, too."""

PARAMETERS = [
    pytest.param(name, marks=[pytest.mark.bpf] if name == "bpf" else []) for name in RUNNABLE
]


def in_the_way() -> str:
    """Return what the tests would change on this host, and what to do about it; empty where
    nothing is.
    """
    if not RUNNABLE:
        return ""
    try:
        if jobs := [state.job.name for state in StateFiles().read()]:
            return f"{', '.join(jobs)} are attached on this host; run `mltcp detach --all` before."
        for name in RUNNABLE:
            if loaded := get_backend(name).status().loaded:
                said = f"The {name} backend has loaded {', '.join(loaded)}"
                return f"{said}; run `mltcp unload` before."
    except MltcpError as error:
        return str(error)
    return ""


@contextlib.contextmanager
def fresh(name: str) -> Iterator[Backend]:
    """The backend, not loaded before and not loaded afterwards."""
    found = get_backend(name)
    if found.status().loaded:
        pytest.fail(f"the {name} backend is loaded already; run `mltcp unload` before the tests")
    try:
        yield found
    finally:
        unload(found)


@contextlib.contextmanager
def fresh_and_loaded(name: str) -> Iterator[Backend]:
    """The backend, loaded, with nothing attached before or afterwards."""
    if StateFiles().read():
        pytest.fail("jobs are attached already; run `mltcp detach --all` before the tests")
    with fresh(name) as found:
        found.load()
        try:
            yield found
        finally:
            detach()  # should a test have failed
    assert StateFiles().read() == []


def backend_fixture(
    manage: Callable[[str], contextlib.AbstractContextManager[Backend]] = fresh,
    names: Iterable[Any] = PARAMETERS,
) -> Any:
    """The fixture `backend`: each of these, as `manage` gives and takes it."""

    @pytest.fixture(params=list(names))
    def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
        with manage(request.param) as found:
            yield found

    return backend


def unload(backend: Backend) -> None:
    """Unload, as soon as sockets that tests have closed are gone."""
    deadline = time.monotonic() + 20
    while True:
        try:
            backend.unload(force=True)
            break
        except BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
    assert not backend.status().loaded
    assert not backend.is_present()


def unload_by_force(backend: Backend) -> None:
    """Unload though sockets are in use, as far as that goes."""
    try:
        backend.unload(force=True)
    except BusyError:
        assert backend.name == "kmod"  # its jobs are gone, but it can't leave its sockets


def collect(stream: IterationStream, count: int, seconds: float = 20) -> list[IterationEvent]:
    """At least count events, or those that came within the time."""
    events: list[IterationEvent] = []
    deadline = time.monotonic() + seconds
    while len(events) < count and time.monotonic() < deadline:
        events += stream.poll(0.2)
    return events


LEARNT_GAP_S = 0.15
"""The gap after each burst of a flow that is to learn."""


def learn(backend: Backend, sender: socket.socket, burst: int = 200_000) -> None:
    """Send bursts over the one flow there is until it has learned them, and acts."""
    for _ in range(30):
        send_burst(sender, burst)
        if any(flow.active and flow.learned_bytes for flow in backend.flows()):
            return
        time.sleep(LEARNT_GAP_S)
    pytest.fail("the flow has learned nothing")
