"""Sweeps go on where they stopped, and the matrix says what it should."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from support.killed import killed_once
from support.mistakes import refused
from support.pairs import CALM, write_pairs

from mltcp_tools.cli.main import main
from mltcp_tools.clusters import question
from mltcp_tools.clusters import sweep as sweeping
from mltcp_tools.clusters.models import Model, phases_of
from mltcp_tools.clusters.pairs import read_pairs
from mltcp_tools.clusters.question import (
    TREATMENTS,
    WORKLOADS,
    Size,
    cells,
    differences,
    free,
    missing,
    savings,
    tasks,
)
from mltcp_tools.clusters.question_plots import draw, render
from mltcp_tools.clusters.sweep import Task, perform, sweep
from mltcp_tools.clusters.topology import regular
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


def test_savings_are_shares_of_the_completion_time_of_the_same_draw() -> None:
    columns = {
        ("packed", "reno"): (100.0, 1000.0, 10.0),
        ("packed", "mltcp"): (95.0, 960.0, 9.4),
        ("predicted", "reno"): (50.0, 600.0, 4.0),
        ("predicted", "mltcp"): (50.0, 540.0, 4.0),
        ("cassini", "turns"): (90.0, 1150.0, 10.5),
    }
    runs = [
        {
            "workload": "w",
            "policy": policy,
            "treatment": how,
            "seed": seed,
            "completion_s": [times[seed] - 2, times[seed] + 2],
        }
        for (policy, how), times in columns.items()
        for seed in range(3)
    ]
    saved = savings(runs)
    found = {each.what: each for each in saved}
    assert found["mltcp"].mean == pytest.approx(0.05)
    # The mean of 0.05, 0.04 and 0.06, and 4.303 times 0.01 over the root of 3.
    assert found["mltcp"].half == pytest.approx(4.303 * 0.01 / 3**0.5, rel=1e-3)
    assert found["sharing"].mean == pytest.approx(0.5)
    assert found["mltcp to sharing"].mean == pytest.approx(0.1 / 3)
    # Nothing is said of columns that aren't there.
    assert "elastic alone" not in found
    assert "sharing to elastic" not in found
    part = free(saved, "w", "sharing")
    assert part is not None
    assert part.mean == pytest.approx(0.1)
    assert part.half == pytest.approx(found["mltcp"].half / 0.5)  # type: ignore[operator]
    # Cassini's gain is lost in its interval, the plan's is missing.
    assert free(saved, "w", "cassini with turns") is None
    assert free(saved, "w", "elastic alone") is None
    shown = render([], (), saved)
    assert "| mltcp's part of what sharing saves | 10% ± 5 |" in shown
    # Smaller than the error of its rule is none, whatever the interval.
    assert "| mltcp | none (+5.0% ± 2.5) |" in shown
    one = savings([each for each in runs if each["seed"] == 0])
    assert "| mltcp | +5.0% (one draw) |" in render([], (), one)


def test_the_matrix_has_its_tables_and_plots_and_says_what_is_missing() -> None:
    policies = ("packed", "network", "cassini", "elastic", "predicted")
    results = [perform(task) for task in tasks(TINY, policies)]
    found = cells(results)
    saved = savings(results)
    text = render(found, differences(results), saved, missing(policies))
    # A row in the table of each workload, whether the cells can be or not.
    assert text.count("| packed |") == text.count("| predicted |") == len(WORKLOADS)
    assert text.count("| predicted |" + " - |" * len(TREATMENTS)) == len(WORKLOADS)
    assert f"- No predicted on {', '.join(WORKLOADS)}: nobody may share GPUs without" in text
    assert "- No elastic on fixed: its jobs keep the GPUs" in text
    assert "- No slow-downs of elastic: " in text
    assert text.count("| packed, mltcp |") == 1
    assert "| sharing |" not in text
    assert text.count("| elastic alone | - |") == 1
    images = draw(found, saved, results)
    assert set(images) == {"completion", "gains", "jobs"}
    assert all(image.startswith(b"\x89PNG") for image in images.values())


def test_what_can_be_of_the_matrix_has_tasks_and_the_rest_a_reason(tmp_path: Path) -> None:
    pairs = read_pairs(write_pairs(tmp_path / "pairs.json"))
    policies = ("packed", "shared", "predicted")
    todo = tasks(TINY, policies, ("reno",), pairs)
    there = {(task.workload, task.policy) for task in todo}
    gone = {(each.workload, each.policy) for each in missing(policies, pairs)}
    assert gone == {("fixed", "shared"), ("fixed", "predicted")}
    assert there | gone == {(workload, name) for workload in WORKLOADS for name in policies}
    assert not there & gone
    # Whom nobody measured nobody may share with: `light` has one of these two models only.
    few = read_pairs(write_pairs(tmp_path / "few.json", ("CycleGAN", "ResNet-18 (batch size 128)")))
    lone = {each.workload: each.reason for each in missing(("predicted",), few)}
    assert lone["heavy"] == lone["mixed"] == "no two of its models are among the measured pairs"
    assert "crowded" not in lone


def test_tasks_carry_pairs_where_they_are_needed(tmp_path: Path) -> None:
    pairs = read_pairs(write_pairs(tmp_path / "pairs.json"))
    todo = tasks(TINY, ("packed", "shared"), ("reno",), pairs)
    crowded = {t.policy: t for t in todo if t.workload == "crowded"}
    assert crowded["shared"].pairs == pairs
    assert crowded["packed"].pairs is None


def test_whatever_makes_a_result_is_in_the_name_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = read_pairs(write_pairs(tmp_path / "pairs.json"))
    task = tasks(TINY, ("shared",), ("reno",), pairs)[0]
    keys = {task.key, replace(task, pairs=read_pairs(write_pairs(tmp_path / "o.json", CALM))).key}
    assert len(keys) == 2
    # What another version of the code found isn't taken for this one's.
    monkeypatch.setattr(sweeping, "version", lambda command: "another")
    assert task.key not in keys


def test_runs_share_gpus_by_the_pairs_they_carry(tmp_path: Path) -> None:
    """The jobs are the same as those of runs that share none."""
    pairs = read_pairs(write_pairs(tmp_path / "pairs.json"))
    size = Size(servers=4, jobs=40, hours=0.1, seeds=1)
    todo = tasks(size, ("elastic", "shared", "matched"), ("reno",), pairs)
    alone, shared, matched = (perform(task) for task in todo if task.workload == "crowded")
    assert alone["jobs"] == shared["jobs"] == matched["jobs"] == 80
    assert shared["queueing_mean_s"] < alone["queueing_mean_s"]
    assert len({each["completion_mean_s"] for each in (alone, shared, matched)}) == 3
    assert min(task.pairs is None for task in todo if task.policy == "elastic")


def test_the_matrix_writes_what_it_finds_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(question, "SMALL", TINY)
    words = ("cluster", "matrix", "--small", "-o", str(tmp_path), "--json")
    words = (*words, "--workload", "fixed,light")
    assert main(words) == 0
    document = json.loads(capsys.readouterr().out)
    assert {each["workload"] for each in document["cells"]} == {"fixed", "light"}
    assert {each["workload"] for each in document["missing"]} == {"fixed", "light"}
    assert {each["policy"] for each in document["missing"]} == {"elastic", "predicted"}
    assert {each["slowdown"] for each in document["cells"] if each["policy"] == "elastic"} == {None}
    assert {each["half"] for each in document["savings"]} == {None}
    names = {each.name for each in tmp_path.iterdir()}
    assert names == {"runs", "matrix.md", "completion.png", "gains.png", "jobs.png"}
    one, *_ = (tmp_path / "runs").iterdir()
    one.unlink()
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out) == document


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--pairs", "gavel:/nowhere"], "can't be read"),
        (["--policy", "lifo"], "there is no policy 'lifo'"),
        (["--workload", "sparse"], "there is no workload 'sparse'"),
    ],
)
def test_a_matrix_that_cant_be_gets_one_sentence_and_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    assert said in refused(capsys, "cluster", "matrix", "-o", str(tmp_path), *options)
    assert not (tmp_path / "runs").exists()


def test_turns_are_planned_for_jobs_that_fit_and_for_no_others() -> None:
    topology = regular(servers=8, gpus=1, leaf=2, oversubscription=2.0, spines=1, rate_bps=10e9)

    def sharing(compute_s: float) -> list[Sharing]:
        model = Model("m", compute_s, 50_000_000)
        return [Sharing(str(n), phases_of(model, topology, {n: 1, n + 2: 1}, n)) for n in range(2)]

    turns = plan_turns(topology, sharing(0.2))
    assert set(turns) == {"0", "1"}
    # A burst takes 0.084 s of 0.284; the other's is half a turn away.
    apart = abs(turns["0"].due_s - turns["1"].due_s) % turns["0"].turn_s
    assert 0.08 < apart < turns["0"].turn_s - 0.08
    assert plan_turns(topology, sharing(0.01)) == {}
