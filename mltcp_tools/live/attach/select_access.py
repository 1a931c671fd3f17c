# SPDX-License-Identifier: BSD-2-Clause
"""The way by which sockets are reached on this host."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace

from mltcp_tools.base.errors import HostError
from mltcp_tools.kernel.backends.base import Backend
from mltcp_tools.kernel.backends.bpf import BpfBackend
from mltcp_tools.kernel.backends.bpf_sockets import FIRST_PIN, Attached, kernel_sockets
from mltcp_tools.kernel.backends.pins import Home
from mltcp_tools.live.attach.access import SocketAccess
from mltcp_tools.live.attach.state import AttachedJob, SocketRecord
from mltcp_tools.live.attach.via_bpf_iter import ViaBpfIter
from mltcp_tools.live.attach.via_pidfd import ViaPidfd


def select_access(backend: Backend) -> SocketAccess:
    """The best way to sockets whose tags the backend has: it works whether or not that is loaded.

    The module is told of sockets by descriptor, so its sockets are borrowed; so are all where the
    kernel doesn't take the programs (before 5.15) or this process may not load any.
    """
    if isinstance(backend, BpfBackend):
        with suppress(HostError):
            return ViaBpfIter(backend, kernel_sockets())
    return ViaPidfd(backend if backend.is_present() else None)


def with_caught(states: Sequence[AttachedJob]) -> list[AttachedJob]:
    """The jobs with those of their sockets that the kernel alone remembers, as those caught since
    the last look. Jobs of other network namespaces may have the same ids; theirs are left out."""
    if not os.path.exists(FIRST_PIN) or not any(each.backend == BpfBackend.name for each in states):
        return list(states)
    recorded = {each.cookie for state in states for each in state.sockets}
    home = Home.here()
    more: defaultdict[int, list[SocketRecord]] = defaultdict(list)
    with suppress(HostError):
        for each in kernel_sockets().attached():
            if each.cookie not in recorded and (each.tag is None or each.tag[1] == home):
                more[each.job].append(_record(each))
    return [
        replace(state, sockets=(*state.sockets, *more[state.job.id]))
        if state.backend == BpfBackend.name
        else state
        for state in states
    ]


def _record(found: Attached) -> SocketRecord:
    return SocketRecord(
        pid=0,
        start_ticks=0,
        fd=0,
        netns=found.netns,
        inode=0,
        cookie=found.cookie,
        local=found.local,
        remote=found.remote,
        old=found.first,
        new=found.now,
    )


def pids_of(cookies: Collection[int]) -> dict[int, int]:
    """A process that holds each of the sockets, as the kernel says; none where it isn't asked."""
    if cookies:
        with suppress(HostError):
            return {each.cookie: each.pid for each in kernel_sockets().held()}
    return {}
