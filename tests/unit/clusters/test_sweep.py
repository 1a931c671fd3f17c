"""Sweeps go on where they stopped, and the matrix says what it should."""

from __future__ import annotations

import math
import os
import signal
from pathlib import Path

import pytest
from support.killed import killed_once

from mltcp_tools.clusters import sweep as sweeping
from mltcp_tools.clusters.models import Model, phases_of
from mltcp_tools.clusters.question import (
    Answer,
    Cell,
    Size,
    answers,
    cells,
    differences,
    tasks,
)
from mltcp_tools.clusters.question_plots import draw, render
from mltcp_tools.clusters.sweep import Task, perform, sweep
from mltcp_tools.clusters.topology import Topology
from mltcp_tools.clusters.turns import Sharing, plan_turns
from mltcp_tools.errors import MltcpError, UsageError

TINY = Size(servers=16, jobs=4, hours=0.01, seeds=1)


def some() -> list[Task]:
    """Runs of a tiny matrix."""
    return tasks(TINY, ("packed", "network"), ("reno", "mltcp"))


def test_a_sweep_gives_every_result_and_again_the_same(tmp_path: Path) -> None:
    todo = some()
    first = sweep(todo, tmp_path, workers=2)
    assert first == [perform(task) for task in todo]
    stamps = {file: file.stat().st_mtime_ns for file in tmp_path.iterdir()}
    assert sweep(todo, tmp_path) == first
    assert {file: file.stat().st_mtime_ns for file in tmp_path.iterdir()} == stamps


def test_a_sweep_does_only_what_is_missing(tmp_path: Path) -> None:
    todo = some()
    first = sweep(todo, tmp_path, workers=1)
    (tmp_path / f"{todo[3].key}.json").unlink()
    counts: list[int] = []
    assert sweep(todo, tmp_path, workers=1, said=counts.append) == first
    assert counts == [len(todo) - 1, len(todo)]


def test_a_sweep_survives_a_killed_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KILLED_FLAG", str(tmp_path / "flag"))
    monkeypatch.setattr(sweeping, "perform", killed_once)
    todo = some()
    found = sweep(todo, tmp_path / "runs", workers=2)
    assert (tmp_path / "flag").exists()
    assert [each["policy"] for each in found] == [task.policy for task in todo]


def always_killed(task: Task) -> dict[str, object]:
    """A task that no worker survives."""
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def test_a_run_that_kills_every_worker_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeping, "perform", always_killed)
    with pytest.raises(MltcpError, match="was under way 3 times when a worker died"):
        sweep(some()[:1], tmp_path, workers=1)


def test_an_unknown_executor_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'slurm' is not an executor"):
        sweep(some(), tmp_path, "slurm")


def test_answers_are_shares_of_the_excess() -> None:
    slow = {
        ("packed", "reno"): 1.4,
        ("packed", "mltcp"): 1.2,
        ("packed", "turns"): 1.3,
        ("cassini", "reno"): 1.2,
        ("cassini", "turns"): 1.0,
        ("cassini", "mltcp+turns"): 1.0,
        ("network", "mltcp"): 1.1,
    }
    found = [Cell("w", policy, how, 1.0, value, value) for (policy, how), value in slow.items()]
    (answer,) = answers(found)
    assert answer.mltcp == pytest.approx(0.5)
    assert answer.cassini == pytest.approx(1.0)
    assert answer.share == pytest.approx(0.5)
    assert math.isnan(Answer("w", 0.1, 0.5, 0, 0, 0.0, 0, 0).share)


def test_differences_are_between_runs_of_the_same_draw() -> None:
    """Draws that differ by far more than treatments do don't hide what treatments do."""
    columns = (("packed", "reno"), ("packed", "mltcp"), ("cassini", "reno"))
    runs = [
        {"workload": "w", "policy": policy, "treatment": how, "seed": seed, "slowdown": [slow]}
        for seed, base in ((1, 1.2), (2, 3.2), (3, 2.2))
        for (policy, how), slow in zip(
            (*columns, ("cassini", "mltcp"), ("cassini", "turns")),
            (base, base - 0.1, base, base - 0.01 * seed, base + 0.2),
            strict=True,
        )
    ]
    found = {each.what: each for each in differences(runs)}
    assert found["packed, mltcp"].mean == pytest.approx(-0.1)
    assert found["packed, mltcp"].half == pytest.approx(0.0, abs=1e-9)
    # The mean of 0.01, 0.02 and 0.03, and 4.303 times 0.01 over the root of 3.
    assert found["cassini, mltcp"].half == pytest.approx(4.303 * 0.01 / 3**0.5, rel=1e-3)
    assert found["cassini, turns"].mean == pytest.approx(0.2)


def test_the_small_matrix_has_its_table_and_plots() -> None:
    todo = tasks(TINY, ("packed", "network", "cassini"))
    results = [perform(task) for task in todo]
    found = cells(results)
    given = answers(found)
    text = render(found, given, differences(results))
    assert text.count("| packed |") == 4
    assert text.count("| packed, mltcp |") == 1
    images = draw(found, given, results)
    assert set(images) == {"slowdown", "gains", "jobs"}
    assert all(image.startswith(b"\x89PNG") for image in images.values())


def test_turns_are_planned_for_jobs_that_fit_and_for_no_others() -> None:
    topology = Topology(servers=8, gpus=1, leaf=2, oversubscription=2.0, spines=1, rate_bps=10e9)

    def sharing(compute_s: float) -> list[Sharing]:
        model = Model("m", compute_s, 50_000_000)
        return [Sharing(str(n), phases_of(model, topology, {n: 1, n + 2: 1}, n)) for n in range(2)]

    turns = plan_turns(topology, sharing(0.2))
    assert set(turns) == {"0", "1"}
    # A burst takes 0.084 s of 0.284; the other's is half a turn away.
    apart = abs(turns["0"].due_s - turns["1"].due_s) % turns["0"].turn_s
    assert 0.08 < apart < turns["0"].turn_s - 0.08
    assert plan_turns(topology, sharing(0.01)) == {}
