# SPDX-License-Identifier: BSD-2-Clause
"""Trees over the hosts: the cheapest by given costs, and those a heuristic proposes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mltcp_tools.collectives.adaptive.links import Floats, Links

Parents = tuple[int, ...]
"""The parent of each host; the root's own is itself."""


@dataclass(frozen=True)
class Tree:
    """One way to all-reduce: up along `gather` to the root, and down along `spread`.

    gather: each host sends its partial sum to its parent. spread: each receives from its parent.
    """

    root: int
    gather: Parents
    spread: Parents

    def gathers(self) -> Floats:
        """Partial sums that each link i to j carries, n x n."""
        used = np.zeros((len(self.gather),) * 2)
        for host, parent in enumerate(self.gather):
            used[host, parent] += host != self.root
        return used

    def uses(self) -> Floats:
        """Uses of each link i to j, n x n."""
        used = self.gathers()
        for host, parent in enumerate(self.spread):
            used[parent, host] += host != self.root
        return used

    def depth(self) -> int:
        """Most hops that a value takes, up and down."""
        return sum(
            max(_hops(parents, host, self.root) for host in range(len(parents)))
            for parents in (self.gather, self.spread)
        )


def _hops(parents: Parents, host: int, root: int) -> int:
    hops = 0
    while host != root:
        host, hops = parents[host], hops + 1
    return hops


def cheapest_spread(costs: Floats, root: int) -> Parents:
    """The tree from `root` to all hosts with the least sum of costs[parent, host].

    (Chu and Liu 1965, Edmonds 1967: take each host's cheapest parent; contract a circle and
    go on.) costs: n x n, not below 0.
    """
    count = len(costs)
    weights = costs.copy()
    np.fill_diagonal(weights, np.inf)
    weights[:, root] = np.inf
    parents = weights.argmin(axis=0)
    parents[root] = root
    found_circle = _circle(parents, root)
    if found_circle is None:
        return tuple(int(each) for each in parents)
    circle = np.array(found_circle)
    inside = np.zeros(count, dtype=bool)
    inside[circle] = True
    outside = np.flatnonzero(~inside)
    # The circle becomes the last host; entering it at v saves what v's parent within costs.
    size = len(outside) + 1
    small = np.full((size, size), np.inf)
    small[:-1, :-1] = weights[np.ix_(outside, outside)]
    entering = weights[np.ix_(outside, circle)] - weights[parents[circle], circle]
    entry, leaving = entering.argmin(axis=1), weights[np.ix_(circle, outside)]
    small[:-1, -1] = entering.min(axis=1)
    small[-1, :-1] = leaving.min(axis=0)
    found = cheapest_spread(small, int(np.flatnonzero(outside == root)[0]))
    result = parents.copy()
    for place, host in enumerate(outside):
        parent = found[place]
        if host != root:
            result[host] = (
                circle[leaving[:, place].argmin()] if parent == size - 1 else outside[parent]
            )
    result[circle[entry[found[-1]]]] = outside[found[-1]]
    return tuple(int(each) for each in result)


def _circle(parents: np.ndarray[tuple[int], np.dtype[np.int64]], root: int) -> list[int] | None:
    """Hosts of one circle of parents, None without any."""
    done = {root}
    for start in range(len(parents)):
        path: list[int] = []
        host = start
        while host not in done and host not in path:
            path.append(host)
            host = int(parents[host])
        if host in path:
            return path[path.index(host) :]
        done.update(path)
    return None


def cheapest_tree(costs: Floats, root: int) -> Tree:
    """The tree with that root of the least cost, up and down."""
    return Tree(root, cheapest_spread(costs.T.copy(), root), cheapest_spread(costs, root))


def heuristic_trees(links: Links) -> list[Tree]:
    """For each root: all hosts at once, a chain by falling rate, and a binary heap of these.

    (AdapCC's default is the last, with hosts ordered by rate times latency.)
    """
    order = [int(host) for host in np.argsort(-np.minimum(links.up, links.down), kind="stable")]
    trees = []
    for root in range(links.hosts):
        line = [root, *(host for host in order if host != root)]
        for step in (lambda place: 0, lambda place: place - 1, lambda place: (place - 1) // 2):
            parents = [0] * links.hosts
            for place, host in enumerate(line):
                parents[host] = line[step(place)] if place else host
            trees.append(Tree(root, tuple(parents), tuple(parents)))
    return trees
