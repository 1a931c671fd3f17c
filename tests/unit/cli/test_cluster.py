"""`mltcp cluster`: what it prints, and what bad input gets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mltcp_tools.cli.main import main

WORKLOAD = """
cluster: {servers: 4, gpus: 4, rate: 10gbit, leaf: 2}
generate: {jobs: 6, hours: 0.02, gpus: {4: 1, 8: 1}}
"""


def test_run_prints_every_policy_and_treatment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "w.yaml"
    file.write_text(WORKLOAD)
    options = ["--policy", "fifo,srtf", "--treatment", "reno,mltcp", "--json"]
    assert main(["cluster", "run", str(file), *options]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [(run["policy"], run["treatment"]) for run in runs] == [
        ("fifo", "reno"),
        ("fifo", "mltcp"),
        ("srtf", "reno"),
        ("srtf", "mltcp"),
    ]
    assert all(run["jobs"] == 6 for run in runs)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--policy", "lifo"], "there is no policy 'lifo'"),
        (["--treatment", "magic"], "there is no treatment 'magic'"),
        (["--trace", "sia:/nowhere"], "can't be read"),
    ],
)
def test_bad_input_gets_one_sentence_and_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    file = tmp_path / "w.yaml"
    file.write_text("cluster: {servers: 4}\n" if "--trace" in options else WORKLOAD)
    assert main(["cluster", "run", str(file), *options]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
