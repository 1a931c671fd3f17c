# SPDX-License-Identifier: BSD-2-Clause
"""The privileges that reaching into a process's sockets takes, and those missing here."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from mltcp_tools.base.errors import HostError
from mltcp_tools.kernel.host import facts
from mltcp_tools.live.attach.processes import PROC, Process

_PTRACE_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
_NS_GET_USERNS = 0xB701
"""linux/nsfs.h: a descriptor of the owner; refused where the caller's isn't the same or above."""


def require_capabilities() -> None:
    """HostError unless this process has what attaching and detaching takes of any socket.

    CAP_SYS_PTRACE isn't asked for: whether it is needed is the kernel's to say of each process.
    """
    if "CAP_NET_ADMIN" not in facts.effective_capabilities():
        missing = sorted({"CAP_NET_ADMIN", "CAP_SYS_PTRACE"} - facts.effective_capabilities())
        raise HostError(
            f"Nothing was changed: this process lacks {' and '.join(missing)}; run it as root"
            " (sudo)."
        )


def may_trace() -> bool:
    """Return whether this process may, as a rule, look into those of others."""
    return "CAP_SYS_PTRACE" in facts.effective_capabilities()


def require_over_network(process: Process) -> None:
    """HostError unless CAP_NET_ADMIN counts in the process's network namespace."""
    try:
        with open(PROC / str(process.pid) / "ns/net") as namespace:
            os.close(fcntl.ioctl(namespace, _NS_GET_USERNS))
    except (FileNotFoundError, ProcessLookupError):
        return  # it has ended, as will be noticed
    except PermissionError as error:
        if error.filename is not None:  # not even its namespace may be opened
            raise refused(process) from error
        raise HostError(
            f"Nothing was changed: this process's CAP_NET_ADMIN doesn't count in the network"
            f" namespace of process {process.pid} ({process.name}), which belongs to another user"
            " namespace; run it as root of the host."
        ) from error


def refused(process: Process) -> HostError:
    """Return the error for when the kernel doesn't let this process reach into that one."""
    return HostError(
        f"Nothing was changed: process {process.pid} ({process.name}) of user {process.uid} is out"
        f" of reach: {reason_for_refusal()}."
    )


def reason_for_refusal() -> str:
    """Return the reason why the kernel may have kept this process out of another; a part of a
    sentence.
    """
    scope = _ptrace_scope()
    if scope == 3:
        return "kernel.yama.ptrace_scope is 3, which forbids it until a reboot without that setting"
    if not may_trace():
        yama = f" (kernel.yama.ptrace_scope is {scope})" if scope else ""
        return f"this process lacks CAP_SYS_PTRACE{yama}; run it as root (sudo)"
    return (
        "the kernel refuses it although this process has CAP_SYS_PTRACE, as a container's seccomp"
        " profile, a security module or a user namespace makes it do; run it as root of the host"
    )


def _ptrace_scope() -> int:
    """Yama's setting; 0 where there is no Yama."""
    try:
        return int(_PTRACE_SCOPE.read_text())
    except OSError:
        return 0
