# SPDX-License-Identifier: BSD-2-Clause
"""Two questions about one's own cluster, and all findings about it.

The questions: what would better placement, and what faster uplinks save?

Each is the same jobs, starting when they did, with one thing changed. Savings are a share of the
GPU hours that jobs hold, in mean over draws of what is random. An answer that isn't larger than its
interval and than the model's error can't be told from no effect. That no change is possible, as on
one switch, is another sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mltcp_tools.clusters.intervals import interval
from mltcp_tools.clusters.outcome import Outcome
from mltcp_tools.clusters.own.conflicts import Conflict
from mltcp_tools.clusters.own.facts import Facts, facts
from mltcp_tools.clusters.own.replay import (
    BASE,
    Compared,
    by_start,
    error,
    plausible,
    shortened,
    simulated,
    trust,
)
from mltcp_tools.clusters.rules import UNTOLD
from mltcp_tools.clusters.topology import Topology
from mltcp_tools.clusters.workload import SEEDS, Workload, servers_of
from mltcp_tools.lab.planning.network import LinkGraph


@dataclass(frozen=True)
class Answer:
    """saved: share of GPU hours, None where nothing says what would change. half: of its 95 %
    interval over draws, and over computing times that fit the log as well. untold: what is too
    small to be told from no effect. most: share that arithmetic on the log leaves to be saved.
    tested: predictions were held against jobs of this cluster. reason: why there is no effect, or
    no answer."""

    question: str
    change: str
    saved: float | None
    half: float
    untold: float
    most: float
    tested: bool
    reason: str = ""

    @property
    def told(self) -> bool:
        """Return whether there is an effect."""
        return self.saved is not None and abs(self.saved) > max(self.half, self.untold)

    @property
    def verdict(self) -> str:
        """In words."""
        if self.reason:
            return self.reason
        if not self.told or self.saved is None:
            limit = min(self.most, max(self.half, self.untold))
            return f"can't tell: below {max(0.01, limit):.0%}"
        found = "saves" if self.saved > 0 else "costs"
        return found if self.tested else f"{found}, if the model is right"

    def to_json(self) -> dict[str, Any]:
        """As a document."""
        return vars(self) | {"told": self.told, "verdict": self.verdict}


@dataclass(frozen=True)
class Findings:
    """All that `mltcp cluster ask` says. inputs: sentences on where the jobs are from. notes: on
    what nobody said, and what no prediction was held against. compared: predicted and observed
    jobs."""

    inputs: tuple[str, ...]
    facts: Facts
    notes: list[str]
    compared: list[Compared]
    answers: list[Answer]
    conflicts: list[Conflict]

    def to_json(self) -> dict[str, Any]:
        """As a document."""
        return {
            "schema": "mltcp-cluster-ask/5",
            "inputs": self.inputs,
            "facts": vars(self.facts) | {"sentences": self.facts.sentences()},
            "notes": self.notes,
            "error": error(self.compared),
            "trust": [vars(each) for each in trust(self.compared)],
            "answers": [each.to_json() for each in self.answers],
            "conflicts": [each.to_json() for each in self.conflicts],
        }


def ask(
    workload: Workload,
    error: float | None,
    draws: int = 5,
    said: Callable[[str], None] = lambda question: None,
) -> list[Answer]:
    """All answers. error: of predictions on this cluster, None where nothing says."""
    ways = [_Way(each, draws) for each in plausible(workload)]
    known = facts(workload)
    runs: Sequence[tuple[str, str, float, str, Callable[[_Way], list[float]]]] = (
        (
            "Place jobs better?",
            "below one leaf, or on idle uplinks",
            known.several_network,
            _unmoved(workload),
            lambda way: way.saved("fifo"),
        ),
        (
            "More uplinks?",
            "twice the rate between switches",
            known.leaves_network,
            _unwidened(workload),
            lambda way: way.saved(way.stays, factor=2.0),
        ),
    )
    answers = []
    for question, change, most, reason, saved in runs:
        said(question)
        mean, half = (None, 0.0) if reason.startswith("not known") else (0.0, 0.0)
        if not reason:
            found = [interval(saved(way)) for way in ways]
            mean = found[0][0]
            half = max(abs(other - mean) + own for other, own in found)
        answers.append(
            Answer(
                question,
                change,
                mean,
                half,
                max(UNTOLD, error or 0.0),
                most,
                error is not None,
                reason,
            )
        )
    return answers


class _Way:
    """A workload as it is now, drawn several times."""

    def __init__(self, workload: Workload, draws: int) -> None:
        self.stays = "replay" if any(job.placement for job in workload.jobs) else "fifo"
        short = shortened(by_start(workload))
        self._drawn = [_seeded(short, draw) for draw in range(1, draws + 1)]
        ran = [simulated(each, self.stays, seed=n) for n, each in enumerate(self._drawn, 1)]
        self._held_s = [_held_s(each) for each in ran]

    def saved(self, policy: str, factor: float = 1.0) -> list[float]:
        """Of each draw the share of GPU hours, with uplinks `factor` times as fast."""
        return [
            1 - _held_s(simulated(_wider(each, factor), policy, BASE, n)) / held_s
            for n, (each, held_s) in enumerate(zip(self._drawn, self._held_s, strict=True), 1)
        ]


def _unmoved(workload: Workload) -> str:
    """Return why no job can send elsewhere; "" where one may."""
    gpus = workload.topology.gpus
    if all(servers_of(job, gpus) == 1 or not job.model.size for job in workload.jobs):
        return "no effect: no job sends between servers"
    return ""


def _unwidened(workload: Workload) -> str:
    """Return why uplinks have no effect, or none that is known; "" where they may have one."""
    if reason := _unmoved(workload):
        return reason
    if "topology" in workload.assumed:
        return "not known: nothing says which switches there are; import with --network"
    if "uplink" in workload.assumed:
        return "not known: nothing says how fast uplinks are; import with --uplink"
    leaf_of = workload.topology.leaf_of
    if workload.topology.leaves == 1 or all(
        job.placement and len({leaf_of(server) for server, _ in job.placement}) == 1
        for job in workload.jobs
    ):
        return "no effect: no job sends between switches"
    return ""


def widened(topology: Topology, factor: float) -> Topology:
    """The same cluster with links between switches that are so many times as fast."""
    ends = {server.name for server in topology.machines}
    links = {
        name: link
        if link.ends is None or ends & set(link.ends)
        else replace(link, rate_bps=link.rate_bps * factor)
        for name, link in topology.network.links.items()
    }
    return replace(topology, network=LinkGraph(links))


def _wider(workload: Workload, factor: float) -> Workload:
    if factor == 1:
        return workload
    return replace(workload, topology=widened(workload.topology, factor))


def _seeded(workload: Workload, draw: int) -> Workload:
    jobs = [replace(job, seed=draw * SEEDS + number) for number, job in enumerate(workload.jobs)]
    return replace(workload, topology=replace(workload.topology, seed=draw), jobs=tuple(jobs))


def _held_s(outcome: Outcome) -> float:
    """GPU seconds that jobs held."""
    return sum(job.running_s * job.gpus for job in outcome.jobs)
