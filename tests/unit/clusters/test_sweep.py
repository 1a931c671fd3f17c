# SPDX-License-Identifier: BSD-2-Clause
"""Sweeps give every outcome, wherever runs go."""

from __future__ import annotations

import os
import signal

import pytest

from mltcp_tools.base.errors import MltcpError, UsageError
from mltcp_tools.clusters import sweep as sweeping
from mltcp_tools.clusters.outcome import Outcome
from mltcp_tools.clusters.sweep import Task, perform, sweep
from mltcp_tools.clusters.topology import regular
from mltcp_tools.clusters.workload import Generated, Workload, generate

TOPOLOGY = regular(servers=4, gpus=4, leaf=2, oversubscription=4.0, rate_bps=10e9)


def some() -> list[Task]:
    """Runs of two tiny workloads."""
    draws = Generated(jobs=4, hours=0.01, gpus={4: 1.0, 8: 1.0})
    workloads = [Workload(TOPOLOGY, generate(TOPOLOGY, draws, n), seed=n) for n in (1, 2)]
    names = ("fifo", "cassini")
    return [
        Task(each, name, how) for each in workloads for name in names for how in ("reno", "mltcp")
    ]


def test_processes_give_what_one_process_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    todo = some()
    found = dict(sweep(todo))
    expected = [perform(task).summary() for task in todo]
    assert [found[place].summary() for place in range(len(todo))] == expected


def killed(task: Task) -> Outcome:
    """A task that no worker survives."""
    os.kill(os.getpid(), signal.SIGKILL)
    return perform(task)


def test_a_worker_that_dies_ends_the_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.setattr(sweeping, "perform", killed)
    with pytest.raises(MltcpError, match="a worker died; look for what kills it"):
        dict(sweep(some()))


def test_an_unknown_executor_is_refused() -> None:
    with pytest.raises(UsageError, match="'slurm' is not an executor"):
        dict(sweep(some(), "slurm"))
