"""Which trees carry how much of a tensor, so that the busiest link is done as early as can be.

The shares of all trees there are is a linear program with far too many columns; those that matter
are generated: the prices of the links (its dual) say which tree would help most, and the cheapest
tree by prices is found exactly. Where more trees come out than are wanted, a mixed-integer program
chooses among them. HiGHS solves both.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import highspy
import numpy as np

from mltcp_tools.collectives.adaptive.links import Floats, Links, bound_s
from mltcp_tools.collectives.adaptive.trees import Tree, cheapest_tree, heuristic_trees
from mltcp_tools.errors import MltcpError

_ROUNDS = 200
_ENOUGH = 1e-3
_LEAST_SHARE = 1e-4


@dataclass(frozen=True)
class Strategy:
    """trees and what share of the tensor each carries. seconds: that the busiest link takes.

    bound_s: that no all-reduce beats.
    """

    trees: tuple[Tree, ...]
    shares: tuple[float, ...]
    seconds: float
    bound_s: float


def find_strategy(
    links: Links, size: int, *, most_trees: int | None = None, time_limit_s: float = 10.0
) -> Strategy:
    """The shares for a tensor of `size` bytes. most_trees: None for two per host."""
    if links.hosts < 2:
        root = (0,) * links.hosts
        return Strategy((Tree(0, root, root),), (1.0,), 0.0, 0.0)
    until = time.monotonic() + time_limit_s
    trees = heuristic_trees(links)
    seen = set(trees)
    for _ in range(_ROUNDS):
        seconds, shares, prices = _shares(links, size, trees)
        if time.monotonic() > until:
            break
        found = [cheapest_tree(prices, root) for root in range(links.hosts)]
        costs = [float((prices * tree.uses()).sum()) for tree in found]
        new = [tree for tree in found if tree not in seen]
        if min(costs) >= seconds * (1 - _ENOUGH) or not new:
            break  # no tree helps: this is the best of all shares
        trees += new
        seen.update(new)
    most = most_trees or 2 * links.hosts
    chosen = [number for number, share in enumerate(shares) if share > _LEAST_SHARE]
    if len(chosen) > most:
        left = max(0.1, until - time.monotonic())
        chosen = _choose(links, size, [trees[n] for n in chosen], chosen, most, left)
    trees = [trees[number] for number in chosen]
    seconds, shares, _ = _shares(links, size, trees)
    return Strategy(tuple(trees), tuple(shares), seconds, bound_s(links, size))


def _loads(links: Links, size: int, tree: Tree) -> Floats:
    """Seconds that each link of a pair, each uplink and each downlink takes for a whole tensor."""
    uses = tree.uses() * size * 8
    rates = np.where(np.eye(links.hosts, dtype=bool), 1.0, links.rates)
    pairs = (uses / rates).ravel()
    return np.concatenate([pairs, uses.sum(axis=1) / links.up, uses.sum(axis=0) / links.down])


def _model(links: Links, size: int, trees: Sequence[Tree]) -> highspy.Highs:
    """Columns: seconds, then each tree's share. Rows: each link is done by then; shares are 1."""
    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    highs.silent()
    rows = links.hosts**2 + 2 * links.hosts
    inf = highspy.kHighsInf
    for _ in range(rows):
        highs.addRow(-inf, 0.0, 0, [], [])
    highs.addRow(1.0, 1.0, 0, [], [])
    highs.addCol(1.0, 0.0, inf, rows, np.arange(rows), np.full(rows, -1.0))
    for tree in trees:
        loads = _loads(links, size, tree)
        used = np.flatnonzero(loads)
        places, values = np.r_[used, rows], np.r_[loads[used], 1.0]
        highs.addCol(0.0, 0.0, inf, len(places), places, values)
    return highs


def _shares(links: Links, size: int, trees: Sequence[Tree]) -> tuple[float, list[float], Floats]:
    """The seconds, the share of each tree, and the price of a tensor over each pair."""
    highs = _model(links, size, trees)
    highs.run()
    if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        raise MltcpError("HiGHS found no shares for the links; a rate must be missing or 0.")
    solution = highs.getSolution()
    duals = np.maximum(0.0, -np.asarray(solution.row_dual)[:-1])
    count = links.hosts
    pairs = duals[: count**2].reshape(count, count)
    up, down = duals[count**2 : count**2 + count], duals[count**2 + count :]
    rates = np.where(np.eye(count, dtype=bool), 1.0, links.rates)
    prices = size * 8 * (pairs / rates + (up / links.up)[:, None] + (down / links.down)[None, :])
    values = np.asarray(solution.col_value)
    return float(values[0]), [float(each) for each in values[1:]], prices


def _choose(
    links: Links, size: int, trees: Sequence[Tree], numbers: list[int], most: int, limit_s: float
) -> list[int]:
    """At most `most` of the trees, by a 0-1 variable for each; theirs of `numbers`."""
    highs = _model(links, size, trees)
    count = len(trees)
    first = count + 1
    for place in range(count):
        highs.addCol(0.0, 0.0, 1.0, 0, [], [])
        highs.changeColIntegrality(first + place, highspy.HighsVarType.kInteger)
        # A tree that isn't taken carries nothing.
        columns = np.array([1 + place, first + place])
        highs.addRow(-highspy.kHighsInf, 0.0, 2, columns, np.array([1.0, -1.0]))
    highs.addRow(0.0, float(most), count, np.arange(first, first + count), np.ones(count))
    highs.setOptionValue("time_limit", limit_s)
    highs.setOptionValue("mip_rel_gap", 0.005)
    highs.run()
    values = np.asarray(highs.getSolution().col_value)
    if values.size:
        taken = [place for place in range(count) if values[1 + place] > _LEAST_SHARE]
        if taken and len(taken) <= most:
            return [numbers[place] for place in taken]
    return numbers[:most]
