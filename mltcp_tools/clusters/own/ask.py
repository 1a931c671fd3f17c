"""Four questions about one's own cluster: what would other places, wider uplinks, another
congestion control, or sums in the network save?

Each is the same jobs, starting when they did, with one thing changed. Saved is a share of the GPU
hours that jobs hold, in mean over draws of what is random: paths and luck. An answer that isn't
larger than its interval and than the model's error is none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mltcp_tools.clusters.intervals import interval
from mltcp_tools.clusters.outcome import Outcome
from mltcp_tools.clusters.own.replay import by_start, shortened, simulated
from mltcp_tools.clusters.rules import UNTOLD, Treatment, treatment
from mltcp_tools.clusters.topology import Topology
from mltcp_tools.clusters.workload import SEEDS, Workload
from mltcp_tools.lab.planning.network import Network

BASES = ("reno", "mltcp")


@dataclass(frozen=True)
class Answer:
    """saved: share of GPU hours; half: of its 95 % interval over draws; untold: what is too small
    to be told from none; tested: predictions were held against jobs of this cluster."""

    question: str
    change: str
    saved: float
    half: float
    untold: float
    tested: bool

    @property
    def told(self) -> bool:
        """Return whether there is an effect."""
        return abs(self.saved) > max(self.half, self.untold)

    @property
    def verdict(self) -> str:
        """In words."""
        if not self.told:
            return "below what this model can tell"
        found = "saves" if self.saved > 0 else "costs"
        return found if self.tested else f"{found}, if the model is right"

    def to_json(self) -> dict[str, Any]:
        """As a document."""
        return vars(self) | {"told": self.told, "verdict": self.verdict}


def ask(
    workload: Workload,
    base: str,
    error: float | None,
    draws: int = 5,
    said: Callable[[str], None] = lambda question: None,
) -> list[Answer]:
    """All answers. base: what jobs have now, one of BASES. error: of predictions on this cluster,
    None where nothing says."""
    untold = max(UNTOLD, error or 0.0)
    stays = "replay" if any(job.placement for job in workload.jobs) else "packed"
    now = treatment(base)
    seeded = [_seeded(shortened(by_start(workload)), draw) for draw in range(1, draws + 1)]
    before = [_held_s(simulated(each, stays, now, draw)) for draw, each in enumerate(seeded, 1)]
    wider = [replace(each, topology=widened(each.topology, 2.0)) for each in seeded]
    (other,) = {*BASES} - {base}
    runs: Sequence[tuple[str, str, str, Treatment, Sequence[Workload]]] = (
        ("Place jobs better?", "near each other, on idle uplinks", "network", now, seeded),
        ("More uplinks?", "twice the rate between switches", stays, now, wider),
        (
            "Another congestion control?",
            f"{other} instead of {base}",
            stays,
            treatment(other),
            seeded,
        ),
        (
            "Sums in the network?",
            "switches add up gradients",
            stays,
            treatment("mltcp+aggregation" if base == "mltcp" else "aggregation"),
            seeded,
        ),
    )
    answers = []
    for question, change, policy, how, those in runs:
        said(question)
        saved = [
            1 - _held_s(simulated(each, policy, how, draw)) / held_s
            for draw, (each, held_s) in enumerate(zip(those, before, strict=True), 1)
        ]
        mean, half = interval(saved)
        answers.append(Answer(question, change, mean, half, untold, error is not None))
    return answers


def widened(topology: Topology, factor: float) -> Topology:
    """The same cluster with links between switches that are so many times as fast."""
    ends = {nic for server in topology.machines for nic in server.nics}
    links = {
        name: link
        if link.ends is None or ends & set(link.ends)
        else replace(link, rate_bps=link.rate_bps * factor)
        for name, link in topology.network.links.items()
    }
    return replace(topology, network=Network(links))


def _seeded(workload: Workload, draw: int) -> Workload:
    jobs = [replace(job, seed=draw * SEEDS + number) for number, job in enumerate(workload.jobs)]
    return replace(workload, topology=replace(workload.topology, seed=draw), jobs=tuple(jobs))


def _held_s(outcome: Outcome) -> float:
    """GPU seconds that jobs held."""
    return sum(job.running_s * job.gpus for job in outcome.jobs)
