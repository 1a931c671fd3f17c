"""Sweeps over Ray: every run is done, a killed worker costs none, a second call does the rest."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
import ray

from mltcp_tools.clusters import sweep as sweeping
from mltcp_tools.clusters.question import Size, tasks
from mltcp_tools.clusters.sweep import Task, perform, sweep

# More than Ray is given at a time, so that some are handed over later.
TODO = tasks(Size(servers=16, jobs=4, hours=0.01, seeds=1), ("packed", "network"), ("reno",))


def killed_once(task: Task) -> dict[str, object]:
    """As perform, but the first worker that gets a run of `network` is killed."""
    flag = Path(os.environ["KILLED_FLAG"])
    if task.policy == "network" and not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return perform(task)


def test_a_sweep_over_ray_survives_a_killed_worker_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KILLED_FLAG", str(tmp_path / "flag"))
    monkeypatch.setattr(sweeping, "perform", killed_once)
    # Workers can't import this file by its name.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    folder = tmp_path / "runs"
    expected = [perform(task) for task in TODO]
    assert sweep(TODO, folder, "ray") == expected
    assert (tmp_path / "flag").exists()
    missing = TODO[:3]
    for task in missing:
        (folder / f"{task.key}.json").unlink()
    counts: list[int] = []
    assert sweep(TODO, folder, "ray", said=counts.append) == expected
    assert counts == list(range(len(TODO) - len(missing), len(TODO) + 1))
