# SPDX-License-Identifier: BSD-2-Clause
"""The needs of loading congestion controls written in BPF."""

from __future__ import annotations

import os
import re

from mltcp_tools.base.errors import MltcpError
from mltcp_tools.doctor.host import HostFacts
from mltcp_tools.doctor.kmod import bases
from mltcp_tools.doctor.privileges import capabilities
from mltcp_tools.doctor.report import Check, as_fix, install, needed
from mltcp_tools.kernel.native.libbpf import require_answers
from mltcp_tools.kernel.native.objects import CLANG_MIN, objects_shipped
from mltcp_tools.kernel.native.requirements import (
    may_miscount,
    skips_for_process_1,
    skips_struct_ops,
)

BTF = "/sys/kernel/btf/vmlinux"
BPFFS = "/sys/fs/bpf"


def checks(host: HostFacts) -> list[Check]:
    """The findings, from the kernel to the tools."""
    return [
        _kernel(host),
        _calls(host),
        _btf(host),
        _skipping(host),
        _counting(host),
        _jit(host),
        _bpffs(host),
        capabilities(host, {"CAP_BPF", "CAP_PERFMON", "CAP_NET_ADMIN"}),
        _network(host),
        *([_shipped()] if objects_shipped() else [clang(host), _libbpf_headers(host)]),
        libbpf(host),
        *bases(host),
    ]


NEEDED = {
    "bpf_struct_ops_tcp_congestion_ops": "congestion controls in BPF (5.6)",
    "bpf_sk_setsockopt": "socket options in these (5.15)",
}
"""Names of the kernel's types and functions, and what they are a sign of. Vendors backport, so a
version tells little: Enterprise Linux 9 calls itself 5.14."""


def _kernel(host: HostFacts) -> Check:
    """Does the kernel have what the programs call, by its own type information?"""
    btf = host.read(BTF)
    if btf is None:
        return Check("kernel", "unknown", f"{host.kernel}; its features can't be read without BTF")
    lacking = [what for name, what in NEEDED.items() if f"\0{name}\0" not in btf]
    return needed(
        "kernel",
        not lacking,
        f"{host.kernel} has all features that the programs use",
        f"{host.kernel} lacks {' and '.join(lacking)}",
        "Boot Linux 6.1 or newer, or use the kernel module.",
    )


def _calls(host: HostFacts) -> Check:
    """Does the kernel answer bpf(), which containers' seccomp profiles refuse?"""
    name = "bpf()"
    if host.libbpf_version() is None or "CAP_SYS_ADMIN" not in host.capabilities:
        return Check(name, "unknown", "needs root and libbpf to be tested")
    try:
        require_answers()
    except MltcpError as error:
        found, _, fix = str(error).partition("; ")
        return Check(name, "missing", found, as_fix(fix))
    return Check(name, "ok", "answered")


def _btf(host: HostFacts) -> Check:
    return needed(
        "BTF",
        host.exists(BTF),
        BTF,
        f"no {BTF}",
        "Boot a kernel built with CONFIG_DEBUG_INFO_BTF=y; distributions' kernels are.",
    )


def _skipping(host: HostFacts) -> Check:
    """Does the kernel run every call of a congestion control in BPF?"""
    btf = host.read(BTF)
    if btf is None:
        return Check("struct_ops", "unknown", "can't be read without BTF")
    whole = not skips_struct_ops(btf)
    if whole and skips_for_process_1(btf):
        return Check(
            "struct_ops",
            "warning" if os.environ.get("MLTCP_ALLOW_SKIPPED_CALLS") else "missing",
            "this kernel skips calls of congestion controls while process 1 runs; MLTCP corrects"
            " that at the next ACK, but `mltcp load` refuses such kernels",
            "Use a kernel without this vendor change, or the kernel module; for tests,"
            " set MLTCP_ALLOW_SKIPPED_CALLS=1.",
        )
    return needed(
        "struct_ops",
        whole,
        "this kernel skips no call of a congestion control",
        "this kernel sometimes skips calls of congestion controls and then uses random values as"
        " windows; `mltcp load` refuses it",
        "Boot Linux 6.1 or newer (commit 64696c40d03c), or use the kernel module.",
    )


def _counting(host: HostFacts) -> Check:
    """Is the kernel known to be without the fault that attaching meets?"""
    name = "CVE-2026-74714"
    warning = may_miscount(host.kernel, host.read("/proc/sys/kernel/version") or "")
    if not warning:
        return Check(name, "ok", "fixed in this kernel")
    found, _, fix = warning.partition("; ")
    return Check(name, "warning", found, as_fix(fix))


def _jit(host: HostFacts) -> Check:
    value = host.read("/proc/sys/net/core/bpf_jit_enable")
    if value is None:
        return Check("JIT", "unknown", "net.core.bpf_jit_enable is readable only by root")
    return needed(
        "JIT",
        value != "0",
        f"net.core.bpf_jit_enable = {value}",
        "net.core.bpf_jit_enable = 0, but congestion controls in BPF need the JIT compiler",
        "Run: sysctl -w net.core.bpf_jit_enable=1",
    )


def _bpffs(host: HostFacts) -> Check:
    return needed(
        "bpffs",
        host.mounts.get(BPFFS) == "bpf",
        f"mounted at {BPFFS}",
        f"not mounted at {BPFFS}",
        f"Run: mount -t bpf bpf {BPFFS}",
    )


def _network(host: HostFacts) -> Check:
    """The list of congestion controls allowed to everybody can be changed by the host's network."""
    name = "host network"
    try:
        mode = host.path("/proc/sys/net/ipv4/tcp_allowed_congestion_control").stat().st_mode
    except OSError:
        return Check(name, "unknown", "net.ipv4.tcp_allowed_congestion_control can't be read")
    if mode & 0o200:
        return Check(name, "ok", "this is the host's own network namespace")
    return Check(
        name,
        "warning",
        "not the host's network namespace, so other namespaces may not use what is loaded here",
        "Run `mltcp load` in the host's network namespace (containers: --network host).",
    )


def clang(host: HostFacts) -> Check:
    """Return whether a clang compiles BPF programs here."""
    # clang 13 is the first to write type information for the kernel functions a program calls.
    clang = os.environ.get("CLANG") or "clang"
    result = host.run([clang, "--version"])
    found = re.search(r"clang version (\d+)[.\d]*", result.output) if result else None
    if found is None:
        return Check("clang", "missing", f"`{clang}` is missing or isn't clang", install("clang"))
    if int(found.group(1)) < CLANG_MIN:
        return Check(
            "clang",
            "missing",
            f"{found.group()}, older than {CLANG_MIN}",
            f"Install clang {CLANG_MIN} or newer, or name one in the environment variable CLANG.",
        )
    targets = host.run([clang, "-print-targets"])
    return needed(
        "clang",
        targets is not None and re.search(r"^\s*bpf\b", targets.output, re.MULTILINE) is not None,
        f"{found.group()} with the bpf target",
        f"{found.group()} was built without the bpf target",
        install("clang") + ", and name it in the environment variable CLANG.",
    )


def _shipped() -> Check:
    return Check("programs", "ok", "this package has them compiled; no compiler is needed")


def _libbpf_headers(host: HostFacts) -> Check:
    header = "/usr/include/bpf/bpf_helpers.h"
    return needed(
        "libbpf headers", host.exists(header), header, f"no {header}", install("libbpf-dev")
    )


def libbpf(host: HostFacts) -> Check:
    """Return whether libbpf.so.1 can be loaded."""
    number = host.libbpf_version()
    return needed(
        "libbpf",
        number is not None,
        f"libbpf.so.1, version {number[0]}.{number[1]}" if number else "",
        "libbpf.so.1 can't be loaded",
        install("libbpf1"),
    )
