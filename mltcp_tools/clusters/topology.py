# SPDX-License-Identifier: BSD-2-Clause
"""Clusters: servers with GPUs and NICs, and the links between them.

    cluster:
      servers: 128
      gpus: 8                   # of a server
      rate: 100gbit             # of a server's link
      leaf: 16                  # servers below a leaf
      oversubscription: 2       # what servers may ask of a leaf, over what its uplinks carry
      spines: 4
      queue: 1MB

    cluster:                    # or any links, as a plan's cluster has them (planning/network.py)
      links:
        - {name: a1, ends: [a1, rack-1], rate: 50gbit}
        - {name: uplink-1, ends: [rack-1, spine], rate: 100gbit}
      servers:
        - {name: a1, gpus: 8}     # nodes of the network
      queue: 1MB
      rtt: 20us                 # of the empty network

Each leaf has one uplink to each spine. ECMP: a hash of the seed, the job and the ends chooses among
equal paths.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from mltcp_tools.base.document import Section
from mltcp_tools.base.errors import UsageError
from mltcp_tools.base.units import parse_bytes, parse_rate, parse_seconds
from mltcp_tools.base.values import whole
from mltcp_tools.lab.planning.network import (
    FRAME,
    PAYLOAD,
    LinkGraph,
    NetworkLink,
    draw,
    read_links,
)
from mltcp_tools.lab.planning.reading import job_name

_LINK_FIELDS = {"links", "servers", "queue", "rtt"}
"""Fields of a cluster that names its links."""
MAX_SERVERS = 100_000


@dataclass(frozen=True)
class Server:
    """gpus: how many. The name is a node of the network, too."""

    name: str
    gpus: int


@dataclass(frozen=True, eq=False)
class Topology:
    """A cluster. queue: bytes that a port holds; rtt_s: of the empty network, seconds; seed: of the
    hash that chooses among equal paths."""

    network: LinkGraph
    machines: tuple[Server, ...]
    queue: int = 1_000_000
    rtt_s: float = 20e-6
    seed: int = 1

    def __post_init__(self) -> None:
        if not 1 <= len(self.machines) <= MAX_SERVERS:
            raise UsageError(f"servers must be 1 to {MAX_SERVERS}, not {len(self.machines)}.")
        for name in ("queue", "rtt_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise UsageError(f"{name.partition('_')[0]} must be more than 0, not {value:g}.")

    @property
    def servers(self) -> int:
        """Return the number of servers."""
        return len(self.machines)

    @cached_property
    def gpus_of(self) -> npt.NDArray[np.int64]:
        """GPUs of each server."""
        return np.array([server.gpus for server in self.machines], dtype=np.int64)

    @cached_property
    def gpus(self) -> int:
        """Of the largest server."""
        return int(self.gpus_of.max())

    @cached_property
    def total_gpus(self) -> int:
        """GPUs of all servers."""
        return int(self.gpus_of.sum())

    @cached_property
    def leaf_index(self) -> npt.NDArray[np.int64]:
        """Of each server, the number of the switch that it hangs on: its leaf."""
        switches: dict[str, int] = {}
        found = [
            switches.setdefault(self._switch(server.name), len(switches))
            for server in self.machines
        ]
        return np.array(found, dtype=np.int64)

    @cached_property
    def leaves(self) -> int:
        """Return the number of leaves."""
        return int(self.leaf_index.max()) + 1

    def leaves_of(self, servers: Iterable[int]) -> set[int]:
        """The leaves that these servers belong to."""
        return {int(self.leaf_index[server]) for server in servers}

    @cached_property
    def leaf(self) -> int:
        """Servers below the largest of them."""
        return int(np.bincount(self.leaf_index).max())

    @cached_property
    def rates_bps(self) -> list[float]:
        """Payload in bit/s that each carries."""
        return [rate * PAYLOAD for rate in self.network.rates_bps]

    @cached_property
    def packets(self) -> list[float]:
        """Return the number of packets that each holds when full, in its queue and on the way."""
        return [(self.queue + rate * self.rtt_s / 8) / FRAME for rate in self.network.rates_bps]

    def path(self, source: int, target: int, job: int) -> tuple[int, ...]:
        """Numbers of the links from one server to another."""
        if source == target:
            return ()
        first, last = self.machines[source].name, self.machines[target].name
        chosen = draw(self.seed, source, target, 0, job)
        between = self.network.path(self._switch(first), self._switch(last), chosen)
        return (self.uplink(first), *between, self.uplink(last) ^ 1)

    def _switch(self, server: str) -> str:
        return self._attached[server][0]

    def uplink(self, server: str) -> int:
        """The direction from the server to its switch; the other one's number differs in bit 0."""
        return self._attached[server][1]

    @cached_property
    def _attached(self) -> dict[str, tuple[str, int]]:
        found = {}
        for server in self.machines:
            switches = self.network.neighbours(server.name)
            if len(switches) != 1:
                raise UsageError(f"server {server.name} has {len(switches)} links, and needs one.")
            found[server.name] = switches[0], self.network.path(server.name, switches[0])[0]
        return found


def regular(
    servers: int = 16,
    gpus: int = 8,
    rate_bps: float = 100e9,
    leaf: int = 8,
    oversubscription: float = 1.0,
    spines: int = 2,
    queue: int = 1_000_000,
    rtt_s: float = 20e-6,
    seed: int = 1,
) -> Topology:
    """A cluster of equal servers, as the module says. rate_bps: of a server's link, on the wire."""
    # What a leaf's servers may ask, divided among its uplinks.
    uplink_bps = rate_bps / oversubscription * min(leaf, servers) / spines
    pairs = [(f"s{n}", f"s{n}", f"leaf{n // leaf}", rate_bps) for n in range(servers)]
    for number in range(math.ceil(servers / leaf)):
        for spine in range(spines):
            ends = f"leaf{number}", f"spine{spine}"
            pairs.append((f"leaf{number}.{spine}", *ends, uplink_bps))
    links = {name: NetworkLink(name, rate, (a, b)) for name, a, b, rate in pairs}
    machines = tuple(Server(f"s{server}", gpus) for server in range(servers))
    return Topology(LinkGraph(links), machines, queue, rtt_s, seed)


def read_topology(section: Section, seed: int = 1) -> Topology:
    """The topology that a section `cluster` describes."""
    with section.complaints():
        if "links" in set(section):
            return _read_any(section, seed)
        given = {_REGULAR[key][0]: section.get(key, _REGULAR[key][1]) for key in section}
        return regular(**given, seed=seed)  # type: ignore[arg-type]


def _read_any(section: Section, seed: int) -> Topology:
    for key in section:
        if key not in _LINK_FIELDS:
            raise section.error("has no meaning where links are named.", key)
    machines = []
    for each in section.sections("servers", ["name", "gpus"]):
        name = each.get("name", job_name)
        machines.append(Server(name, each.get("gpus", whole(1))))
    return Topology(
        LinkGraph(read_links(section)),
        tuple(machines),
        section.get("queue", parse_bytes, 1_000_000),
        section.get("rtt", _seconds, 20e-6),
        seed,
    )


def _seconds(value: object) -> float:
    return positive(parse_seconds(value) if isinstance(value, str) else value)


def positive(value: object) -> float:
    """A number of more than 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UsageError(f"must be a number, not {value!r}.")
    if not (math.isfinite(value) and value > 0):
        raise UsageError(f"must be more than 0, not {value:g}.")
    return float(value)


def _rate(value: object) -> float:
    return positive(float(parse_rate(value)))


_REGULAR: dict[str, tuple[str, Callable[[object], float]]] = {
    "servers": ("servers", whole(1, MAX_SERVERS)),
    "gpus": ("gpus", whole(1, 1024)),
    "rate": ("rate_bps", _rate),
    "leaf": ("leaf", whole(1, MAX_SERVERS)),
    "oversubscription": ("oversubscription", positive),
    "spines": ("spines", whole(1, 1024)),
    "queue": ("queue", parse_bytes),
    "rtt": ("rtt_s", _seconds),
}
"""Field of a cluster of equal servers -> the argument of `regular`, and how it is read."""
FIELDS = [*_REGULAR, "links"]
