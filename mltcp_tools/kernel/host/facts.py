# SPDX-License-Identifier: BSD-2-Clause
"""Facts about this host that decide whether something can work, read from /proc and /sys."""

from __future__ import annotations

import contextlib
import errno
import socket
from pathlib import Path

CAPABILITIES = {
    "CAP_NET_ADMIN": 12,
    "CAP_SYS_MODULE": 16,
    "CAP_SYS_PTRACE": 19,
    "CAP_SYS_ADMIN": 21,
    "CAP_PERFMON": 38,
    "CAP_BPF": 39,
}
"""Bits of the capabilities this project asks for (linux/capability.h)."""

_IPV4 = Path("/proc/sys/net/ipv4")


def effective_capabilities(status: Path = Path("/proc/self/status")) -> set[str]:
    """Names, out of CAPABILITIES, of those this process has in effect."""
    for line in status.read_text().splitlines():
        if line.startswith("CapEff:"):
            bits = int(line.split()[1], 16)
            return {name for name, number in CAPABILITIES.items() if bits >> number & 1}
    return set()


def mounted_at(place: Path, mountinfo: Path = Path("/proc/self/mountinfo")) -> str:
    """Return the kind of file system that is seen at a mount point (proc_pid_mountinfo(5)), which
    is the one mounted last; "" where none is mounted.
    """
    kind = ""
    for line in mountinfo.read_text().splitlines():
        head, _, tail = line.partition(" - ")
        if Path(head.split(" ")[4]) == place:
            kind = tail.split(" ")[0]
    return kind


def lockdown(path: Path = Path("/sys/kernel/security/lockdown")) -> str:
    """The kernel's lockdown mode: none, integrity, confidentiality; none without the file."""
    try:
        text = path.read_text()
    except OSError:
        return "none"
    return text.partition("[")[2].partition("]")[0] or "none"


def demands_signed_modules(
    lockdown_file: Path = Path("/sys/kernel/security/lockdown"),
    enforced: Path = Path("/sys/module/module/parameters/sig_enforce"),
) -> bool:
    """Return whether the kernel takes only modules with a signature that it knows."""
    with contextlib.suppress(OSError):
        if enforced.read_text().strip() == "Y":
            return True
    return lockdown(lockdown_file) != "none"


def sysctl_path(key: str) -> Path:
    """The file of a sysctl such as net.ipv4.tcp_ecn."""
    return Path("/proc/sys") / key.replace(".", "/")


def read_sysctl(key: str) -> str:
    """A sysctl as the calling thread's namespace has it, lists separated by single spaces."""
    return " ".join(sysctl_path(key).read_text().split())


def available_congestion_controls() -> list[str]:
    """Names registered with the kernel now (one may become available by loading its module)."""
    return (_IPV4 / "tcp_available_congestion_control").read_text().split()


def has_congestion_control(name: str) -> bool:
    """Return whether the kernel has it; where that is a module, and this process may, it is
    loaded.
    """
    with socket.socket() as probe:
        try:
            probe.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
        except OSError as error:
            return error.errno != errno.ENOENT
    return True


def default_congestion_control() -> str:
    """The default of this process's network namespace."""
    return (_IPV4 / "tcp_congestion_control").read_text().strip()
