# SPDX-License-Identifier: BSD-2-Clause
"""Links between nodes, and shortest paths over them.

    links:
      - {name: uplink-1, ends: [rack-1, spine], rate: 100gbit}
      - {name: server-1, ends: [a1, rack-1], rate: 50gbit}

A link has its rate in each direction. `NAME>` is the direction from its first end to its second,
`>NAME` the other. Where several paths are equally short, a number chooses among them, as equal-cost
routing does by a hash of the connection (RFC 2992).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import blake2b
from itertools import pairwise

import networkx as nx

from mltcp_tools.base.document import Section
from mltcp_tools.base.errors import UsageError
from mltcp_tools.lab.planning.reading import job_name, positive_rate

FRAME = 1514
"""Bytes of a full packet, its Ethernet header among them."""
PAYLOAD = 1448 / FRAME
"""Share of a link's rate that is payload: what IPv4 and TCP with timestamps leave of a packet."""


@dataclass(frozen=True)
class NetworkLink:
    """A link of `rate_bps` bit/s in each direction between two nodes, if these are known."""

    name: str
    rate_bps: float
    ends: tuple[str, str] | None


class LinkGraph:
    """Links by name; each direction has a number, those that leave first ends even ones."""

    def __init__(self, links: Mapping[str, NetworkLink]) -> None:
        self.links = links
        self._number = {}
        self._graph = nx.Graph()
        for place, link in enumerate(links.values()):
            if link.ends is not None:
                self._graph.add_edge(*link.ends)
                self._number[link.ends] = 2 * place
                self._number[link.ends[::-1]] = 2 * place + 1
        self._all_paths = lru_cache(maxsize=65_536)(self._find_all)
        self._distances = lru_cache(maxsize=4096)(self._find_distances)

    def __reduce__(self) -> tuple[type[LinkGraph], tuple[Mapping[str, NetworkLink]]]:
        """Pickle the links alone: what was found of paths can't be."""
        return LinkGraph, (self.links,)

    @cached_property
    def names(self) -> list[str]:
        """Of all directions, in the order of their numbers."""
        return [name for link in self.links for name in (f"{link}>", f">{link}")]

    @cached_property
    def rates_bps(self) -> list[float]:
        """Of all directions, bit/s."""
        return [link.rate_bps for link in self.links.values() for _ in (0, 1)]

    def neighbours(self, node: str) -> list[str]:
        """Nodes that a link joins to this one."""
        self._require(node)
        return list(self._graph[node])

    def path(self, source: str, target: str, draw: int = 0) -> tuple[int, ...]:
        """Numbers of the directions from one node to another; UsageError where no links lead."""
        paths = self._all_paths(source, target)
        return paths[draw % len(paths)]

    def _find_distances(self, node: str) -> dict[str, int]:
        self._require(node)
        return dict(nx.single_source_shortest_path_length(self._graph, node))

    def _find_all(self, source: str, target: str) -> tuple[tuple[int, ...], ...]:
        for name in (source, target):
            self._require(name)
        if source == target:
            return ((),)
        try:
            paths = sorted(nx.all_shortest_paths(self._graph, source, target))
        except nx.NetworkXNoPath:
            raise UsageError(f"no links lead from {source} to {target}.") from None
        return tuple(tuple(self._number[hop] for hop in pairwise(path)) for path in paths)

    def _require(self, node: str) -> None:
        if node not in self._graph:
            raise UsageError(f"no link has an end {node!r}.")


def draw(*values: int) -> int:
    """A number that depends on the values alone, and on each of their bits."""
    data = b"".join(value.to_bytes(8, "little", signed=True) for value in values)
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")


def read_links(top: Section) -> dict[str, NetworkLink]:
    """The links under `links`, by name."""
    links: dict[str, NetworkLink] = {}
    joined: dict[frozenset[str], str] = {}
    for section in top.sections("links", ["name", "ends", "rate"]):
        name = section.get("name", job_name)
        if name in links:
            raise section.error(f"another link is called {name!r} already.", "name")
        ends = section.get("ends", _ends, None)
        if ends is not None:
            other = joined.setdefault(frozenset(ends), name)
            if other != name:
                raise section.error(
                    f"{other} joins the same ends; make them one link of both rates.", "ends"
                )
        links[name] = NetworkLink(name, positive_rate(section, "rate"), ends)
    return links


def read_names(value: object) -> list[str]:
    """A list of names of nodes or links."""
    if not isinstance(value, list) or not value or not all(_is_name(each) for each in value):
        raise UsageError("must be a list of names, like [a, b].")
    return [str(each) for each in value]


def _ends(value: object) -> tuple[str, str]:
    names = read_names(value)
    if len(names) != 2 or names[0] == names[1]:
        raise UsageError("must be the names of two different nodes, like [rack-1, spine].")
    return names[0], names[1]


def _is_name(value: object) -> bool:
    return isinstance(value, (str, int)) and not isinstance(value, bool)
