# SPDX-License-Identifier: BSD-2-Clause
"""The affinity graph: jobs on one side, the links they share on the other (Cassini, section 4.3).

Where it has no loop, the best shifts of each link can be combined into one shift per job (Theorem 1
there).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import networkx as nx

from mltcp_tools.lab.planning.topology import Cluster, Placement

JOB, LINK = "job", "link"

Members: TypeAlias = dict[str, dict[str, int]]
"""Link -> job on it -> crossings, in the order of the file."""


def shared_links(cluster: Cluster, placement: Placement) -> Members:
    """The links with two or more jobs."""
    members: Members = {name: {} for name in cluster.links}
    for job, crossed in placement.crossings.items():
        for link, times in crossed.items():
            members[link][job] = times
    return {link: jobs for link, jobs in members.items() if len(jobs) > 1}


def deciding_links(cluster: Cluster, members: Members) -> list[str]:
    """The links that decide on shifts.

    Left out is a link whose jobs all share another one that is no wider: where their demand fits
    there, it fits here. A path over several links then makes no loop.
    """
    on: dict[str, list[str]] = {}
    for link, jobs in members.items():
        for job in jobs:
            on.setdefault(job, []).append(link)
    order = {link: number for number, link in enumerate(members)}

    def covers(other: str, link: str) -> bool:
        wide, narrow = cluster.links[link].rate_bps, cluster.links[other].rate_bps
        if other == link or narrow > wide:
            return False
        if any(members[other].get(job, 0) < times for job, times in members[link].items()):
            return False
        equal = narrow == wide and members[other] == members[link]
        return not equal or order[other] < order[link]

    found = []
    for link, jobs in members.items():
        rarest = min(jobs, key=lambda job: len(on[job]))
        if not any(covers(other, link) for other in on[rarest]):
            found.append(link)
    return found


def affinity_graph(members: Members, links: Sequence[str]) -> nx.Graph:
    """Nodes (JOB, name) and (LINK, name), an edge where the job is on the link."""
    graph: nx.Graph = nx.Graph()
    for link in links:
        graph.add_edges_from(((JOB, job), (LINK, link)) for job in members[link])
    return graph


def components(graph: nx.Graph) -> Iterator[nx.Graph]:
    """The parts of the graph that share no job and no link."""
    for nodes in nx.connected_components(graph):
        yield graph.subgraph(nodes)


def traverse(
    graph: nx.Graph,
    weights: Mapping[str, Mapping[str, int]],
    periods: Mapping[str, int],
) -> dict[str, int]:
    """One shift per job of a component from the shifts of each link, in steps.

    weights: link -> job -> shift that the link wants. periods: job -> steps per iteration. Breadth
    first from the first job, which isn't shifted: t_k = t_j - w_jl + w_kl, within an iteration of
    k. Where the graph has a loop, the links met first are the ones obeyed.
    """
    first = next(job for kind, job in graph if kind == JOB)
    shifts = {first: 0}
    waiting = deque([first])
    while waiting:
        job = waiting.popleft()
        for _, link in graph[JOB, job]:
            own = weights[link]
            for _, other in graph[LINK, link]:
                if other not in shifts:
                    shifts[other] = (shifts[job] - own[job] + own[other]) % periods[other]
                    waiting.append(other)
    return shifts
