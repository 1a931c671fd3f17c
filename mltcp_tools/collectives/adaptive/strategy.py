# SPDX-License-Identifier: BSD-2-Clause
"""Shares of a tensor for trees, so that the busiest link is done as early as can be.

The shares of all trees there are is a linear program with far too many columns; those that matter
are generated: the prices of the links (its dual) say which tree would help most, and the cheapest
tree by prices is found exactly. HiGHS solves it.

A mixed-integer program then chooses among the trees that take hardly longer together: few, as each
is one more connection on a link; flat, as each hop delays the last chunk; and such that the busiest
links have partial sums to carry from the start. A link that only carries sums waits for the first
of these, and what it waits is never made up.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np

from mltcp_tools.collectives.adaptive.links import Floats, Links
from mltcp_tools.collectives.adaptive.trees import Tree, cheapest_tree, heuristic_trees
from mltcp_tools.collectives.session import SessionError

_ROUNDS = 200
_ENOUGH = 1e-3
_LEAST_SHARE = 1e-4
_SLACK = 0.02
"""By which a plan of fewer trees may take longer."""
_FIND_S, _CHOOSE_S = 10.0, 2.0
_FROM_THE_START = 20.0
"""The number of trees it is worth that no link waits for sums to come down."""


@dataclass(frozen=True)
class Strategy:
    """trees and what share of the tensor each carries. seconds: that the busiest link takes."""

    trees: tuple[Tree, ...]
    shares: tuple[float, ...]
    seconds: float

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Strategy:
        """From what `asdict` made of one, and JSON of that."""
        trees = tuple(
            Tree(each["root"], tuple(each["gather"]), tuple(each["spread"]))
            for each in fields["trees"]
        )
        return cls(trees, tuple(fields["shares"]), fields["seconds"])


def find_strategy(links: Links, size: int) -> Strategy:
    """The shares for a tensor of `size` bytes, of at most two trees per host."""
    if links.hosts < 2:
        root = (0,) * links.hosts
        return Strategy((Tree(0, root, root),), (1.0,), 0.0)
    until = time.monotonic() + _FIND_S
    trees = heuristic_trees(links)
    seen = set(trees)
    for _ in range(_ROUNDS):
        seconds, shares, duals = _shares(links, size, trees)
        prices = _prices(links, size, duals)
        if time.monotonic() > until:
            break
        found = [cheapest_tree(prices, root) for root in range(links.hosts)]
        costs = [float((prices * tree.uses()).sum()) for tree in found]
        new = [tree for tree in found if tree not in seen]
        if min(costs) >= seconds * (1 - _ENOUGH) or not new:
            break  # no tree helps: this is the best of all shares
        trees += new
        seen.update(new)
    most = 2 * links.hosts
    used = [tree for tree, share in zip(trees, shares, strict=True) if share > _LEAST_SHARE]
    # A heuristic's tree that the optimum doesn't need may do instead of several that it does.
    candidates = list(dict.fromkeys(used + heuristic_trees(links)))
    left = min(_CHOOSE_S, max(0.1, until - time.monotonic()))
    chosen = _choose(links, size, candidates, seconds, most, left)
    if not chosen:
        chosen = dict(zip(used[:most], _shares(links, size, used[:most])[1], strict=True))
    seconds = float(_load(links, size, chosen).max())
    return Strategy(tuple(chosen), tuple(chosen.values()), seconds)


def _load(links: Links, size: int, shares: dict[Tree, float]) -> Floats:
    """Seconds that each link takes for what the trees carry of a tensor."""
    uses = sum((share * tree.uses() for tree, share in shares.items()), np.zeros(links.rates.shape))
    return _loads(links, size, uses)


def _loads(links: Links, size: int, uses: Floats) -> Floats:
    """Seconds that each link of a pair, each uplink and each downlink takes for a whole tensor."""
    bits = uses * size * 8
    rates = np.where(np.eye(links.hosts, dtype=bool), 1.0, links.rates)
    pairs = (bits / rates).ravel()
    return np.concatenate([pairs, bits.sum(axis=1) / links.up, bits.sum(axis=0) / links.down])


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
        loads = _loads(links, size, tree.uses())
        used = np.flatnonzero(loads)
        places, values = np.r_[used, rows], np.r_[loads[used], 1.0]
        highs.addCol(0.0, 0.0, inf, len(places), places, values)
    return highs


def _shares(links: Links, size: int, trees: Sequence[Tree]) -> tuple[float, list[float], Floats]:
    """The seconds, the share of each tree, and the duals of the links' loads."""
    highs = _model(links, size, trees)
    highs.run()
    if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        raise SessionError("HiGHS found no shares for the links; a rate must be missing or 0.")
    solution = highs.getSolution()
    duals = np.maximum(0.0, -np.asarray(solution.row_dual)[:-1])
    values = np.asarray(solution.col_value)
    return float(values[0]), [float(each) for each in values[1:]], duals


def _prices(links: Links, size: int, duals: Floats) -> Floats:
    """The price of a tensor over each pair in seconds, n x n."""
    count = links.hosts
    pairs = duals[: count**2].reshape(count, count)
    up, down = duals[count**2 : count**2 + count], duals[count**2 + count :]
    rates = np.where(np.eye(count, dtype=bool), 1.0, links.rates)
    whole = pairs / rates + (up / links.up)[:, None] + (down / links.down)[None, :]
    return np.asarray(size * 8 * whole)


def _choose(
    links: Links, size: int, trees: Sequence[Tree], seconds: float, most: int, limit_s: float
) -> dict[Tree, float]:
    """At most `most` of the trees and their shares, which take little longer than all; {} if none.

    Where `most` are too few for that, those that take the least time.
    """
    for soonest in (False, True):
        highs = _model(links, size, trees)
        count = len(trees)
        first = count + 1
        highs.changeColCost(0, float(soonest))
        if not soonest:
            highs.changeColBounds(0, 0.0, seconds * (1 + _SLACK))
        for place, tree in enumerate(trees):
            cost = 0.0 if soonest else 1.0 + tree.depth() / links.hosts
            highs.addCol(cost, 0.0, 1.0, 0, [], [])
            highs.changeColIntegrality(first + place, highspy.HighsVarType.kInteger)
            # A tree that isn't taken carries nothing.
            columns = np.array([1 + place, first + place])
            highs.addRow(-highspy.kHighsInf, 0.0, 2, columns, np.array([1.0, -1.0]))
        highs.addRow(0.0, float(most), count, np.arange(first, first + count), np.ones(count))
        if not soonest:
            _prefer_work_from_the_start(highs, links, size, trees, seconds)
        highs.setOptionValue("time_limit", limit_s)
        highs.setOptionValue("mip_rel_gap", 0.005 if soonest else 0.02)
        highs.run()
        values = np.asarray(highs.getSolution().col_value)
        shares = values[1:first] if values.size else ()
        taken = {t: share for t, share in zip(trees, shares, strict=False) if share > _LEAST_SHARE}
        if 0 < len(taken) <= most:
            whole = sum(taken.values())
            return {tree: float(share / whole) for tree, share in taken.items()}
    return {}


def _prefer_work_from_the_start(
    highs: highspy.Highs, links: Links, size: int, trees: Sequence[Tree], seconds: float
) -> None:
    """A column: the part of the time that every link has left beside what comes down, or half.

    Partial sums may go up from the start, and an idle link makes up for what came late.
    """
    column = highs.getNumCol()
    highs.addCol(-_FROM_THE_START, 0.0, 0.5, 0, [], [])
    down = [_loads(links, size, tree.uses() - tree.gathers()) / seconds for tree in trees]
    for parts in np.transpose(down):
        used = np.flatnonzero(parts)
        columns, values = np.r_[1 + used, column], np.r_[parts[used], 1.0]
        if used.size:
            highs.addRow(-highspy.kHighsInf, 1.0, len(columns), columns, values)
