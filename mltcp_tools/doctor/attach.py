# SPDX-License-Identifier: BSD-2-Clause
"""The needs of reaching into the sockets of running jobs, and of tracing these jobs."""

from __future__ import annotations

import os

from mltcp_tools.base.installation import how_to_bring_bcc
from mltcp_tools.doctor.bpf import BTF
from mltcp_tools.doctor.host import HostFacts
from mltcp_tools.doctor.report import Check, as_fix, needed

_ITERATOR = "bpf_iter_tcp_get_func_proto"
"""The kernel's function (5.15) that lets programs change the sockets they walk over."""


def checks(host: HostFacts) -> list[Check]:
    """The findings, for switching sockets and for tracing."""
    return [_iterators(host), _pidfd_getfd(host), _ptrace(host), _bcc(host), _softnet(host)]


def _in_kernel(host: HostFacts) -> bool:
    """Return whether BPF programs can switch sockets, so that none is copied from its process."""
    return f"\0{_ITERATOR}\0" in (host.read(BTF) or "")


def _iterators(host: HostFacts) -> Check:
    if _in_kernel(host):
        return Check(
            "in the kernel", "ok", "BPF programs switch sockets, without touching their processes"
        )
    return Check(
        "in the kernel",
        "warning",
        "BPF programs can't switch sockets here; MLTCP copies them from their processes instead",
        "Boot Linux 6.1 or newer, built with CONFIG_DEBUG_INFO_BTF=y.",
    )


def _pidfd_getfd(host: HostFacts) -> Check:
    if not host.live:
        return Check("pidfd_getfd", "unknown", "not tested")
    error = host.pidfd_getfd_error()
    return needed(
        "pidfd_getfd",
        error is None,
        "works",
        f"refused: {error.strerror if error else ''}",
        "Boot Linux 5.6 or newer; in a container, allow pidfd_getfd in its seccomp profile.",
    )


def _ptrace(host: HostFacts) -> Check:
    scope = host.read("/proc/sys/kernel/yama/ptrace_scope")
    if scope == "3":
        limit = "kernel.yama.ptrace_scope = 3: no process may access another until reboot"
        fix = "Remove that setting from /etc/sysctl.d and reboot."
        if _in_kernel(host):
            return Check("ptrace", "warning", f"{limit}; only the kernel module needs it", fix)
        return Check("ptrace", "missing", limit, fix)
    if "CAP_SYS_PTRACE" not in host.capabilities:
        return Check(
            "ptrace",
            "warning",
            "this process lacks CAP_SYS_PTRACE, so the kinds of connections are guessed"
            if _in_kernel(host)
            else "this process lacks CAP_SYS_PTRACE, so it can access only its own children",
            "Run it as root.",
        )
    setting = f"kernel.yama.ptrace_scope = {scope}" if scope else "not restricted by Yama"
    return Check("ptrace", "ok", f"allowed ({setting})")


def _bcc(host: HostFacts) -> Check:
    """The distribution's bcc; a package of that name on PyPI has nothing to do with BPF."""
    advice = as_fix(how_to_bring_bcc())
    if not host.live:
        return Check("bcc", "unknown", "not tried")
    result = host.python_says(
        "import bcc; print(getattr(bcc, '__file__', '')); bcc.BPF; print(bcc.__version__)"
    )
    lines = result.output.splitlines() if result else []
    if result is not None and result.code == 0:
        return Check("bcc", "ok", f"{lines[-1]} in {os.path.dirname(lines[0])}")
    if any("has no attribute 'BPF'" in line for line in lines):
        return Check(
            "bcc",
            "warning",
            f"{lines[0]} is another project with that name",
            f"Run: pip uninstall bcc. {advice}",
        )
    return Check(
        "bcc", "warning", "can't be imported; it is needed to trace NCCL and Gloo calls", advice
    )


def _softnet(host: HostFacts) -> Check:
    """Packets that were lost between the network card and TCP: a CPU's backlog was full."""
    name = "receive backlog"
    rows = [line.split() for line in (host.read("/proc/net/softnet_stat") or "").splitlines()]
    if not rows:
        return Check(name, "unknown", "/proc/net/softnet_stat can't be read")
    dropped = sum(int(row[1], 16) for row in rows)
    if not dropped:
        return Check(name, "ok", "no packets dropped since boot")
    return Check(
        name,
        "warning",
        f"{dropped} packets dropped since boot, because a CPU's backlog was full",
        "Raise net.core.netdev_max_backlog, or spread the card's interrupts over more CPUs.",
    )
