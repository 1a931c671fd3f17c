# SPDX-License-Identifier: BSD-2-Clause
"""Compare this host with another one of the same jobs: each difference that matters, and a fix.

The other one (`mltcp serve doctor`) tells its facts in one line of JSON. Until its stdin closes it
discards what is sent to the TCP port that these name: so each path between the hosts is tried.
"""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from pyroute2 import IPRoute

from mltcp_tools import __version__
from mltcp_tools.base.errors import HostError, MltcpError
from mltcp_tools.base.units import format_rate
from mltcp_tools.doctor.host import HostFacts
from mltcp_tools.doctor.report import Check, State
from mltcp_tools.kernel.backends import BACKENDS, get_backend
from mltcp_tools.kernel.host.peers import PeerProgram, answer
from mltcp_tools.live.attach.egress import addresses
from mltcp_tools.live.attach.state import StateFiles

Facts = dict[str, Any]
"""The answer of one host, see `facts`."""

_OPTIONS = {"SACK": (2, "tcp_sack"), "timestamps": (1, "tcp_timestamps")}
"""TCP's options by which it recovers from loss: bits of tcpi_options (linux/tcp.h), and sysctls."""

_OPTIONS_AT = 5
"""The place of tcpi_options in struct tcp_info."""

_BULK = 1 << 18
"""Bytes sent over each path: many packets as large as its ends agree on."""

_PATIENCE_S = 3.0


def facts(port: int = 0) -> Facts:
    """Return this host's part of the comparison. port: where connections are taken.

    interfaces: name, MTU (bytes) and rate (bits/s, 0: unknown) by address. builds: of what is
    loaded, by backend. flows: job, local address and port, remote address and port of each attached
    socket. unknown: why these two can't be known.
    """
    host = HostFacts()
    with IPRoute() as netlink:
        links = {each["index"]: each for each in netlink.get_links()}
        owners = addresses(netlink)
    interfaces = {}
    for address, index in owners.items():
        if not (ip_address(address).is_loopback or ip_address(address).is_link_local):
            name = links[index].get_attr("IFLA_IFNAME")
            speed = host.read(f"/sys/class/net/{name}/speed") or ""
            rate = int(speed) * 10**6 if speed.isdecimal() else 0
            interfaces[address] = (name, links[index].get_attr("IFLA_MTU"), rate)
    return {
        "version": __version__,
        "port": port,
        "settings": {key: host.read(f"/proc/sys/net/ipv4/{key}") for _, key in _OPTIONS.values()},
        "interfaces": interfaces,
        **_of_mltcp(),
    }


def _of_mltcp() -> Facts:
    builds, flows, why = {}, [], ""
    try:
        loaded = [each for each in map(get_backend, BACKENDS) if each.loaded()]
        builds = {each.name: each.status().build for each in loaded}
        flows = [
            (job.job.name, *each.local, *each.remote)
            for job in StateFiles().read()
            for each in job.sockets
        ]
    except MltcpError as error:
        why = str(error)
    return {"builds": builds, "flows": flows, "unknown": why}


def serve() -> None:
    """Tell this host's facts on stdout, and take connections until stdin ends."""
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    with socket.create_server(("", 0), family=family, dualstack_ipv6=both) as listener:
        threading.Thread(target=_discard, args=(listener,), daemon=True).start()
        answer("facts", **facts(listener.getsockname()[1]))
        sys.stdin.read()


def _discard(listener: socket.socket) -> None:
    """Take connections, and say something to each one that has sent everything."""
    while True:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.settimeout(_PATIENCE_S)
            while connection.recv(1 << 16):
                pass
            connection.sendall(b".")


@dataclass(frozen=True)
class Path:
    """A TCP connection between two addresses. arrived: whether the data sent over it did.

    options: those of _OPTIONS that its ends agreed on.
    """

    local: str
    remote: str
    arrived: bool
    options: frozenset[str]


def _try(address: str, port: int) -> Path | None:
    """The path to an address; None where no connection is made."""
    with suppress(OSError), socket.create_connection((address, port), _PATIENCE_S) as sock:
        bits = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _OPTIONS_AT + 1)[_OPTIONS_AT]
        arrived = False
        with suppress(TimeoutError):
            sock.sendall(bytes(_BULK))
            sock.shutdown(socket.SHUT_WR)
            arrived = bool(sock.recv(1))
        options = frozenset(name for name, (bit, _) in _OPTIONS.items() if bits & bit)
        return Path(sock.getsockname()[0], address, arrived, options)
    return None


def compare(name: str, command: Sequence[str]) -> list[Check]:
    """The findings about this host and the one called `name`, whose end `command` starts.

    HostError where that one doesn't answer.
    """
    here = facts()
    peer = PeerProgram(command, quiet=True)
    try:
        there = _hear(peer, name)
        if there["version"] != __version__:
            found = f"{__version__} here, {there['version']} on {name}; nothing else is compared"
            return [Check("version", "missing", found, "Install the same version on both hosts.")]
        tried = [each for each in there["interfaces"] if each not in here["interfaces"]]
        with ThreadPoolExecutor() as pool:
            paths = [*filter(None, pool.map(lambda each: _try(each, there["port"]), tried))]
    finally:
        peer.close(_PATIENCE_S)
    return [
        Check("version", "ok", f"{__version__} on both"),
        *_loading(name, here, there),
        *_paths(name, here, there, paths),
        *_jobs(name, here, there),
    ]


def _hear(peer: PeerProgram, name: str) -> Facts:
    try:
        while (messages := peer.read()) == []:
            pass
    except ValueError as error:
        raise HostError(f"{name} answered nonsense: {error}.") from None
    if messages is None:
        peer.close(_PATIENCE_S)
        raise HostError(f"{name}: {peer.complaint() or 'mltcp ended there without an answer.'}")
    return messages[0]


def _loading(name: str, here: Facts, there: Facts) -> Iterator[Check]:
    """Compare the builds that are loaded."""
    for where, side in (("here", here), (f"on {name}", there)):
        if side["unknown"]:
            fix = "Run as root; for the other host: MLTCP_REMOTE='sudo -n mltcp'"
            yield Check("loaded", "unknown", f"{where}: {side['unknown']}", fix)
            return
        if not side["builds"]:
            fix = f"Run `mltcp load` {where}: only senders that run MLTCP give way."
            yield Check("loaded", "warning", f"nothing {where}", fix)
    for backend in here["builds"].keys() & there["builds"].keys():
        mine, other = here["builds"][backend], there["builds"][backend]
        if mine != other:
            fix = "Run `mltcp load --replace` where the older one is."
            yield Check("loaded", "warning", f"{backend}: {mine} here, {other} on {name}", fix)
            return
    if here["builds"] and there["builds"]:
        both = [" and ".join(side["builds"]) for side in (here, there)]
        yield Check("loaded", "ok", f"{both[0]} here, {both[1]} on {name}")


def _paths(name: str, here: Facts, there: Facts, paths: Sequence[Path]) -> Iterator[Check]:
    """Say of each path whether it carries full packets, and how its ends differ."""
    if not paths:
        found = f"no connection to TCP port {there['port']} of {', '.join(there['interfaces'])}"
        fix = f"Allow TCP to all ports of {name} that training uses, on the network of the jobs."
        yield Check("path", "missing", found, fix)
    for path in paths:
        mine = here["interfaces"].get(path.local, ("?", 0, 0))
        other = there["interfaces"][path.remote]
        ends = [
            f"{interface} (MTU {mtu}, {format_rate(rate) if rate else 'unknown rate'})"
            for interface, mtu, rate in (mine, other)
        ]
        seen = f"{path.local} to {path.remote}: {ends[0]} here, {ends[1]} on {name}"
        wrong = [*_unlike(name, here, there, path, mine, other)]
        state: State = "ok" if path.arrived else "missing"
        yield Check("path", "warning" if wrong and path.arrived else state, seen, " ".join(wrong))


def _unlike(
    name: str, here: Facts, there: Facts, path: Path, mine: Sequence[Any], other: Sequence[Any]
) -> Iterator[str]:
    if not path.arrived:
        yield "Full packets don't arrive: set one MTU on both interfaces and all switches between."
    elif mine[1] != other[1]:
        yield "Set one MTU on both interfaces: a switch between may drop larger packets."
    if mine[2] and other[2] and mine[2] != other[2]:
        yield "The rates differ, so queues build up before the slower interface: check its port."
    for option in _OPTIONS.keys() - path.options:
        key = _OPTIONS[option][1]
        off = [f"on {name}"] if there["settings"][key] == "0" else []
        off += ["here"] if here["settings"][key] == "0" else []
        fix = f"run: sysctl -w net.ipv4.{key}=1" if off else "ask who runs the devices between"
        why = "TCP recovers from loss more slowly without it"
        yield f"{option} is off {' and '.join(off) or 'on the way'}; {why}: {fix}."


def _jobs(name: str, here: Facts, there: Facts) -> Iterator[Check]:
    """Jobs of either host whose connections lead to the other, and which aren't attached there."""
    if here["unknown"] or there["unknown"]:
        return
    for mine, other, where in ((here, there, f"on {name}"), (there, here, "here")):
        for job in one_sided(mine, other):
            found = f"{job} isn't attached {where}, so its senders there don't give way"
            yield Check("job", "warning", found, f"Run `mltcp attach` {where}, or its agent.")


def one_sided(mine: Facts, other: Facts) -> list[str]:
    """Names of the jobs of one host that have connections to the other, which has none of them.

    It has a job if it attached one of that name, or the other end of one of its connections.
    """
    names = {flow[0] for flow in other["flows"]}
    ends = {tuple(flow[1:]) for flow in other["flows"]}
    owned = {*other["interfaces"], *(flow[1] for flow in other["flows"])}
    known: dict[str, bool] = {}
    for job, address, port, remote, remote_port in mine["flows"]:
        if job and remote in owned:
            there = job in names or (remote, remote_port, address, port) in ends
            known[job] = known.get(job, False) or there
    return [job for job, there in known.items() if not there]
