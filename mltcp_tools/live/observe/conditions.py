# SPDX-License-Identifier: BSD-2-Clause
"""The conditions of a host's jobs: traffic on its interfaces, its CPUs, who else trains.

Counters are read at two instants; what happened in between is their difference. Two such spans are
alike, or a comparison between them says nothing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute

from mltcp_tools.base.units import counted, format_rate
from mltcp_tools.kernel.host.disturbance import cpu_ticks
from mltcp_tools.kernel.host.namespaces import Unreachable, in_each, inside
from mltcp_tools.live.attach.egress import addresses, route
from mltcp_tools.live.attach.processes import processes
from mltcp_tools.live.attach.sockets import Socket, sockets_of

ELSEWHERE = " elsewhere"
Passed = frozenset[tuple[int, str]]
"""Interfaces that connections pass: inodes of network namespaces, and names."""

_DEVICES = Path("/proc/thread-self/net/dev")
_BUSIEST = 8
_STOLEN = 0.05
"""Share of all CPUs' time that a hypervisor may take."""

_BUSY = 0.25
"""Share of all CPUs' time by which what others compute may change."""

_TRAFFIC = 0.1
"""Share of the jobs' own bytes by which other traffic may change."""


@dataclass(frozen=True)
class Own:
    """The traffic of the jobs compared, in bytes per second.

    delivered: each byte once. sent: as often as it was sent. What a queue drops and a job sends
    again has passed the links before that queue, and not those behind it.
    """

    delivered: float
    sent: float


@dataclass(frozen=True)
class HostCounters:
    """The counters of a host at an instant (CLOCK_MONOTONIC seconds).

    links: bytes in and out by interface; those of that name in all other network namespaces as
    `eth0 elsewhere`, as namespaces come and go. stolen, worked, ticks: of all CPUs (see
    disturbance.cpu_ticks). jobs: names of those attached.
    """

    at_s: float
    links: Mapping[str, int]
    stolen: int
    worked: int
    ticks: int
    jobs: frozenset[str]


@dataclass(frozen=True)
class Span:
    """A span of time, as two readings show it.

    links: bytes per second. stolen, worked: shares. jobs: names of those
    attached in it; came, went: those that were not from its beginning, or not to its end.
    """

    length_s: float
    links: dict[str, float]
    stolen: float
    worked: float
    jobs: frozenset[str]
    came: frozenset[str]
    went: frozenset[str]


def read_counters(jobs: Iterable[str], path: Passed = frozenset()) -> HostCounters:
    """Read them now, which takes root: other network namespaces are entered.

    jobs: names of those attached. path: interfaces, and no others count; empty: all do.
    """
    here = _inode_here()
    links = Counter({_name(name, inode == here): 0 for inode, name in path})
    for namespace, table in in_each(_DEVICES.read_text):
        # The table has two lines of head (proc_pid_net(5)).
        for line in table.splitlines()[2:]:
            name, _, rest = line.partition(":")
            if not path or (namespace.inode, name.strip()) in path:
                words = rest.split()
                links[_name(name.strip(), namespace.is_here)] += int(words[0]) + int(words[8])
    return HostCounters(time.monotonic(), links, *cpu_ticks()[:3], frozenset(jobs))


def _name(interface: str, is_here: bool) -> str:
    return interface if is_here else interface + ELSEWHERE


def path_of(sockets: Iterable[Socket]) -> Passed:
    """The interfaces of this host that connections pass: their own and, from a container, the
    other end of its veth and the one by which this namespace goes on to the peer.

    Empty where an address is no interface's, or a namespace can't be entered.
    """
    found: set[tuple[int, str]] = set()
    here = _inode_here()
    ends = {
        # Only a container's connections have their peer's way looked up.
        (each.netns, each.local[0], "" if each.netns == here else each.remote[0]): each.process.pid
        for each in sockets
    }
    for (netns, local, remote), pid in ends.items():
        try:
            with inside(netns, [pid]), IPRoute() as netlink:
                passed = _below(netlink, addresses(netlink).get(local))
        except Unreachable:
            return frozenset()
        if not passed:
            return frozenset()
        found |= {(netns, link.get_attr("IFLA_IFNAME")) for link in passed}
        last = passed[-1]
        if netns == here or last.get_attr("IFLA_LINK_NETNSID") is None:
            continue
        with IPRoute() as netlink:
            onward = [*_other_end(netlink, last), *_below(netlink, route(netlink, remote))]
        found |= {(here, link.get_attr("IFLA_IFNAME")) for link in onward}
    return frozenset(found)


def _inode_here() -> int:
    return Path("/proc/thread-self/ns/net").stat().st_ino


def _below(netlink: IPRoute, index: int | None) -> list[Any]:
    """The interface and those that it stands on: a VLAN's traffic is its parent's as well."""
    links = {link["index"]: link for link in netlink.get_links()}
    found: list[Any] = []
    while index in links and links[index] not in found:
        found.append(links[index])
        if found[-1].get_attr("IFLA_LINK_NETNSID") is not None:  # the rest is elsewhere
            break
        index = found[-1].get_attr("IFLA_LINK")
    return found


def _other_end(netlink: IPRoute, link: Any) -> list[Any]:
    """A veth's other end, if that is in this thread's network namespace."""
    return [
        each
        for each in netlink.get_links()
        if each["index"] == link.get_attr("IFLA_LINK")
        and each.get_attr("IFLA_LINK") == link["index"]
        and each.get_attr("IFLA_LINK_NETNSID") is not None
    ]


def span(before: HostCounters, after: HostCounters) -> Span:
    """Return the span between two readings."""
    length_s = max(after.at_s - before.at_s, 1e-9)
    ticks = max(after.ticks - before.ticks, 1)
    return Span(
        length_s=length_s,
        links=_rates(before.links, after.links, length_s),
        stolen=(after.stolen - before.stolen) / ticks,
        worked=(after.worked - before.worked) / ticks,
        jobs=before.jobs | after.jobs,
        came=after.jobs - before.jobs,
        went=before.jobs - after.jobs,
    )


def _other_traffic(one: Span, other: Span, own: tuple[Own, Own]) -> list[str]:
    """Return the change of others' traffic, on the interface where it changed most; a sentence, or
    none.
    """
    extra: dict[str, float] = {}
    for name in sorted(one.links.keys() | other.links.keys()):
        change = _unexplained(one.links.get(name, 0.0), other.links.get(name, 0.0), own)
        if change > _tolerated(own):
            extra[name] = change
    if not extra:
        return []
    most = max(extra, key=lambda name: extra[name])
    told = " and ".join(format_rate(8 * each.links.get(most, 0.0)) for each in (one, other))
    more = f", and on {counted(len(extra) - 1, 'more interface')}" if len(extra) > 1 else ""
    growth = own[1].delivered / own[0].delivered - 1 if own[0].delivered else 0.0
    grown = f"with the jobs' own, which changed by {growth:+.0%}"
    where = most.replace(ELSEWHERE, " in another network namespace")
    return [f"Other traffic on {where} changed ({told} {grown}){more}."]


def _unexplained(first: float, second: float, own: tuple[Own, Own]) -> float:
    """By how much a rate changed beyond what the jobs' own bytes explain, wherever these are lost.

    Between a link before the queue that drops and one behind it lies every other one.
    """
    growths = [
        after / before if before else 1.0
        for before, after in (
            (own[0].delivered, own[1].delivered),
            (own[0].sent, own[1].sent),
        )
    ]
    return max(0.0, second - first * max(growths), first * min(growths) - second)


def _tolerated(own: tuple[Own, Own]) -> float:
    """The change of others' traffic that leaves a comparison valid."""
    return _TRAFFIC * max(each.delivered for each in own)


def _rates(
    before: Mapping[str, int], after: Mapping[str, int], length_s: float
) -> dict[str, float]:
    """Per second; what was not there before begins at nothing."""
    return {name: max(0, count - before.get(name, 0)) / length_s for name, count in after.items()}


def differences(one: Span, other: Span, own: tuple[Own, Own]) -> list[str]:
    """Return sentences on the differences of two spans.

    own: of the jobs compared, in each. What they send alone may differ: that is what a comparison
    is about.
    """
    found = [
        f"The hypervisor took {each.stolen:.0%} of the CPUs' time."
        for each in (one, other)
        if each.stolen >= _STOLEN
    ]
    if abs(one.worked - other.worked) >= _BUSY:
        found.append(f"The CPUs were {one.worked:.0%} and {other.worked:.0%} busy.")
    lasting = (one.jobs ^ other.jobs) - one.came - other.came - one.went - other.went
    found += [f"Job {name} was there in one of them only." for name in sorted(lasting)]
    for each in (one, other):
        found += [f"Job {name} began meanwhile." for name in sorted(each.came)]
        found += [f"Job {name} ended meanwhile." for name in sorted(each.went)]
    found += _other_traffic(one, other, own)
    return found


class Conditions:
    """Keeps what a recording runs under, as a document that grows. attached: names, whenever asked.

    Unattached traffic is told by the connections that moved most meanwhile, whoever has them.
    """

    def __init__(self, attached: Callable[[], Iterable[str]]) -> None:
        self._attached = attached
        self._begun = read_counters(attached())
        self._begun_with = _connections()
        self._seen = set(self._begun.jobs)

    def look(self) -> None:
        """Notice jobs that come and go between beginning and end."""
        self._seen |= set(self._attached())

    def document(self, own_cookies: Collection[int], own_bytes: int) -> dict[str, Any]:
        """Return the conditions so far. own_cookies, own_bytes: of the jobs recorded."""
        now = read_counters(self._attached())
        self._seen |= now.jobs
        found = span(self._begun, now)
        passing = self._seen - self._begun.jobs - now.jobs
        return {
            "length_s": found.length_s,
            "links": dict(found.links),
            "stolen": found.stolen,
            "worked": found.worked,
            "jobs": sorted(self._seen),
            "came": sorted(found.came | passing),
            "went": sorted(found.went | passing),
            "own": own_bytes / found.length_s,
            **self._connections(own_cookies, found.length_s),
        }

    def _connections(self, own_cookies: Collection[int], length_s: float) -> dict[str, Any]:
        """again: bytes per second that the jobs sent again. others: the busiest connections that
        aren't theirs: who has them, to where, bytes per second."""
        again = 0
        moved_by: Counter[tuple[str, str]] = Counter()
        for cookie, each in _connections().items():
            before = self._begun_with.get(cookie)
            if cookie in own_cookies:
                again += each.bytes_again - (before.bytes_again if before else 0)
            elif (size := _moved(each) - (_moved(before) if before else 0)) > 0:
                moved_by[each.process.name, each.remote[0]] += size
        return {
            "again": again / length_s,
            "others": [
                {"process": who, "to": remote, "bytes_per_s": size / length_s}
                for (who, remote), size in moved_by.most_common(_BUSIEST)
            ],
        }


def _connections() -> dict[int, Socket]:
    """All of this host that are established, by cookie."""
    found = sockets_of(processes())[0]
    return {each.cookie: each for each in found if each.state == "established"}


def _moved(connection: Socket) -> int:
    return connection.bytes_sent + connection.bytes_received


def unlike(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return sentences on the differing conditions of two recordings, by their documents."""
    spans = [
        Span(
            length_s=each["length_s"],
            links=each["links"],
            stolen=each["stolen"],
            worked=each["worked"],
            jobs=frozenset(each["jobs"]),
            came=frozenset(each["came"]),
            went=frozenset(each["went"]),
        )
        for each in (one, other)
    ]
    first_own, second_own = (Own(each["own"], each["own"] + each["again"]) for each in (one, other))
    own = first_own, second_own
    found = differences(spans[0], spans[1], own)
    rates = [
        {(each["process"], each["to"]): each["bytes_per_s"] for each in document["others"]}
        for document in (one, other)
    ]
    for who in sorted(rates[0].keys() | rates[1].keys()):
        first, second = (each.get(who, 0.0) for each in rates)
        if _unexplained(first, second, own) > _tolerated(own):
            found.append(
                f"{who[0]} moved {format_rate(8 * first)} to {who[1]} in the first,"
                f" {format_rate(8 * second)} in the second."
            )
    return found
