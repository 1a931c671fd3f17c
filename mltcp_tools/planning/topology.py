"""Clusters as YAML: links, jobs, and candidate placements of the jobs.

    links:
      - {name: uplink-1, ends: [rack-1, spine], rate: 100gbit}
      - {name: server-1, ends: [a1, rack-1], rate: 50gbit}
    jobs:                                # as in a file of profiles
      - {name: vgg, period: 255ms, phases: [{start: 114ms, duration: 141ms, rate: 40gbit}]}
    placements:
      - name: packed
        jobs:
          vgg: {servers: [a1, a2]}       # a ring over these, by shortest paths
      - name: spread
        jobs:
          vgg: {links: [server-1, uplink-1]}

A link is the same in both directions, and demand is counted per direction: a ring crosses a link as
often one way as the other. On links that are named, every job's `phases` go one way, and what it
has `back` goes the other. Links without `ends` can be named by `links` only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import networkx as nx

from mltcp_tools.document import Section, read_section
from mltcp_tools.errors import UsageError
from mltcp_tools.planning.reading import job_name, positive_rate, read_jobs
from mltcp_tools.profiling.profile import Profile, require_jobs


@dataclass(frozen=True)
class Link:
    """A link of `rate_bps` bit/s in each direction between two nodes, if these are known."""

    name: str
    rate_bps: float
    ends: tuple[str, str] | None


@dataclass(frozen=True)
class Placement:
    """Where jobs run.

    crossings: job -> link -> how often the job's traffic crosses it in one direction. rings: jobs
    that cross each of their links as often one way as the other.
    """

    name: str
    crossings: Mapping[str, Mapping[str, int]]
    rings: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Cluster:
    """Links and profiles by name, and candidate placements."""

    links: Mapping[str, Link]
    profiles: Mapping[str, Profile]
    placements: tuple[Placement, ...]


def parse_cluster(text: str, file: str) -> Cluster:
    """A cluster from YAML `text`; a UsageError names file, line and field."""
    top = read_section(text, file, ["links", "jobs", "placements"])
    links = _read_links(top)
    profiles = {profile.name: profile for profile in require_jobs(read_jobs(top))}
    router = _Router(links)
    placements: dict[str, Placement] = {}
    for section in top.sections("placements", ["name", "jobs"]):
        name = section.get("name", job_name)
        if name in placements:
            raise section.error(f"another placement is called {name!r} already.", "name")
        placements[name] = _read_placement(name, section, profiles, links, router)
    _require_use(top, links, placements)
    return Cluster(links, profiles, tuple(placements.values()))


def _read_links(top: Section) -> dict[str, Link]:
    links: dict[str, Link] = {}
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
        links[name] = Link(name, positive_rate(section, "rate"), ends)
    return links


def _ends(value: object) -> tuple[str, str]:
    names = _names(value)
    if len(names) != 2 or names[0] == names[1]:
        raise UsageError("must be the names of two different nodes, like [rack-1, spine].")
    return names[0], names[1]


def _names(value: object) -> list[str]:
    if not isinstance(value, list) or not value or not all(_is_name(each) for each in value):
        raise UsageError("must be a list of names, like [a, b].")
    return [str(each) for each in value]


def _is_name(value: object) -> bool:
    return isinstance(value, (str, int)) and not isinstance(value, bool)


def _read_placement(
    name: str,
    section: Section,
    profiles: Mapping[str, Profile],
    links: Mapping[str, Link],
    router: _Router,
) -> Placement:
    jobs = section.section("jobs", None)
    if jobs is None:
        raise section.error("missing, and it has no default.", "jobs")
    crossings: dict[str, dict[str, int]] = {}
    rings: set[str] = set()
    for job in jobs:
        if job not in profiles:
            raise jobs.error(f"there is no job {job!r}.", job)
        where = jobs.section(job, ["servers", "links"])
        if where is None or len(set(where)) != 1:
            raise jobs.error("needs either servers or links.", job)
        if "links" in set(where):
            named = where.get("links", _names)
            for link in named:
                if link not in links:
                    raise where.error(f"there is no link {link!r}.", "links")
            crossings[job] = dict.fromkeys(named, 1)
            continue
        try:
            crossings[job] = router.ring(where.get("servers", _names))
        except UsageError as error:
            raise where.error(str(error), "servers") from None
        rings.add(job)
    return Placement(name, crossings, frozenset(rings))


def _require_use(
    top: Section, links: Mapping[str, Link], placements: Mapping[str, Placement]
) -> None:
    """Every link that no route can find must be named by a job, or a name was misspelt."""
    used = {
        link
        for placement in placements.values()
        for crossed in placement.crossings.values()
        for link in crossed
    }
    for link in links.values():
        if link.ends is None and link.name not in used:
            raise top.error(
                f"link {link.name} is named by no job; give it `ends`, or remove it.", "links"
            )


class _Router:
    """Shortest paths over the links that have ends."""

    def __init__(self, links: Mapping[str, Link]) -> None:
        self._graph = nx.Graph()
        for link in links.values():
            if link.ends is not None:
                self._graph.add_edge(*link.ends, link=link.name)
        self._path = lru_cache(maxsize=None)(self._find)

    def ring(self, servers: list[str]) -> dict[str, int]:
        """Link -> crossings in its busier direction of a ring over the servers, in their order."""
        directed: Counter[tuple[str, str]] = Counter()
        for source, target in pairwise([*servers, servers[0]]):
            directed.update(pairwise(self._path(source, target)))
        crossed: dict[str, int] = {}
        for (source, target), times in directed.items():
            name = self._graph.edges[source, target]["link"]
            crossed[name] = max(times, crossed.get(name, 0))
        return crossed

    def _find(self, source: str, target: str) -> tuple[str, ...]:
        for name in (source, target):
            if name not in self._graph:
                raise UsageError(f"no link has an end {name!r}.")
        try:
            return tuple(nx.shortest_path(self._graph, source, target))
        except nx.NetworkXNoPath:
            raise UsageError(f"no links lead from {source} to {target}.") from None
