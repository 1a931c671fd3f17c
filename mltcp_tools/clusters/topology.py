"""Clusters: servers with GPUs and NICs, and the links between them.

    cluster:
      kind: leaf-spine          # or fat-tree, rails
      servers: 128
      gpus: 8                   # of a server
      nics: 1                   # of a server
      rate: 100gbit             # of a NIC
      leaf: 16                  # servers below a leaf; a fat tree's half arity
      oversubscription: 2       # what NICs may ask of a leaf, over what its uplinks carry
      spines: 4
      queue: 1MB

Every link is two, one for each direction. In a leaf-spine network each leaf has one uplink to each
spine. In a network of rails, NIC n of every server of a pod hangs on the pod's leaf n. In a fat
tree, `leaf` servers are below each edge switch, and `leaf` edge and aggregation switches make a
pod (Al-Fares et al., SIGCOMM 2008); with oversubscription, links above the edge are slower by it.
ECMP: which of the equal paths a connection takes follows from a hash of job, ends and NIC.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Literal, get_args

from mltcp_tools.document import Section
from mltcp_tools.errors import UsageError
from mltcp_tools.units import parse_bytes, parse_rate

Kind = Literal["leaf-spine", "fat-tree", "rails"]
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
]
MAX_SERVERS = 100_000
FRAME = 1514
PAYLOAD = 1448 / 1514
"""Share of a link's rate that is payload over Ethernet, IPv4 and TCP with timestamps."""


@dataclass(frozen=True)
class Topology:
    """A cluster. rate_bps: of a NIC, bit/s on the wire; queue: bytes that a port holds; rtt_s: of
    the empty network, seconds."""

    kind: Kind = "leaf-spine"
    servers: int = 16
    gpus: int = 8
    nics: int = 1
    rate_bps: float = 100e9
    leaf: int = 8
    oversubscription: float = 1.0
    spines: int = 2
    queue: int = 1_000_000
    rtt_s: float = 20e-6
    _paths: dict[tuple[int, int, int, int], tuple[int, ...]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"the kind is one of {', '.join(KINDS)}, not {self.kind!r}.")
        for name, most in (
            ("servers", MAX_SERVERS),
            ("gpus", 1024),
            ("nics", 64),
            ("leaf", MAX_SERVERS),
            ("spines", 1024),
        ):
            value = getattr(self, name)
            if not 1 <= value <= most:
                raise UsageError(f"{name} must be 1 to {most}, not {value}.")
        for name in ("rate_bps", "oversubscription", "queue", "rtt_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise UsageError(f"{name.partition('_')[0]} must be more than 0, not {value:g}.")

    @property
    def total_gpus(self) -> int:
        """GPUs of all servers."""
        return self.servers * self.gpus

    @property
    def leaves(self) -> int:
        """Groups of servers below one switch, or of rails below one pod."""
        return math.ceil(self.servers / self.leaf)

    def leaf_of(self, server: int) -> int:
        """The group that the server belongs to."""
        return server // self.leaf

    @cached_property
    def names(self) -> list[str]:
        """Of the links, in the order of their numbers."""
        return list(self._numbers)

    @cached_property
    def rates_bps(self) -> list[float]:
        """Payload in bit/s that each link carries."""
        return [rate * PAYLOAD for rate in self._numbers.values()]

    @cached_property
    def packets(self) -> list[float]:
        """How many packets each link holds when full, in its queue and on the way."""
        return [(self.queue + rate * self.rtt_s / 8) / FRAME for rate in self._numbers.values()]

    @cached_property
    def _numbers(self) -> dict[str, float]:
        links: dict[str, float] = {}
        for server in range(self.servers):
            for nic in range(self.nics):
                links[f"s{server}.{nic}>"] = self.rate_bps
                links[f">s{server}.{nic}"] = self.rate_bps
        for name, rate in self._uplinks():
            links[f"{name}>"] = rate
            links[f">{name}"] = rate
        return links

    def _uplinks(self) -> Iterable[tuple[str, float]]:
        """Names and rates of the links above the NICs, named after their lower end."""
        below = min(self.leaf, self.servers)
        if self.kind == "fat-tree":
            rate = self.rate_bps * self.nics / self.oversubscription
            for edge in range(self.leaves):
                for up in range(self.leaf):
                    yield f"edge{edge}.{up}", rate
            for pod in range(math.ceil(self.leaves / self.leaf)):
                for aggregation in range(self.leaf):
                    for up in range(self.leaf):
                        yield f"agg{pod}.{aggregation}.{up}", rate
            return
        switches = self.leaves * (self.nics if self.kind == "rails" else 1)
        ports = below * (1 if self.kind == "rails" else self.nics)
        rate = ports * self.rate_bps / self.oversubscription / self.spines
        for switch in range(switches):
            for spine in range(self.spines):
                yield f"leaf{switch}.{spine}", rate

    @cached_property
    def _index(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self._numbers)}

    def path(self, source: int, target: int, nic: int, job: int) -> tuple[int, ...]:
        """Numbers of the links from one server to another by their NICs `nic`."""
        if source == target:
            return ()
        key = (source, target, nic, job)
        found = self._paths.get(key)
        if found is None:
            if len(self._paths) > 200_000:
                self._paths.clear()
            found = tuple(self._index[name] for name in self._route(source, target, nic, job))
            self._paths[key] = found
        return found

    def _route(self, source: int, target: int, nic: int, job: int) -> list[str]:
        first, last = f"s{source}.{nic}>", f">s{target}.{nic}"
        a, b = self.leaf_of(source), self.leaf_of(target)
        if a == b:
            return [first, last]
        draw = _hash(source, target, nic, job)
        if self.kind == "fat-tree":
            up = draw % self.leaf
            pod_a, pod_b = a // self.leaf, b // self.leaf
            if pod_a == pod_b:
                return [first, f"edge{a}.{up}>", f">edge{b}.{up}", last]
            core = draw // self.leaf % self.leaf
            middle = [f"agg{pod_a}.{up}.{core}>", f">agg{pod_b}.{up}.{core}"]
            return [first, f"edge{a}.{up}>", *middle, f">edge{b}.{up}", last]
        if self.kind == "rails":
            a, b = a * self.nics + nic, b * self.nics + nic
        spine = draw % self.spines
        return [first, f"leaf{a}.{spine}>", f">leaf{b}.{spine}", last]

    def tree(self, servers: Iterable[int], nic: int, job: int) -> dict[int, float]:
        """Links that a sum of all servers' data takes to a switch above them and back, once each.

        Where there is more than one leaf, that is one of the spines, or of a fat tree's cores.
        """
        ordered = sorted(servers)
        leaves = {self.leaf_of(each): each for each in reversed(ordered)}
        links: dict[int, float] = {}
        for server in ordered:
            links[self._index[f"s{server}.{nic}>"]] = 1.0
            links[self._index[f">s{server}.{nic}"]] = 1.0
        if len(leaves) == 1:
            return links
        root = _hash(0, 0, nic, job)
        for leaf in sorted(leaves):
            for name in self._to_root(leaf, nic, root, {each // self.leaf for each in leaves}):
                links[self._index[f"{name}>"]] = 1.0
                links[self._index[f">{name}"]] = 1.0
        return links

    def _to_root(self, leaf: int, nic: int, root: int, pods: set[int]) -> list[str]:
        if self.kind == "fat-tree":
            up, core = root % self.leaf, root // self.leaf % self.leaf
            above = [f"agg{leaf // self.leaf}.{up}.{core}"] if len(pods) > 1 else []
            return [f"edge{leaf}.{up}", *above]
        switch = leaf * self.nics + nic if self.kind == "rails" else leaf
        return [f"leaf{switch}.{root % self.spines}"]


def _hash(*values: int) -> int:
    data = b"".join(value.to_bytes(8, "little", signed=True) for value in values)
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")


def read_topology(section: Section) -> Topology:
    """The topology that a section `cluster` describes."""
    given: dict[str, object] = {}
    for key in section:
        if key == "kind":
            given[key] = section.get(key, str)
        elif key == "rate":
            given["rate_bps"] = float(section.get(key, parse_rate))
        elif key == "queue":
            given[key] = section.get(key, parse_bytes)
        elif key == "rtt":
            given["rtt_s"] = section.get(key, positive)
        elif key == "oversubscription":
            given[key] = section.get(key, positive)
        else:
            given[key] = section.get(key, whole)
    try:
        return Topology(**given)  # type: ignore[arg-type]
    except UsageError as error:
        raise section.error(str(error)) from None


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
