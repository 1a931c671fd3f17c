# SPDX-License-Identifier: BSD-2-Clause
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
from itertools import pairwise

from mltcp_tools.base.document import Section, read_section
from mltcp_tools.lab.planning.network import LinkGraph, NetworkLink, read_links, read_names
from mltcp_tools.lab.planning.profile import Profile, require_jobs
from mltcp_tools.lab.planning.reading import job_name, read_jobs


@dataclass(frozen=True)
class Placement:
    """The places where jobs run.

    crossings: job -> link -> how often the job's traffic crosses it in one direction. rings: jobs
    that cross each of their links as often one way as the other.
    """

    name: str
    crossings: Mapping[str, Mapping[str, int]]
    rings: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Cluster:
    """Links and profiles by name, and candidate placements."""

    links: Mapping[str, NetworkLink]
    profiles: Mapping[str, Profile]
    placements: tuple[Placement, ...]


def parse_cluster(text: str, file: str) -> Cluster:
    """A cluster from YAML `text`; a UsageError names file, line and field."""
    top = read_section(text, file, ["links", "jobs", "placements"])
    links = read_links(top)
    profiles = {profile.name: profile for profile in require_jobs(read_jobs(top))}
    network = LinkGraph(links)
    placements: dict[str, Placement] = {}
    for section in top.sections("placements", ["name", "jobs"]):
        name = section.get("name", job_name)
        if name in placements:
            raise section.error(f"another placement is called {name!r} already.", "name")
        placements[name] = _read_placement(name, section, profiles, links, network)
    _require_use(top, links, placements)
    return Cluster(links, profiles, tuple(placements.values()))


def _read_placement(
    name: str,
    section: Section,
    profiles: Mapping[str, Profile],
    links: Mapping[str, NetworkLink],
    network: LinkGraph,
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
            named = where.get("links", read_names)
            for link in named:
                if link not in links:
                    raise where.error(f"there is no link {link!r}.", "links")
            crossings[job] = dict.fromkeys(named, 1)
            continue
        with where.complaints("servers"):
            crossings[job] = _ring(network, where.get("servers", read_names))
        rings.add(job)
    return Placement(name, crossings, frozenset(rings))


def _require_use(
    top: Section, links: Mapping[str, NetworkLink], placements: Mapping[str, Placement]
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


def _ring(network: LinkGraph, servers: list[str]) -> dict[str, int]:
    """Link -> crossings in its busier direction of a ring over the servers, in their order."""
    crossed: Counter[int] = Counter()
    for source, target in pairwise([*servers, servers[0]]):
        crossed.update(network.path(source, target))
    return {
        name: most
        for place, name in enumerate(network.links)
        if (most := max(crossed[2 * place], crossed[2 * place + 1]))
    }
