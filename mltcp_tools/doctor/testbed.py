# SPDX-License-Identifier: BSD-2-Clause
"""The needs of building links out of network namespaces and of running jobs over them."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from mltcp_tools.doctor.host import HostFacts
from mltcp_tools.doctor.privileges import capabilities
from mltcp_tools.doctor.report import Check, State, install
from mltcp_tools.kernel.congestion_controls import STANDARD, built_on
from mltcp_tools.kernel.host.disturbance import DisturbanceWatch, Second
from mltcp_tools.lab.runs.disturbance import OTHERS, judge, rows_of

WATCHED_S = 1.0
"""The time for which the host is watched, seconds."""


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
        *_congestion_controls(host),
        _processors(),
        _quiet(host),
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
            yield _not_in_kernel(part.name, part.lacking, part.use, part.option)
        else:
            yield Check(part.name, "unknown", "not tested")


def _not_in_kernel(name: str, state: State, use: str, option: str) -> Check:
    return Check(
        name,
        state,
        f"not in this kernel; needed for {use}",
        f"Boot a kernel built with CONFIG_{option}.",
    )


def _congestion_controls(host: HostFacts) -> Iterable[Check]:
    available = host.words("/proc/sys/net/ipv4/tcp_available_congestion_control")
    allowed = host.words("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
    default = host.read("/proc/sys/net/ipv4/tcp_congestion_control")
    yield Check(
        "congestion controls",
        "ok" if available else "unknown",
        f"available {', '.join(available)}; default {default}; allowed to all {', '.join(allowed)}"
        if available
        else "net.ipv4.tcp_available_congestion_control can't be read",
    )
    for name, worst, use in _uses() if available else ():
        if name in available:
            continue
        if host.unloaded_module(f"tcp_{name}"):
            yield Check(name, "ok", f"module tcp_{name}, loaded on first use")
        else:
            option = f"TCP_CONG_{name.upper()}"
            yield _not_in_kernel(name, worst, use, option)


def _uses() -> Iterator[tuple[str, State, str]]:
    """Each congestion control of the kernel that something needs: how badly, and for what."""
    for base, names in built_on().items():
        worst: State = "missing" if {*names} & {*STANDARD} else "warning"
        yield base, worst, f"the base of {' and '.join(names)}"
    yield "bbr", "warning", "variants that name it, as the shipped experiments do"


def _processors() -> Check:
    count = len(os.sched_getaffinity(0))
    if count >= 2:
        return Check("CPUs", "ok", str(count))
    return Check(
        "CPUs",
        "warning",
        "1: emulated jobs will disturb each other",
        "Use a machine with two CPUs, or links well under 200 Mbit/s.",
    )


def _quiet(host: HostFacts) -> Check:
    """Return whether anything else works on this host now: what disturbs a run."""
    if not host.live:
        return Check("quiet", "unknown", "not tested")
    with DisturbanceWatch() as watch:
        start = time.monotonic()
        time.sleep(WATCHED_S)
        end = time.monotonic()
    return quiet_check(watch.seconds(start, end))


def quiet_check(seconds: list[Second]) -> Check:
    """Return the finding of a while of watching an idle host."""
    found = judge(rows_of(seconds, 0.0))
    if found is None:
        return Check("quiet", "unknown", "could not be measured")
    others = found.others or 0.0
    seen = (
        f"{found.stolen:.0%} of the CPU time stolen, {others:.0%} used by other processes; timers"
        f" {found.late_s * 1e3:.1f} ms late, at worst {found.latest_s * 1e3:.0f}"
    )
    if not found.disturbed and others <= OTHERS:
        return Check("quiet", "ok", seen)
    return Check(
        "quiet",
        "warning",
        f"other work disturbs this host: {seen}",
        "Wait until it ends, or stop it. On a host that is never quiet, use `mltcp simulate`.",
    )
