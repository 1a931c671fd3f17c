# SPDX-License-Identifier: BSD-2-Clause
"""The needs of building links out of network namespaces and of running jobs over them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from mltcp_tools.doctor.host import HostFacts
from mltcp_tools.doctor.privileges import capabilities
from mltcp_tools.doctor.report import Check, State, install


class KernelPart(NamedTuple):
    """A part of the kernel, how to test it in a network namespace, and the use that needs it."""

    name: str
    module: str
    trial: str
    option: str
    lacking: State
    use: str


# Kind, arguments, state if lacking, use.
_QDISCS: list[tuple[str, str, State, str]] = [
    ("tbf", "rate 1mbit burst 10kb limit 10kb", "missing", "the testbed's bottleneck"),
    ("netem", "delay 1ms", "warning", "experiments with a `delay`"),
    ("red", "limit 100kb avpkt 1000 bandwidth 1mbit", "warning", "experiments with `aqm: red`"),
    ("htb", "", "warning", "variants with priorities"),
    ("fq", "", "warning", "experiments with `qdisc: fq`"),
]

_VETH = KernelPart(
    "veth",
    "veth",
    "ip link add mltcp0 type veth peer name mltcp1",
    "VETH",
    "missing",
    "the testbed's links",
)

_CLSACT = KernelPart(
    "qdisc clsact",
    "sch_ingress",
    "tc qdisc add dev lo clsact && tc qdisc del dev lo clsact",
    "NET_SCH_INGRESS",
    "warning",
    "experiments with `aqm: threshold`, variants with rates or priorities",
)

PARTS = [
    _VETH,
    _CLSACT,
    *(
        KernelPart(
            f"qdisc {kind}",
            f"sch_{kind}",
            f"tc qdisc add dev lo root {kind} {arguments} && tc qdisc del dev lo root",
            f"NET_SCH_{kind.upper()}",
            lacking,
            use,
        )
        for kind, arguments, lacking, use in _QDISCS
    ),
]


def checks(host: HostFacts) -> list[Check]:
    """The findings, from namespaces to the settings that change results."""
    return [
        capabilities(host, {"CAP_SYS_ADMIN", "CAP_NET_ADMIN"}),
        *_namespaces(host),
        _congestion_controls(host),
    ]


def _namespaces(host: HostFacts) -> Iterable[Check]:
    """Try namespaces, links and queueing disciplines where no trace of that is left.

    What would make the kernel load a module is not tried; that the module is on disk will do.
    """
    name = "network namespaces"
    to_try = [part for part in PARTS if not host.unloaded_module(part.module)]
    result = None
    if host.live and "CAP_SYS_ADMIN" in host.capabilities:
        trials = [f"{part.trial} && echo 'works: {part.name}'" for part in to_try]
        script = "; ".join(["PATH=$PATH:/usr/sbin:/sbin", f"echo 'works: {name}'", *trials])
        result = host.run(["unshare", "--net", "sh", "-c", script])
    works = re.findall("^works: (.*)", result.output, re.MULTILINE) if result else []

    if result is None:
        yield Check(name, "unknown", "needs root to be tested", "Run `mltcp doctor` as root.")
    elif name not in works:
        fix = "Boot a kernel with CONFIG_NET_NS=y, or leave the sandbox that forbids them."
        yield Check(name, "missing", f"can't be created: {result.output}", fix)
    else:
        yield Check(name, "ok", "work")
    if host.live and host.which("tc") is None:
        yield Check("iproute2", "missing", "the command `tc` is missing", install("iproute2"))
        return
    for part in PARTS:
        if part not in to_try:
            yield Check(part.name, "ok", f"module {part.module}, loaded on first use")
        elif part.name in works:
            yield Check(part.name, "ok", "works")
        elif name in works:
            found = f"not in this kernel; needed for {part.use}"
            fix = f"Boot a kernel built with CONFIG_{part.option}."
            yield Check(part.name, part.lacking, found, fix)
        else:
            yield Check(part.name, "unknown", "not tested")


def _congestion_controls(host: HostFacts) -> Check:
    available = host.words("/proc/sys/net/ipv4/tcp_available_congestion_control")
    allowed = host.words("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
    default = host.read("/proc/sys/net/ipv4/tcp_congestion_control")
    return Check(
        "congestion controls",
        "ok" if available else "unknown",
        f"available {', '.join(available)}; default {default}; allowed to all {', '.join(allowed)}"
        if available
        else "net.ipv4.tcp_available_congestion_control can't be read",
    )
