"""Trained agents against every rival on workloads that were held out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from mltcp_tools.clusters.drawing import png
from mltcp_tools.clusters.marl.env import scale_s
from mltcp_tools.clusters.marl.features import Interference
from mltcp_tools.clusters.marl.network import Agents
from mltcp_tools.clusters.marl.policy import Marl
from mltcp_tools.clusters.marl.train import Curriculum, Trained, load, save, train
from mltcp_tools.clusters.policies import policy
from mltcp_tools.clusters.rules import Treatment
from mltcp_tools.clusters.simulate import ClusterSimulator
from mltcp_tools.clusters.view import Policy
from mltcp_tools.clusters.workload import Workload

matplotlib.use("Agg")
import matplotlib.pyplot as plt

HELD_OUT = 1_000_000
RIVALS = ("fifo", "srtf", "las", "themis", "packed", "network", "cassini", "goodput")


@dataclass(frozen=True)
class Result:
    """Mean completion times in seconds on held-out workloads: by training seed, with agents that
    weren't trained, and by rival. curves: each seed's learning curve."""

    held_out: str
    learned_s: dict[int, float]
    untrained_s: float
    rivals_s: dict[str, float]
    curves: dict[int, list[float]]

    @property
    def best(self) -> str:
        """The best rival."""
        return min(self.rivals_s, key=lambda name: self.rivals_s[name])

    def gains(self) -> tuple[float, float, float]:
        """Share below the best rival's completion time: mean over seeds and its 95 % interval, by
        Student's t."""
        gains = np.array([1 - each / self.rivals_s[self.best] for each in self.learned_s.values()])
        if len(gains) < 2:
            return float(gains.mean()), float("nan"), float("nan")
        t = {2: 12.71, 3: 4.303, 4: 3.182, 5: 2.776}.get(len(gains), 2.262)
        half = t * float(gains.std(ddof=1)) / np.sqrt(len(gains))
        return float(gains.mean()), float(gains.mean() - half), float(gains.mean() + half)

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        mean, low, high = self.gains()
        return {
            "held_out": self.held_out,
            "learned_s": self.learned_s,
            "untrained_s": self.untrained_s,
            "rivals_s": self.rivals_s,
            "best_rival": self.best,
            "gain": mean,
            "gain_low": None if low != low else low,
            "gain_high": None if high != high else high,
            "gain_untrained": 1 - self.untrained_s / self.rivals_s[self.best],
        }


def train_seeds(
    seeds: Sequence[int],
    rounds: int,
    folder: Path,
    curriculum: Curriculum | None = None,
    said: Callable[[int, int, float], None] = lambda seed, number, ratio: None,
) -> dict[int, Trained]:
    """Agents trained with every seed, unless their checkpoint is there.

    said: hears seed, round and completion time over that of `goodput`.
    """
    curriculum = curriculum or Curriculum()
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for seed in seeds:
        file = folder / f"agents-{seed}-{rounds}.pt"
        if not file.is_file():
            trained = train(
                seed,
                rounds,
                curriculum=curriculum,
                said=lambda number, ratio, seed=seed: said(seed, number, ratio),  # type: ignore[misc]
            )
            save(trained, file)
        found[seed] = load(file)
    return found


def drawn(held_out: int, curriculum: Curriculum | None = None) -> list[Workload]:
    """Workloads like those that agents are trained on, of seeds that training never uses."""
    curriculum = curriculum or Curriculum()
    return [curriculum.workload(HELD_OUT + n) for n in range(held_out)]


def evaluate(
    held_out: str,
    workloads: Sequence[Workload],
    trained: Mapping[int, Trained],
    how: Treatment,
    rivals: Sequence[str] = RIVALS,
) -> Result:
    """Trained and untrained agents and every rival on the workloads."""

    def mean_s(policies: Callable[[Workload], Policy]) -> float:
        outcomes = [ClusterSimulator(each, policies(each), how).run() for each in workloads]
        return float(np.mean([each.summary()["completion_mean_s"] for each in outcomes]))

    def marl_s(each: Trained) -> float:
        return mean_s(lambda workload: Marl(each.agents, each.interference, scale_s(workload)))

    untrained = Trained(Agents(), Interference(), [])
    return Result(
        held_out,
        {seed: marl_s(each) for seed, each in trained.items()},
        marl_s(untrained),
        {name: mean_s(lambda _, name=name: policy(name)) for name in rivals},  # type: ignore[misc]
        {seed: each.curve for seed, each in trained.items()},
    )


def draw_curves(curves: Mapping[int, Sequence[float]]) -> bytes:
    """Learning curves as PNG."""
    figure, axis = plt.subplots(figsize=(6, 3.2))
    for seed, curve in curves.items():
        axis.plot(range(1, len(curve) + 1), curve, label=f"seed {seed}", linewidth=1)
    axis.set_xlabel("round")
    axis.set_ylabel("completion time over goodput's")
    axis.legend(fontsize=8)
    return png(figure)
