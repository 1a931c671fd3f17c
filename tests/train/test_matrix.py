"""The small matrix from an empty folder, as a user runs it, with the agents in it."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest
from support.pairs import write_pairs

from mltcp_tools.cli.main import main
from mltcp_tools.clusters.question import POLICIES, TREATMENTS, WORKLOADS


def test_the_small_matrix_trains_its_agents_and_goes_on_where_it_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "matrix"
    pairs = write_pairs(tmp_path / "pairs.json")
    words = ("cluster", "matrix", "--small", "--pairs", pairs, "-o", str(folder), "--json")
    assert main(words) == 0
    document = json.loads(capsys.readouterr().out)
    there = {(each["workload"], each["policy"], each["treatment"]) for each in document["cells"]}
    gone = {(each["workload"], each["policy"]) for each in document["missing"]}
    assert gone == {("fixed", "elastic"), ("fixed", "marl")}
    assert len(there) == (len(WORKLOADS) * len(POLICIES) - len(gone)) * len(TREATMENTS)
    agents = {"agents", "mltcp to agents", "agents to their plan"}
    assert agents <= {each["what"] for each in document["savings"]}
    # Without one of its results and of its plots, and with everything else as it was.
    one, *others = sorted((folder / "runs").iterdir())
    (checkpoint,) = (folder / "agents").iterdir()
    kept = {file: file.stat().st_mtime_ns for file in (checkpoint, *others)}
    one.unlink()
    (folder / "gains.png").unlink()
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out) == document
    assert {file: file.stat().st_mtime_ns for file in kept} == kept
    # A checkpoint that is given isn't trained, and decides the same; a pipe can be read once.
    again, pipe = tmp_path / "again", tmp_path / "agents.pt"
    os.mkfifo(pipe)
    content = checkpoint.read_bytes()
    threading.Thread(target=pipe.write_bytes, args=(content,), daemon=True).start()
    given = ("--agents", str(pipe), "-o", str(again))
    assert main((*words[:5], *given, "--json")) == 0
    assert json.loads(capsys.readouterr().out) == document
    assert not (again / "agents").exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("pairs.json", "is not a checkpoint; `mltcp cluster marl` makes those.\n"),
        ("none.pt", "can't be read: No such file or directory.\n"),
    ],
)
def test_no_checkpoint_gets_one_sentence_and_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, said: str
) -> None:
    pairs = write_pairs(tmp_path / "pairs.json")
    options = ("-o", str(tmp_path / "matrix"), "--pairs", pairs, "--agents", str(tmp_path / name))
    assert main(("cluster", "matrix", *options)) == 2
    assert capsys.readouterr().err.endswith(said)
