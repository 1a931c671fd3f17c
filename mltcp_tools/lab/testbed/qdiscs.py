# SPDX-License-Identifier: BSD-2-Clause
"""The queueing disciplines of a link: the bottleneck, its queue management, delay and loss."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from mltcp_tools.base.errors import HostError, MltcpError
from mltcp_tools.lab.experiments.links import Link
from mltcp_tools.lab.runs.recorder import LinkCounters
from mltcp_tools.lab.testbed.marking import add_marking, marked

BOTTLENECK = "bottleneck"
"""The interface that a bottleneck is on, at both its ends."""

BURST_BYTES = 20 * 1024  # tc's "20k"
WHOLE_BYTES = 68 * 1024
"""A burst that lets the largest super-packet (64 KiB and headers) pass in one piece."""
LATE_S = 100e-6
"""The host's timer may let the next super-packet go so late without the link carrying less. With
one super-packet alone in the bucket, a lone burst filled 77 % of 10 Gbit/s on idle CPUs."""
_TBF_HANDLE = 0x10000  # 1:
_ROOT = 0xFFFFFFFF  # TC_H_ROOT
_ROOT_CLASS = 0x10001  # 1:1
_PACKET_BYTES = 1514  # a full one, as qdiscs count it


def remove_qdisc(interface: str) -> None:
    """Remove the root qdisc that was added to `interface`; no error where there is none."""
    with IPRoute() as ip:
        index = ip.link_lookup(ifname=interface)[0]
        # The kernel's own has the handle 0, and can't be removed.
        if any(q["parent"] == _ROOT and q["handle"] for q in ip.get_qdiscs(index)):
            ip.tc("del", index=index, parent=_ROOT)


def add_bottleneck(interface: str, link: Link) -> None:
    """Make the egress of `interface` the bottleneck `link`: tbf, and its AQM under it."""
    with IPRoute() as ip, needs("the qdisc tbf (CONFIG_NET_SCH_TBF)"):
        ip.tc(
            "add",
            "tbf",
            ip.link_lookup(ifname=interface)[0],
            handle=_TBF_HANDLE,
            rate=link.rate // 8,
            burst=burst_bytes(link),
            limit=link.queue,
        )
    if link.aqm == "threshold":
        add_marking(interface, link, burst_bytes(link))
    elif link.aqm == "red":
        add_red(interface, link)


def burst_bytes(link: Link) -> int:
    """The token bucket's size. tbf segments packets that are larger, at the CPU's cost, so
    with offloads it holds a super-packet, where the queue has room for several, and what comes in
    while a timer is late, as far as the queue has room for that, too."""
    room = link.queue - 2 * WHOLE_BYTES
    if not link.offloads or room < 0:
        return BURST_BYTES
    return WHOLE_BYTES + min(round(link.rate / 8 * LATE_S), room)


FIRST_CLASS = 0x10010  # 1:10
"""Class of HTB that has the best level of priority; those of the others follow."""


def add_classes(interface: str, link: Link, levels: int, floor: float) -> None:
    """Make the egress of `interface` the bottleneck `link` with levels of strict priority.

    Each level has a queue as long as the link's. floor: share of the rate that each is sure of.
    HTB's classes are as strict as prio's bands with what they have beyond that.
    """
    rate = f"{link.rate}bit"
    root, limit = f"{_ROOT_CLASS >> 16:x}:{_ROOT_CLASS & 0xFFFF:x}", str(link.queue)
    last = FIRST_CLASS + levels - 1 & 0xFFFF
    begin = ("dev", interface)
    try:
        _tc("qdisc", "add", *begin, "root", "handle", "1:", "htb", "default", f"{last:x}")
        shape = ("htb", "rate", rate, "ceil", rate, "burst", str(BURST_BYTES), "cburst")
        _tc("class", "add", *begin, "parent", "1:", "classid", root, *shape, str(BURST_BYTES))
        for level in range(levels):
            minor = f"1:{FIRST_CLASS + level & 0xFFFF:x}"
            sure = ("htb", "rate", f"{round(link.rate * floor)}bit", "ceil", rate)
            more = (
                "prio",
                str(level),
                "burst",
                "2kb",
                "cburst",
                str(BURST_BYTES),
                "quantum",
                "1514",
            )
            _tc("class", "add", *begin, "parent", root, "classid", minor, *sure, *more)
            _tc("qdisc", "add", *begin, "parent", minor, "bfifo", "limit", limit)
    except MltcpError as error:
        if "kind is unknown" not in str(error):
            raise
        raise HostError(
            "This kernel lacks the qdisc htb (CONFIG_NET_SCH_HTB), which levels of priority are"
            " made with."
        ) from None


def add_host_qdisc(interface: str, link: Link) -> None:
    """Have what leaves `interface` pass the qdisc that hosts of `link` have."""
    _add_of_kind("qdisc", link.qdisc, "dev", interface, "root", link.qdisc)


def add_delay(interface: str, link: Link) -> None:
    """Have netem hold back what leaves `interface` by the delay of `link`."""
    _add_netem(interface, "delay", round(link.delay * 1e6))


def add_loss(interface: str, link: Link) -> None:
    """Have netem lose the share of packets that `link` loses among those that leave `interface`."""
    _add_netem(interface, "loss", link.loss * 100)


def _add_netem(interface: str, what: str, value: float) -> None:
    made = f"the qdisc netem (CONFIG_NET_SCH_NETEM), which the link's `{what}` is made with"
    with IPRoute() as ip, needs(made):
        index = ip.link_lookup(ifname=interface)[0]
        ip.tc("add", "netem", index, limit=100_000, **{what: value})


def link_counters(interface: str, link: Link) -> LinkCounters:
    """Return the counts of the bottleneck on `interface` since it was added."""
    stats = _tbf(interface).get_attr("TCA_STATS2")
    basic, queue = stats.get_attr("TCA_STATS_BASIC"), stats.get_attr("TCA_STATS_QUEUE")
    count = marked if link.aqm == "threshold" else red_marks
    marks = count(interface) if link.marks else 0
    return LinkCounters(basic["bytes"], basic["packets"], queue["drops"], marks)


def read_bottleneck(interface: str = BOTTLENECK) -> dict[str, int]:
    """The bottleneck on `interface` as the kernel has it: rate in bit/s, queue and burst in
    bytes."""
    options = _tbf(interface).get_attr("TCA_OPTIONS").get_attr("TCA_TBF_PARMS")
    return {
        "rate": options["rate"] * 8,
        "queue": options["limit"],
        "burst": round(options["buffer"] / _psched_ticks_per_second() * options["rate"]),
    }


def _tbf(interface: str) -> Any:
    with IPRoute() as ip:
        index = ip.link_lookup(ifname=interface)[0]
        return next(m for m in ip.get_qdiscs(index) if m["handle"] == _TBF_HANDLE)


def add_red(interface: str, link: Link) -> None:
    """RED under the tbf of `interface`, through tc: pyroute2 has none."""
    under = ("dev", interface, "parent", "1:1", "handle", "2:", "red")
    _add_of_kind("aqm", "red", *under, *_red(link), "ecn")


def _add_of_kind(field: str, kind: str, *arguments: str) -> None:
    """Add a qdisc through tc, which a field of the experiment's link names."""
    try:
        _tc("qdisc", "add", *arguments)
    except MltcpError as error:
        if "kind is unknown" not in str(error):
            raise
        raise HostError(
            f"This kernel lacks the qdisc {kind} (CONFIG_NET_SCH_{kind.upper()}), which is the"
            f" `{field}` of the experiment's `link`."
        ) from None


def _red(link: Link) -> list[str]:
    """RED: it acts from a quarter of the queue on, and on every packet from three quarters on.

    A burst fills the queue within few packets, so the average must follow it as closely as RED's
    can: by half of the difference at each packet. tc chooses that weight where `burst` times
    `avpkt` is just `min`.
    """
    low, high = link.queue // 4, link.queue * 3 // 4
    burst = max(1, round(low / _PACKET_BYTES))
    return [
        *("limit", str(link.queue), "min", str(low), "max", str(high), "burst", str(burst)),
        *("avpkt", str(-(-low // burst)), "probability", "1", "bandwidth", f"{link.rate}bit"),
    ]


def red_marks(interface: str) -> int:
    """Packets that RED on `interface` has marked."""
    qdiscs = json.loads(_tc("-s", "-j", "qdisc", "show", "dev", interface))
    return sum(int(qdisc.get("marked", 0)) for qdisc in qdiscs)


def _tc(*arguments: str) -> str:
    try:
        done = subprocess.run(["tc", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise HostError("The command tc is missing; install iproute2.") from None
    if done.returncode:
        raise MltcpError(f"`tc {' '.join(arguments)}` failed ({' '.join(done.stderr.split())}).")
    return done.stdout


def _psched_ticks_per_second() -> float:
    # tc's clock: see tc_core_init() of iproute2; all numbers are hexadecimal
    to_us, us_to, resolution, _ = (int(x, 16) for x in Path("/proc/net/psched").read_text().split())
    return 1e6 * to_us / us_to * resolution / 1e6


@contextlib.contextmanager
def needs(what: str) -> Iterator[None]:
    """Say which part of the kernel is missing where a request of netlink fails for that."""
    try:
        yield
    except NetlinkError as error:
        if error.code in (errno.ENOENT, errno.EOPNOTSUPP):
            raise HostError(f"This kernel lacks {what}.") from None
        raise MltcpError(f"Setting up {what} failed ({os.strerror(error.code)}).") from None
