"""Trained agents against every rival on workloads that were held out."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np

from mltcp_tools.clusters.marl.policy import Marl
from mltcp_tools.clusters.marl.train import Curriculum, load, save, train
from mltcp_tools.clusters.policies import policy
from mltcp_tools.clusters.rules import treatment
from mltcp_tools.clusters.simulate import simulate_cluster
from mltcp_tools.clusters.workload import Workload

matplotlib.use("Agg")
import matplotlib.pyplot as plt

HELD_OUT = 1_000_000
RIVALS = ("fifo", "srtf", "las", "themis", "packed", "network", "cassini")


@dataclass(frozen=True)
class Result:
    """Mean completion times in seconds on the held-out workloads: by training seed, by rival."""

    learned_s: dict[int, float]
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


def scale_s(workload: Workload) -> float:
    """A typical job's length, as the environment has it."""
    return float(np.mean([job.iterations * job.model.compute_s for job in workload.jobs]))


def train_and_evaluate(
    seeds: Sequence[int],
    rounds: int,
    folder: Path,
    held_out: int = 10,
    curriculum: Curriculum | None = None,
    said: Callable[[int, int, float], None] = lambda seed, number, ratio: None,
) -> Result:
    """Train agents with every seed, unless their checkpoint is there, and compare all.

    said: hears seed, round and completion time over that of the shortest job first.
    """
    import torch

    curriculum = curriculum or Curriculum()
    folder.mkdir(parents=True, exist_ok=True)
    learned: dict[int, float] = {}
    curves: dict[int, list[float]] = {}
    workloads = [curriculum.workload(HELD_OUT + n) for n in range(held_out)]
    for seed in seeds:
        file = folder / f"agents-{seed}-{rounds}.pt"
        if not file.is_file():
            save(
                *train(
                    seed,
                    rounds,
                    curriculum=curriculum,
                    said=lambda number, ratio, seed=seed: said(seed, number, ratio),  # type: ignore[misc]
                ),
                file,
            )
        agents, _ = load(file)
        curves[seed] = torch.load(file, weights_only=True)["curve"]
        times = [_completion_s(each, Marl(agents, scale_s(each)), curriculum) for each in workloads]
        learned[seed] = float(np.mean(times))
    rivals = {
        name: float(np.mean([_completion_s(each, policy(name), curriculum) for each in workloads]))
        for name in RIVALS
    }
    return Result(learned, rivals, curves)


def _completion_s(workload: Workload, chosen: object, curriculum: Curriculum) -> float:
    how = treatment(curriculum.treatment)
    outcome = simulate_cluster(workload, chosen, how)  # type: ignore[arg-type]
    return float(outcome.summary()["completion_mean_s"])


def draw_curves(result: Result) -> bytes:
    """Learning curves as PNG."""
    figure, axis = plt.subplots(figsize=(6, 3.2))
    for seed, curve in result.curves.items():
        axis.plot(range(1, len(curve) + 1), curve, label=f"seed {seed}", linewidth=1)
    axis.axhline(1.0, color="black", linewidth=0.5)
    axis.set_xlabel("round")
    axis.set_ylabel("completion time over srtf's")
    axis.legend(fontsize=8)
    buffer = io.BytesIO()
    figure.tight_layout()
    figure.savefig(buffer, format="png", dpi=110)
    plt.close(figure)
    return buffer.getvalue()
