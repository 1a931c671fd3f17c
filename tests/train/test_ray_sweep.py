# SPDX-License-Identifier: BSD-2-Clause
"""Sweeps over Ray: every run is done, and a killed worker costs none."""

from __future__ import annotations

from pathlib import Path

import pytest
import ray
from support import killed

from mltcp_tools.clusters import sweep as sweeping
from mltcp_tools.clusters.sweep import Task, perform, sweep
from mltcp_tools.clusters.topology import regular
from mltcp_tools.clusters.workload import Generated, Workload, generate


def some() -> list[Task]:
    """More than there are workers."""
    topology = regular(servers=4, gpus=4, leaf=2, oversubscription=4.0, rate_bps=10e9)
    draws = Generated(jobs=4, hours=0.01, gpus={4: 1.0, 8: 1.0})
    workloads = [Workload(topology, generate(topology, draws, n), seed=n) for n in range(1, 5)]
    return [Task(each, name, "reno") for each in workloads for name in ("fifo", "elastic")]


def test_a_sweep_over_ray_survives_a_killed_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KILLED_FLAG", str(tmp_path / "flag"))
    monkeypatch.setattr(sweeping, "perform", killed.killed_once)
    # Workers can't import the tests' modules.
    ray.cloudpickle.register_pickle_by_value(killed)
    todo = some()
    expected = [perform(task).summary() for task in todo]
    found = dict(sweep(todo, "local"))
    assert [found[place].summary() for place in range(len(todo))] == expected
    assert (tmp_path / "flag").exists()
