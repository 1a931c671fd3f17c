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
    folder = tmp_path / "run"
    assert said in refused(capsys, "cluster", "run", str(file), "-o", str(folder), *options)
    assert not folder.exists()


def test_a_run_folder_has_jobs_and_summaries(tmp_path: Path) -> None:
    file, folder = tmp_path / "w.yaml", tmp_path / "run"
    file.write_text(WORKLOAD)
    assert main(["cluster", "run", str(file), "--policy", "fifo", "-o", str(folder)]) == 0
    names = {each.name for each in folder.iterdir()}
    assert names == {"jobs.csv", "summary.json", "workload.yaml", "environment.json"}
    assert json.loads((folder / "environment.json").read_text())["outcome"] == "finished"
    assert len((folder / "jobs.csv").read_text().splitlines()) == 7
    # A second run doesn't write over the first.
    assert main(["cluster", "run", str(file), "--policy", "fifo", "-o", str(folder)]) == 2


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


def test_an_interrupted_run_leaves_what_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, folder = tmp_path / "w.yaml", tmp_path / "run"
    file.write_text(WORKLOAD)

    def stopped(tasks: Sequence[Task], address: str | None) -> Iterator[tuple[int, Outcome]]:
        yield 1, perform(tasks[1])
        raise MltcpError("a worker died")

    monkeypatch.setattr("mltcp_tools.clusters.sweep.sweep", stopped)
    assert main(["cluster", "run", str(file), "--policy", "fifo,elastic", "-o", str(folder)]) == 1
    (run,) = json.loads((folder / "summary.json").read_text())["runs"]
    assert (run["policy"], run["jobs"]) == ("elastic", 6)
