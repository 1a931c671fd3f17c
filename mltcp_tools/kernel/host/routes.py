# SPDX-License-Identifier: BSD-2-Clause
"""Routes, and which of them give TCP connections microsecond timestamps.

On such a route (Linux 6.7, feature tcp_usec_ts) the timestamps that this host sends count
microseconds rather than milliseconds, in connections that begin from then on. The other end chooses
by its own route. All of this is about the calling thread's network namespace.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import socket
from dataclasses import dataclass
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink import NLM_F_ACK, NLM_F_REPLACE, NLM_F_REQUEST
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.rtnl import RTM_NEWROUTE
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from mltcp_tools.base.errors import HostError

_TCP_USEC_TS = 1 << 4  # RTAX_FEATURE_TCP_USEC_TS of linux/rtnetlink.h
_UNICAST = 1
_LOCAL_TABLE = 255
_STATES = 1 | 8 | 16  # RTNH_F_DEAD, _OFFLOAD, _LINKDOWN: the kernel says these, and takes none
_FAMILIES = (socket.AF_INET, socket.AF_INET6)
_HEADER = ("family", "dst_len", "src_len", "tos", "table", "proto", "scope", "type")
# What the kernel tells besides of a route, and doesn't take back.
_TOLD = ("RTA_METRICS", "RTA_CACHEINFO")
_HOPS = ("RTA_GATEWAY", "RTA_VIA", "RTA_OIF", "RTA_MULTIPATH", "RTA_ENCAP", "RTA_ENCAP_TYPE")


@dataclass(frozen=True)
class Route:
    """A route. family: of addresses. destination: network/bits. table, tos, priority: numbers.

    These five tell it from others; fine is whether it gives microsecond timestamps.
    """

    family: int
    destination: str
    table: int
    tos: int
    priority: int
    fine: bool = dataclasses.field(compare=False)
    message: Any = dataclasses.field(compare=False, repr=False)


def routes() -> list[Route]:
    """Every unicast route that packets to other hosts take."""
    with IPRoute() as ip:
        messages = [each for family in _FAMILIES for each in ip.route("dump", family=family)]
    return [
        _route(each)
        for each in messages
        if each["type"] == _UNICAST and _table(each) != _LOCAL_TABLE
    ]


def set_fine(route: Route, fine: bool) -> None:
    """Give connections over the route microsecond timestamps, or not; all else of it stays as it
    is.

    Raises HostError where the kernel refuses, or afterwards says something else of the route.
    """
    expires = dict(route.message.get_attr("RTA_CACHEINFO") or {}).get("rta_expires", 0)
    if expires:
        raise HostError(
            f"The route to {route.destination} stays as it is, as it expires by itself (a router"
            " announces it); add one of your own, and name that."
        )
    try:
        with IPRoute() as ip:
            list(ip.nlm_request_batch([_replacement(route, fine)]))
    except NetlinkError as error:
        why = {
            errno.EINVAL: "kernels before 6.7 have no microsecond timestamps, and this is"
            f" {os.uname().release}",
            errno.EPERM: "run it as root (sudo)",
        }.get(error.code, os.strerror(error.code))
        raise HostError(
            f"The kernel refuses to change the route to {route.destination}: {why}."
        ) from None
    if [each.fine for each in routes() if each == route] != [fine]:
        raise HostError(
            f"The route to {route.destination} (table {route.table}) isn't what it was set to; see"
            " `ip route`, and end what else changes routes here."
        )


def _route(message: Any) -> Route:
    family = message["family"]
    none = "0.0.0.0" if family == socket.AF_INET else "::"
    return Route(
        family,
        f"{message.get_attr('RTA_DST') or none}/{message['dst_len']}",
        _table(message),
        message["tos"],
        message.get_attr("RTA_PRIORITY") or 0,
        bool(_metrics(message).get("RTAX_FEATURES", 0) & _TCP_USEC_TS),
        message,
    )


def _table(message: Any) -> int:
    return int(message.get_attr("RTA_TABLE") or message["table"])


def _metrics(message: Any) -> dict[str, Any]:
    found = message.get_attr("RTA_METRICS")
    return dict(found["attrs"]) if found else {}


def _replacement(route: Route, fine: bool) -> Any:
    """Return the request to put the route, with or without the feature, in its own
    place.
    """
    old, new = route.message, rtmsg()
    for key in _HEADER:
        new[key] = old[key]
    new["flags"] = old["flags"] & ~_STATES
    metrics = _metrics(old)
    features = metrics.pop("RTAX_FEATURES", 0) & ~_TCP_USEC_TS
    if features := features | _TCP_USEC_TS * fine:
        metrics["RTAX_FEATURES"] = features
    # A nexthop object stands for what the kernel tells of it, too.
    left_out = (*_TOLD, *_HOPS) if old.get_attr("RTA_NH_ID") else _TOLD
    attributes = [(key, value) for key, value in old["attrs"] if key not in left_out]
    if metrics:
        attributes.append(("RTA_METRICS", {"attrs": list(metrics.items())}))
    new["attrs"] = attributes
    new["header"]["type"] = RTM_NEWROUTE
    new["header"]["flags"] = NLM_F_REQUEST | NLM_F_ACK | NLM_F_REPLACE
    return new
