# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp cluster`: what it prints, and what bad input gets."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.mistakes import refused

from mltcp_tools.base.errors import MltcpError
from mltcp_tools.cli.main import main
from mltcp_tools.clusters.fapes.compare import VARIANTS
from mltcp_tools.clusters.outcome import Outcome
from mltcp_tools.clusters.sweep import Task, perform

WORKLOAD = """
cluster: {servers: 4, gpus: 4, rate: 10gbit, leaf: 2}
generate: {jobs: 6, hours: 0.02, gpus: {4: 1, 8: 1}}
"""


def test_run_prints_every_policy_and_treatment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "w.yaml"
    file.write_text(WORKLOAD)
    options = ["--policy", "fifo,elastic", "--treatment", "reno,mltcp", "--json"]
    assert main(["cluster", "run", str(file), *options]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [(run["policy"], run["treatment"]) for run in runs] == [
        ("fifo", "reno"),
        ("fifo", "mltcp"),
        ("elastic", "reno"),
        ("elastic", "mltcp"),
    ]
    assert all(run["jobs"] == 6 for run in runs)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--policy", "lifo"], "there is no policy 'lifo'"),
        (["--treatment", "magic"], "there is no treatment 'magic'"),
        (["--workload", "sia:/nowhere"], "can't be read"),
    ],
)
def test_bad_input_gets_one_sentence_and_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    file = tmp_path / "w.yaml"
    file.write_text("cluster: {servers: 4}\n" if "--workload" in options else WORKLOAD)
    assert said in refused(capsys, "cluster", "run", str(file), *options)


def test_loans_are_compared_without_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, jobs, requests = tmp_path / "c.yaml", tmp_path / "jobs.csv", tmp_path / "requests.csv"
    file.write_text("cluster: {servers: 8, gpus: 4, leaf: 4}\n")
    lines = [f"j{n},{n * 900},cifar10,4,512" for n in range(4)]
    jobs.write_text("\n".join(["name,time,application,num_replicas,batch_size", *lines]))
    lines = [f"2023-11-16 18:{n // 60:02}:{n % 60:02}.0000000,100,20" for n in range(300)]
    requests.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *lines]))
    options = ["--workload", f"sia:{jobs}", "--requests", f"azure:{requests}", "--json"]
    assert main(["cluster", "fapes", str(file), *options]) == 0
    (compared,) = json.loads(capsys.readouterr().out)["traces"].values()
    found = {variant["variant"]: variant for variant in compared["draws"][0]}
    assert set(found) == set(VARIANTS)
    # What inference doesn't need is lent to training.
    assert found["fapes"]["completion_mean_s"] <= found["static-elastic"]["completion_mean_s"]


def test_runs_are_told_as_soon_as_they_are_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "w.yaml"
    file.write_text(WORKLOAD)

    def stopped(tasks: Sequence[Task], address: str | None) -> Iterator[tuple[int, Outcome]]:
        yield 1, perform(tasks[1])
        raise MltcpError("a worker died")

    monkeypatch.setattr("mltcp_tools.clusters.sweep.sweep", stopped)
    assert main(["cluster", "run", str(file), "--policy", "fifo,elastic"]) == 1
    assert "1 of 2: elastic, mltcp, seed 1: completion" in capsys.readouterr().err
