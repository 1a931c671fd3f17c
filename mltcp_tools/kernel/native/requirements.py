# SPDX-License-Identifier: BSD-2-Clause
"""Requirements of the eBPF programs on this host; each refusal says what to do."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

from mltcp_tools.base.errors import HostError, UnknownError
from mltcp_tools.kernel.host import facts
from mltcp_tools.kernel.native.libbpf import require_answers

FIXED = {(6, 1): 183, (6, 6): 152, (6, 12): 104, (6, 18): 45, (7, 1): 9}
"""The first release of each series without CVE-2026-74714: before, the walk over the sockets that
attaching makes (since 5.15, and Enterprise Linux's 5.14) miscounts the users of a connection that
arrives just there."""


def may_miscount(release: str = platform.release(), build: str = platform.version()) -> str:
    """A warning where the running kernel isn't known to be without CVE-2026-74714; else "".

    release, build: as uname(2) has them; Debian's build names the release that it is made from.
    """
    named = build if "Debian" in build else release
    found = re.search(r"\b(\d+)\.(\d+)(?:\.(\d+))?", named)
    if found is not None:
        series = int(found[1]), int(found[2])
        if not (5, 14) <= series <= max(FIXED) or int(found[3] or 0) >= FIXED.get(series, 2**31):
            return ""
    fixed = ", ".join(f"{major}.{minor}.{patch}" for (major, minor), patch in FIXED.items())
    return (
        f"This kernel ({release}) may have CVE-2026-74714: attaching with eBPF while many"
        f" connections arrive can crash it; boot {fixed} or newer, or use the kernel module."
    )


def require_bpf_capabilities() -> None:
    """Raise UnknownError unless this process has what BPF congestion controls take."""
    needed = {"CAP_BPF", "CAP_PERFMON", "CAP_NET_ADMIN"}
    has = facts.effective_capabilities()
    missing = set() if "CAP_SYS_ADMIN" in has else needed - has
    if "CAP_NET_ADMIN" not in has:
        missing.add("CAP_NET_ADMIN")
    if missing:
        raise UnknownError(
            f"This process lacks {', '.join(sorted(missing))}, which BPF congestion controls need; "
            "run it as root (sudo)."
        )


def skips_struct_ops(btf: str) -> bool:
    """Return whether a kernel with that type information (its text) skips struct_ops programs at
    times.

    Before Linux 6.1 (commit 64696c40d03c) one that interrupts itself isn't run, and its caller
    takes what lies on the stack for the window it returned. The fix, and what became of it in 6.2
    (271de525e1d7), has functions of its own, by which distributions' backports are known, too.
    """
    return not any(
        f"\0{name}\0" in btf for name in ("__bpf_prog_enter_struct_ops", "__bpf_prog_enter_recur")
    )


def skips_for_process_1(btf: str) -> bool:
    """Return whether a kernel with that type information (its text) runs no programs while process
    1 is the current one, but for that process's own.

    No public kernel does; a vendor's 6.18 has a field of its own for it, in struct bpf_prog_aux.
    """
    return "\0init_owned\0" in btf


def require_every_call(
    btf: Path = Path("/sys/kernel/btf/vmlinux"), *, of_process_1: bool = False
) -> None:
    """Raise HostError on a kernel that skips congestion controls in BPF.

    of_process_1: also on one that skips them only while process 1 is the current one.
    """
    text = btf.read_text(errors="replace")
    if skips_struct_ops(text):
        when, instead = "at times", "boot Linux 6.1 or newer"
    elif of_process_1 and skips_for_process_1(text):
        when, instead = (
            "while process 1 is the current one",
            "for tests: MLTCP_ALLOW_SKIPPED_CALLS=1",
        )
    else:
        return
    raise HostError(
        f"This kernel ({platform.release()}) skips congestion controls in BPF {when}, and then"
        " uses random values as their windows; use the kernel module (mltcp load --backend"
        f" kmod), or {instead}."
    )


def require_bpf(bpffs: Path = Path("/sys/fs/bpf")) -> None:
    """Raise HostError, with the fix, unless struct_ops programs can be loaded from here;
    UnknownError where the kernel doesn't answer this process."""
    require_bpf_capabilities()
    require_answers()
    if not Path("/sys/kernel/btf/vmlinux").exists():
        raise HostError(
            "The kernel has no BTF (/sys/kernel/btf/vmlinux), which BPF programs need; use a "
            "kernel built with CONFIG_DEBUG_INFO_BTF."
        )
    if facts.mounted_at(bpffs) != "bpf":
        raise HostError(f"No BPF file system is mounted at {bpffs}: mount -t bpf bpf {bpffs}")


def require_change(bpffs: Path) -> None:
    """As require_bpf; HostError also where maps can be neither pinned nor unpinned."""
    require_bpf(bpffs)
    if not os.access(bpffs, os.W_OK):
        raise HostError(f"{bpffs} can't be written to; run: mount -o remount,rw {bpffs}")
