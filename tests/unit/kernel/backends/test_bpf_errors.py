# SPDX-License-Identifier: BSD-2-Clause
"""Errors of the BPF backend where it can't work; nothing here reaches the kernel's BPF."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable

import pytest

from mltcp_tools.base.errors import BusyError, HostError, MltcpError, UnknownError, UsageError
from mltcp_tools.kernel.backends import get_backend
from mltcp_tools.kernel.backends.base import Backend, Job
from mltcp_tools.kernel.backends.checks import check_tcp
from mltcp_tools.kernel.backends.pins import OtherVersionError, explain, map_key
from mltcp_tools.kernel.host import facts
from mltcp_tools.kernel.native.libbpf import BpfError


def test_a_failure_of_libbpf_is_one_sentence_for_the_user() -> None:
    error = BpfError(errno.EIO, "reading the ring buffer", "libbpf: much\nmore\n")
    assert isinstance(error, MltcpError)
    assert str(error) == "Reading the ring buffer failed: Input/output error."
    assert "more" in str(explain(error, "Reading the iterations"))


@pytest.mark.parametrize(
    ("code", "log", "kind", "part"),
    [
        (errno.EEXIST, "", BusyError, "has that name already"),
        (errno.EPERM, "", HostError, "run as root"),
        (errno.EMFILE, "", UnknownError, "Too many open files"),
        (
            errno.EINVAL,
            "libbpf: couldn't reuse pinned map at '/sys/fs/bpf/x': parameter mismatch\n",
            OtherVersionError,
            "another version's; run `mltcp unload --force`",
        ),
    ],
)
def test_known_failures_come_with_the_fix(
    code: int, log: str, kind: type[MltcpError], part: str
) -> None:
    found = explain(BpfError(code, "loading", log), "Loading mltcp")
    assert type(found) is kind
    assert part in str(found)


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda backend: backend.flows(), id="flows"),
        pytest.param(lambda backend: backend.jobs(), id="jobs"),
        pytest.param(lambda backend: backend.status(), id="status"),
        pytest.param(lambda backend: backend.iterations(), id="iterations"),
        pytest.param(lambda backend: backend.set_job(Job(1, "a")), id="set_job"),
        pytest.param(lambda backend: backend.unload(force=True), id="unload"),
    ],
)
def test_without_capabilities_every_call_names_them(
    call: Callable[[Backend], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "effective_capabilities", set)
    with pytest.raises(UnknownError, match="CAP_BPF"):
        call(get_backend("bpf"))


@pytest.mark.parametrize("number", [-1, 2**32])
def test_what_is_no_32_bit_number_is_refused(number: int) -> None:
    with pytest.raises(UsageError, match=str(number)):
        map_key(number)


def test_looking_at_a_descriptor_leaves_none_behind() -> None:
    ends = os.pipe()
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(UsageError, match="not a socket"):
        check_tcp(ends[0])
    with socket.socket() as sock:
        check_tcp(sock.fileno())
    assert len(os.listdir("/proc/self/fd")) == before
    for end in ends:
        os.close(end)
