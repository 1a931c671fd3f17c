"""Trained agents against every rival on workloads that were held out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.ticker import MaxNLocator

from mltcp_tools.clusters.intervals import interval
from mltcp_tools.clusters.marl.env import scale_s
from mltcp_tools.clusters.marl.network import Agents
from mltcp_tools.clusters.marl.policy import Marl
from mltcp_tools.clusters.marl.train import Curriculum, Trained, load, save, train
from mltcp_tools.clusters.policies import policy
from mltcp_tools.clusters.policies.oracle import WAYS, Oracle
from mltcp_tools.clusters.policies.sharing import Matched
from mltcp_tools.clusters.rules import Treatment
from mltcp_tools.clusters.simulate import ClusterSimulator
from mltcp_tools.clusters.topology import regular
from mltcp_tools.clusters.view import Policy
from mltcp_tools.clusters.workload import Workload
from mltcp_tools.figures import png, subplots

HELD_OUT, FRESH = 1_000_000, 100
"""The seed of draw 0, and the first draw that took no part in tuning the training either."""
RIVALS = (
    "fifo",
    "srtf",
    "las",
    "themis",
    "packed",
    "network",
    "cassini",
    "marginal",
    "elastic",
    "shared",
)
"""Whom the agents are to beat: nobody of these knows how pairs slow each other down."""
LARGE = regular(servers=16, gpus=4, leaf=4, oversubscription=4.0, spines=2, rate_bps=25e9)
"""The cluster of held-out workloads, larger than the one that agents are trained on."""
JOBS = 800


@dataclass(frozen=True)
class Result:
    """Mean completion times in seconds on held-out workloads, of each: by training seed, with
    agents that weren't trained, by rival, and greedily by the true pairs and the predicted ones."""

    held_out: str
    learned: dict[int, list[float]]
    untrained: list[float]
    rivals: dict[str, list[float]]
    greedy: dict[str, list[float]] = field(default_factory=dict)

    @property
    def learned_s(self) -> dict[int, float]:
        """Over all workloads, by training seed."""
        return {seed: float(np.mean(each)) for seed, each in self.learned.items()}

    @property
    def untrained_s(self) -> float:
        """Over all workloads."""
        return float(np.mean(self.untrained))

    @property
    def rivals_s(self) -> dict[str, float]:
        """Over all workloads, by rival."""
        return {name: float(np.mean(each)) for name, each in self.rivals.items()}

    @property
    def best(self) -> str:
        """The best rival."""
        return min(self.rivals_s, key=lambda name: self.rivals_s[name])

    def gain_over_seeds(self) -> tuple[float, float]:
        """Share below the best rival's completion time: mean over training seeds, and half of its
        95 % interval."""
        best_s = self.rivals_s[self.best]
        return interval([1 - each / best_s for each in self.learned_s.values()])

    def gain_over_workloads(self) -> tuple[float, float]:
        """The same, workload by workload: each with the seeds' mean against the best rival's."""
        learned = np.mean(list(self.learned.values()), axis=0)
        return interval((1 - learned / np.array(self.rivals[self.best])).tolist())

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        (mean, half), (each, each_half) = self.gain_over_seeds(), self.gain_over_workloads()
        return {
            "held_out": self.held_out,
            "workloads": len(self.untrained),
            "learned_s": self.learned_s,
            "untrained_s": self.untrained_s,
            "rivals_s": self.rivals_s,
            "greedy_s": {name: float(np.mean(each)) for name, each in self.greedy.items()},
            "best_rival": self.best,
            "gain": mean,
            "gain_half": None if half != half else half,
            "gain_by_workload": each,
            "gain_by_workload_half": None if each_half != each_half else each_half,
            "gain_untrained": 1 - self.untrained_s / self.rivals_s[self.best],
        }


def checkpoint(folder: Path, seed: int, rounds: int, curriculum: Curriculum) -> Path:
    """Return the folder of that training seed's agents; those of other pairs have another
    name.
    """
    return folder / f"agents-{seed}-{rounds}-{curriculum.pairs.digest}.pt"


def train_seeds(
    seeds: Sequence[int],
    rounds: int,
    folder: Path,
    curriculum: Curriculum,
    said: Callable[[int, int, float], None] = lambda seed, number, ratio: None,
) -> dict[int, Trained]:
    """Agents trained with every seed, unless their checkpoint is there.

    said: hears seed, round and completion time over that of `elastic`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for seed in seeds:
        file = checkpoint(folder, seed, rounds, curriculum)
        if not file.is_file():
            trained = train(
                seed,
                rounds,
                curriculum,
                said=lambda number, ratio, seed=seed: said(seed, number, ratio),  # type: ignore[misc]
            )
            save(trained, file)
        found[seed] = load(file, str(file))
    return found


def drawn(held_out: int, curriculum: Curriculum, first: int = FRESH) -> list[Workload]:
    """So many workloads on the LARGE cluster, from number `first` on, of seeds that training never
    uses."""
    large = replace(curriculum, topology=LARGE, jobs=JOBS)
    return [large.workload(HELD_OUT + first + n) for n in range(held_out)]


def evaluate(
    held_out: str,
    workloads: Sequence[Workload],
    trained: Mapping[int, Trained],
    how: Treatment,
    rivals: Sequence[str] = RIVALS,
    pace: float = 1.0,
) -> Result:
    """Trained and untrained agents, every rival and an oracle on the workloads; `trained` isn't
    empty. pace: by how much rivals' rounds are shorter than usual, as workloads are."""

    def means_s(policies: Callable[[Workload], Policy]) -> list[float]:
        outcomes = [ClusterSimulator(each, policies(each), how).run() for each in workloads]
        return [float(each.summary()["completion_mean_s"]) for each in outcomes]

    def marl_s(each: Trained) -> list[float]:
        return means_s(lambda workload: Marl(each.agents, each.known, scale_s(workload)))

    first = next(iter(trained.values()))
    predicted = first.known
    return Result(
        held_out,
        {seed: marl_s(each) for seed, each in trained.items()},
        marl_s(Trained(Agents(), first.known, [])),
        {
            name: means_s(lambda _, name=name: policy(name, pace=pace))  # type: ignore[misc]
            for name in rivals
        },
        {
            "greedy, true pairs": means_s(lambda _: policy("matched")),
            "greedy, predicted pairs": means_s(lambda _: Matched("predicted", predicted.slowdowns)),
            "oracle, in hindsight": np.min(
                [means_s(lambda _, way=way: Oracle(*way)) for way in WAYS],  # type: ignore[misc]
                axis=0,
            ).tolist(),
        },
    )


def draw_curves(curves: Mapping[int, Sequence[float]]) -> bytes:
    """Learning curves as PNG."""
    figure, axis = subplots(figsize=(6, 3.2))
    for seed, curve in curves.items():
        axis.plot(range(1, len(curve) + 1), curve, label=f"seed {seed}", linewidth=1)
    axis.set_xlabel("round")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_ylabel("completion time over the plan's")
    axis.legend(fontsize=8)
    return png(figure)
