# SPDX-License-Identifier: BSD-2-Clause
"""The way that connections leave this host: their interface, and who on this host ends them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from mltcp_tools.kernel.host.diag import open_diag, tcp_sockets_to
from mltcp_tools.kernel.host.namespaces import Unreachable, inside, process_name
from mltcp_tools.live.attach.processes import processes
from mltcp_tools.live.attach.sockets import Socket, holders

LOOPBACK = "lo"


@dataclass(frozen=True)
class Egress:
    """The way of one connection. interface: by which it leaves; of_address: that which has its
    local address; both are empty where that isn't known. ended_by: a process of its network
    namespace that has the other end; empty for none.
    """

    interface: str = ""
    of_address: str = ""
    ended_by: str = ""


def egress_of(sockets: Iterable[Socket]) -> dict[int, Egress]:
    """The way of each connection, by cookie. Sockets that aren't connected are left out."""
    by_netns: defaultdict[int, list[Socket]] = defaultdict(list)
    for each in sockets:
        if each.state != "listen":
            by_netns[each.netns].append(each)
    found: dict[int, Egress] = {}
    for netns, some in by_netns.items():
        with suppress(Unreachable), inside(netns, [each.pid for each in some[:8]]):
            found |= _found_here(some)
    return found


def notices(sockets: Sequence[Socket], found: dict[int, Egress]) -> list[str]:
    """Return sentences on connections that take another way than one would think; each once."""
    said = []
    for each in sockets:
        way = found.get(each.cookie, Egress())
        if not way.interface or LOOPBACK in (way.interface, way.of_address):
            continue
        if way.of_address not in ("", way.interface):
            said.append(
                f"Connections of process {each.pid} from {each.local[0]}, the address of"
                f" {way.of_address}, leave by {way.interface}: see `ip route get {each.remote[0]}`."
            )
        if way.ended_by:  # as a packet filter redirects them to a sidecar
            said.append(
                f"Connections of process {each.pid} to {each.remote[0]} end at process"
                f" {way.ended_by} on this host, so they share no link: attach that one's instead."
            )
    return list(dict.fromkeys(said))


def _found_here(sockets: Sequence[Socket]) -> dict[int, Egress]:
    """The ways in this thread's network namespace."""
    with IPRoute() as netlink:
        names = {each["index"]: each.get_attr("IFLA_IFNAME") for each in netlink.get_links()}
        owners = addresses(netlink)
        ways = {
            key: route(netlink, *key)
            for key in {(each.remote[0], each.local[0], each.interface) for each in sockets}
        }
    ended = _ended_here(sockets)
    return {
        each.cookie: Egress(
            names.get(ways[each.remote[0], each.local[0], each.interface] or 0, ""),
            names.get(owners.get(each.local[0], 0), ""),
            ended.get(each.cookie, ""),
        )
        for each in sockets
    }


def _ended_here(sockets: Sequence[Socket]) -> dict[int, str]:
    """By cookie, the process that has the other end, whatever address that has: redirected ones'
    has another than the connection's peer."""
    own = {each.local: each.cookie for each in sockets}
    with open_diag() as diag:
        peers = {each.inode: own[each.remote] for each in tcp_sockets_to(diag, own.keys())}
    found = holders(peers.keys(), processes()) if peers else {}
    return {peers[inode]: process_name(each.pid) for inode, (each, _) in found.items()}


def addresses(netlink: IPRoute) -> dict[str, int]:
    """The index of the interface that has an address."""
    return {
        each.get_attr("IFA_LOCAL") or each.get_attr("IFA_ADDRESS"): each["index"]
        for each in netlink.get_addr()
    }


def route(netlink: IPRoute, remote: str, local: str = "", bound: int = 0) -> int | None:
    """The index of the interface by which packets to a peer leave; None where no route is.

    local: the address they come from; bound: the interface that the socket is bound to.
    """
    asked: dict[str, Any] = {"dst": remote} | ({"src": local} if local else {})
    try:
        routes = netlink.route("get", **asked, **({"oif": bound} if bound else {}))
    except NetlinkError:  # no route leads there
        return None
    return next((each.get_attr("RTA_OIF") for each in routes), None)
