# SPDX-License-Identifier: BSD-2-Clause
"""Two questions about one's own cluster: what would better placement, and what faster uplinks save?

Each is the same jobs, starting when they did, with one thing changed. Savings are a share of the
GPU hours that jobs hold, in mean over draws of what is random. An answer that isn't larger than its
interval and than the model's error can't be told from no effect. That no change is possible, as on
one switch, is another sentence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from mltcp_tools.clusters.outcome import interval
from mltcp_tools.clusters.own.facts import facts
from mltcp_tools.clusters.own.replay import by_start, plausible, shortened, simulated
from mltcp_tools.clusters.rules import UNTOLD
from mltcp_tools.clusters.topology import Topology
from mltcp_tools.clusters.workload import Workload, servers_of
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
    def error(self) -> float:
        """Return by how much `saved` may be off."""
        return max(self.half, self.untold)

    @property
    def told(self) -> bool:
        """Return whether there is an effect."""
        return self.saved is not None and abs(self.saved) > self.error

    @property
    def verdict(self) -> str:
        """In words."""
        if self.reason:
            return self.reason
        if not self.told or self.saved is None:
            return f"can't tell: below {max(0.01, min(self.most, self.error)):.0%}"
        found = "saves" if self.saved > 0 else "costs"
        return found if self.tested else f"{found}, if the model is right"

    def to_json(self) -> dict[str, Any]:
        """As a document."""
        return vars(self) | {"told": self.told, "verdict": self.verdict}


def ask(
    workload: Workload,
    error: float | None,
    draws: int = 5,
    said: Callable[[str], None] = lambda question: None,
) -> list[Answer]:
    """All answers. error: of predictions on this cluster, None where nothing says."""
    known = facts(workload)
    stays = "replay" if any(job.placement for job in workload.jobs) else "fifo"
    short = [shortened(by_start(each)) for each in plausible(workload)]
    ways = [[each.drawn(seed) for seed in range(1, draws + 1)] for each in short]
    held_s = [[_held_s(each, stays) for each in way] for way in ways]
    told, untold = error is not None, max(UNTOLD, error or 0.0)

    def answer(
        question: str, change: str, most: float, reason: str, factor: float, policy: str
    ) -> Answer:
        """The same jobs under the policy, with uplinks `factor` times as fast."""
        said(question)
        if reason:
            none = None if reason.startswith("not known") else 0.0
            return Answer(question, change, none, 0.0, untold, most, told, reason)
        found = []
        for way, before_s in zip(ways, held_s, strict=True):
            wide = [replace(each, topology=widened(each.topology, factor)) for each in way]
            after_s = [_held_s(each, policy) for each in wide]
            found.append(interval([1 - a / b for a, b in zip(after_s, before_s, strict=True)]))
        mean = found[0][0]
        half = max(abs(other - mean) + own for other, own in found)
        return Answer(question, change, mean, half, untold, most, told)

    return [
        answer(
            *("Place jobs better?", "below one leaf, or on idle uplinks"),
            *(known["several_network"], _unmoved(workload), 1.0, "fifo"),
        ),
        answer(
            *("More uplinks?", "twice the rate between switches"),
            *(known["leaves_network"], _unwidened(workload), 2.0, stays),
        ),
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
    leaves_of = workload.topology.leaves_of
    if workload.topology.leaves == 1 or all(
        len(leaves_of(dict(job.placement))) == 1 for job in workload.jobs
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


def _held_s(workload: Workload, policy: str) -> float:
    """GPU seconds that jobs hold under a policy."""
    return sum(job.running_s * job.gpus for job in simulated(workload, policy).jobs)
