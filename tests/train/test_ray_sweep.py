"""Sweeps over Ray: every run is done, a killed worker costs none, a second call does the rest."""

from __future__ import annotations

from pathlib import Path

import pytest
import ray
from support import killed
from support.pairs import write_pairs

from mltcp_tools.clusters import sweep as sweeping
from mltcp_tools.clusters.pairs import read_pairs
from mltcp_tools.clusters.question import Size, tasks
from mltcp_tools.clusters.sweep import Task, perform, sweep

TINY = Size(servers=16, jobs=4, hours=0.01, seeds=1)


def some(folder: Path) -> list[Task]:
    """More than Ray is given at a time, so that some are handed over later. Where GPUs are shared,
    runs take pairs along."""
    pairs = read_pairs(write_pairs(folder / "pairs.json"))
    return tasks(TINY, ("packed", "network", "predicted"), ("reno",), pairs)


def test_a_sweep_over_ray_survives_a_killed_worker_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KILLED_FLAG", str(tmp_path / "flag"))
    monkeypatch.setattr(sweeping, "perform", killed.killed_once)
    # Workers can't import the tests' modules.
    ray.cloudpickle.register_pickle_by_value(killed)
    folder = tmp_path / "runs"
    todo = some(tmp_path)
    expected = [perform(task) for task in todo]
    (tmp_path / "pairs.json").unlink()
    assert sweep(todo, folder, "ray") == expected
    assert (tmp_path / "flag").exists()
    missing = todo[:3]
    for task in missing:
        (folder / f"{task.key}.json").unlink()
    counts: list[int] = []
    assert sweep(todo, folder, "ray", said=counts.append) == expected
    assert counts == list(range(len(todo) - len(missing), len(todo) + 1))
