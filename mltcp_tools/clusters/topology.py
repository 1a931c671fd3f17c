# SPDX-License-Identifier: BSD-2-Clause
"""Clusters: servers with GPUs and NICs, and the links between them.

    cluster:
      kind: leaf-spine          # or rails
      servers: 128
      gpus: 8                   # of a server
      nics: 1                   # of a server
      rate: 100gbit             # of a NIC
      leaf: 16                  # servers below a leaf
      oversubscription: 2       # what NICs may ask of a leaf, over what its uplinks carry
      spines: 4
      queue: 1MB

    cluster:                    # or any links, as a plan's cluster has them (planning/network.py)
      links:
        - {name: a1, ends: [a1, rack-1], rate: 50gbit}
        - {name: uplink-1, ends: [rack-1, spine], rate: 100gbit}
      servers:
        - {name: a1, gpus: 8, speed: 0.5}     # nodes; speed: of their GPUs, 1 is a model's own
      queue: 1MB
      rtt: 20us                 # of the empty network

In a leaf-spine network each leaf has one uplink to each spine. In a network of rails, NIC n of
every server of a pod hangs on the pod's leaf n. ECMP: which of the equal paths a connection takes
follows from a hash of the seed, job, ends and NIC.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from mltcp_tools.base.document import Section
from mltcp_tools.base.errors import UsageError
from mltcp_tools.base.units import parse_bytes, parse_rate, parse_seconds
from mltcp_tools.lab.planning.network import FRAME, PAYLOAD, Link, Network, draw, read_links
from mltcp_tools.lab.planning.reading import job_name

Kind = Literal["leaf-spine", "rails"]
KINDS: tuple[str, ...] = get_args(Kind)
FIELDS = [
    "kind",
    "servers",
    "gpus",
    "nics",
    "rate",
    "leaf",
    "oversubscription",
    "spines",
    "queue",
    "rtt",
    "links",
]
_LINK_FIELDS = {"links", "servers", "queue", "rtt"}
"""Fields of a cluster that names its links."""
MAX_SERVERS = 100_000


@dataclass(frozen=True)
class Server:
    """gpus: how many. speed: of each, 1 is what models are described for. nics: nodes of the
    network, one for each NIC."""

    name: str
    gpus: int
    nics: tuple[str, ...]
    speed: float = 1.0


@dataclass(frozen=True, eq=False)
class Topology:
    """A cluster. queue: bytes that a port holds; rtt_s: of the empty network, seconds; seed: of the
    hash that chooses among equal paths."""

    network: Network
    machines: tuple[Server, ...]
    queue: int = 1_000_000
    rtt_s: float = 20e-6
    seed: int = 1

    def __post_init__(self) -> None:
        if not 1 <= len(self.machines) <= MAX_SERVERS:
            raise UsageError(f"servers must be 1 to {MAX_SERVERS}, not {len(self.machines)}.")
        if len({len(server.nics) for server in self.machines}) > 1:
            raise UsageError("all servers must have as many NICs.")
        for name in ("queue", "rtt_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise UsageError(f"{name.partition('_')[0]} must be more than 0, not {value:g}.")

    @property
    def servers(self) -> int:
        """Return the number of servers."""
        return len(self.machines)

    @property
    def nics(self) -> int:
        """Of each server."""
        return len(self.machines[0].nics)

    @cached_property
    def gpus_of(self) -> npt.NDArray[np.int64]:
        """GPUs of each server."""
        return np.array([server.gpus for server in self.machines], dtype=np.int64)

    @cached_property
    def slowness(self) -> list[float]:
        """Of each server: how many times as long as described its GPUs compute."""
        return [1 / server.speed for server in self.machines]

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
        """Of each server, the number of the switch that its first NIC hangs on: its leaf."""
        switches: dict[str, int] = {}
        found = [
            switches.setdefault(self._switch(server.nics[0]), len(switches))
            for server in self.machines
        ]
        return np.array(found, dtype=np.int64)

    @cached_property
    def leaves(self) -> int:
        """Return the number of leaves."""
        return int(self.leaf_index.max()) + 1

    @cached_property
    def leaf(self) -> int:
        """Servers below the largest of them."""
        return int(np.bincount(self.leaf_index).max())

    @cached_property
    def oversubscription(self) -> float:
        """Return the rate that the NICs of a leaf may ask of it, over what its uplinks carry; the
        largest.
        """
        most = 1.0
        below = {nic for server in self.machines for nic in server.nics}
        for switch in {self._switch(nic) for nic in below}:
            asked = carried = 0.0
            for other in self.network.neighbours(switch):
                rate = self.rates_bps[self.network.path(switch, other)[0]]
                asked += rate * (other in below)
                carried += rate * (other not in below)
            if carried:
                most = max(most, asked / carried)
        return most

    def leaf_of(self, server: int) -> int:
        """The leaf that the server belongs to."""
        return int(self.leaf_index[server])

    @property
    def names(self) -> list[str]:
        """Of the links' directions, in the order of their numbers."""
        return self.network.names

    @cached_property
    def rates_bps(self) -> list[float]:
        """Payload in bit/s that each carries."""
        return [rate * PAYLOAD for rate in self.network.rates_bps]

    @cached_property
    def packets(self) -> list[float]:
        """Return the number of packets that each holds when full, in its queue and on the way."""
        return [(self.queue + rate * self.rtt_s / 8) / FRAME for rate in self.network.rates_bps]

    def path(self, source: int, target: int, nic: int, job: int) -> tuple[int, ...]:
        """Numbers of the links from one server to another by their NICs `nic`."""
        if source == target:
            return ()
        first, last = self.machines[source].nics[nic], self.machines[target].nics[nic]
        chosen = draw(self.seed, source, target, nic, job)
        between = self.network.path(self._switch(first), self._switch(last), chosen)
        return (self._uplink(first), *between, self._uplink(last) ^ 1)

    def tree(self, servers: Sequence[int], nic: int, job: int) -> dict[int, float]:
        """Links that a sum of all servers' data takes to a switch above them and back, once each.

        Where there is more than one leaf, that is one of the spines.
        """
        ends = [self.machines[server].nics[nic] for server in servers]
        switches = {self._switch(end) for end in ends}
        links = {self._uplink(end) ^ back for end in ends for back in (0, 1)}
        links |= self.network.tree(switches, draw(self.seed, nic, job))
        return dict.fromkeys(sorted(links), 1.0)

    def _switch(self, nic: str) -> str:
        return self._attached[nic][0]

    def _uplink(self, nic: str) -> int:
        """The direction from the NIC to its switch; the other one's number differs in bit 0."""
        return self._attached[nic][1]

    @cached_property
    def _attached(self) -> dict[str, tuple[str, int]]:
        found = {}
        for server in self.machines:
            for nic in server.nics:
                switches = self.network.neighbours(nic)
                if len(switches) != 1:
                    raise UsageError(
                        f"server {server.name} has {len(switches)} links, and needs one; its"
                        " others would be of other NICs."
                    )
                found[nic] = switches[0], self.network.path(nic, switches[0])[0]
        return found


def regular(
    kind: Kind = "leaf-spine",
    servers: int = 16,
    gpus: int = 8,
    nics: int = 1,
    rate_bps: float = 100e9,
    leaf: int = 8,
    oversubscription: float = 1.0,
    spines: int = 2,
    queue: int = 1_000_000,
    rtt_s: float = 20e-6,
    seed: int = 1,
) -> Topology:
    """A cluster of equal servers; rate_bps: of a NIC, bit/s on the wire. The module says more."""
    if kind not in KINDS:
        raise UsageError(f"the kind is one of {', '.join(KINDS)}, not {kind!r}.")
    for name, value, most in (
        ("servers", servers, MAX_SERVERS),
        ("gpus", gpus, 1024),
        ("nics", nics, 64),
        ("leaf", leaf, MAX_SERVERS),
        ("spines", spines, 1024),
    ):
        if not 1 <= value <= most:
            raise UsageError(f"{name} must be 1 to {most}, not {value}.")
    for name, each in (("rate", rate_bps), ("oversubscription", oversubscription)):
        if not (math.isfinite(each) and each > 0):
            raise UsageError(f"{name} must be more than 0, not {each:g}.")
    links = dict(_nics(kind, servers, nics, leaf, rate_bps))
    rate = rate_bps * nics / oversubscription
    links |= _leaves(kind, math.ceil(servers / leaf), min(leaf, servers), nics, spines, rate)
    machines = tuple(
        Server(f"s{server}", gpus, tuple(f"s{server}.{nic}" for nic in range(nics)))
        for server in range(servers)
    )
    return Topology(Network(links), machines, queue, rtt_s, seed)


def _link(name: str, rate_bps: float, ends: tuple[str, str]) -> tuple[str, Link]:
    return name, Link(name, rate_bps, ends)


def _nics(
    kind: Kind, servers: int, nics: int, leaf: int, rate_bps: float
) -> Iterator[tuple[str, Link]]:
    for server in range(servers):
        for nic in range(nics):
            switch = server // leaf * nics + nic if kind == "rails" else server // leaf
            yield _link(f"s{server}.{nic}", rate_bps, (f"s{server}.{nic}", f"leaf{switch}"))


def _leaves(
    kind: Kind, leaves: int, below: int, nics: int, spines: int, rate: float
) -> Mapping[str, Link]:
    """Links to the spines; `rate`: what one server may ask of its uplinks."""
    rails = nics if kind == "rails" else 1
    each = rate * below / rails / spines
    return dict(
        _link(f"leaf{switch}.{spine}", each, (f"leaf{switch}", f"spine{spine}"))
        for switch in range(leaves * rails)
        for spine in range(spines)
    )


def read_topology(section: Section, seed: int = 1) -> Topology:
    """The topology that a section `cluster` describes."""
    try:
        if "links" in set(section):
            return _read_any(section, seed)
        return regular(**_read_regular(section), seed=seed)  # type: ignore[arg-type]
    except UsageError as error:
        if str(error).startswith(f"{section.file}:"):
            raise
        raise section.error(str(error)) from None


def _read_regular(section: Section) -> dict[str, object]:
    given: dict[str, object] = {}
    for key in section:
        if key == "kind":
            given[key] = section.get(key, str)
        elif key == "rate":
            given["rate_bps"] = float(section.get(key, parse_rate))
        elif key == "queue":
            given[key] = section.get(key, parse_bytes)
        elif key == "rtt":
            given["rtt_s"] = section.get(key, _seconds)
        elif key == "oversubscription":
            given[key] = section.get(key, positive)
        else:
            given[key] = section.get(key, whole)
    return given


def _read_any(section: Section, seed: int) -> Topology:
    for key in section:
        if key not in _LINK_FIELDS:
            raise section.error("has no meaning where links are named.", key)
    machines = []
    for each in section.sections("servers", ["name", "gpus", "speed"]):
        name = each.get("name", job_name)
        machines.append(
            Server(name, each.get("gpus", whole), (name,), each.get("speed", positive, 1.0))
        )
    return Topology(
        Network(read_links(section)),
        tuple(machines),
        section.get("queue", parse_bytes, 1_000_000),
        section.get("rtt", _seconds, 20e-6),
        seed,
    )


def _seconds(value: object) -> float:
    return positive(parse_seconds(value) if isinstance(value, str) else value)


def whole(value: object) -> int:
    """A whole number of 1 or more."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError(f"must be a whole number of 1 or more, not {value!r}.")
    return value


def positive(value: object) -> float:
    """A number of more than 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UsageError(f"must be a number, not {value!r}.")
    if not (math.isfinite(value) and value > 0):
        raise UsageError(f"must be more than 0, not {value:g}.")
    return float(value)
