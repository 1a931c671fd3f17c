"""Real training processes that are killed or stopped: the others go on, or a sentence ends it."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest
from train.aggregated import WORLD, assert_alike, finish, star, start

SILENT_S = "3"  # a busy host lets every process answer in this time
WHOLE = list(range(WORLD))


def lines_until(process: Any, step: int) -> list[dict[str, Any]]:
    """What a rank prints up to a step."""
    lines: list[dict[str, Any]] = []
    while not lines or lines[-1]["step"] < step:
        lines.append(json.loads(process.stdout.readline()))
    return lines


def lines_until_members(process: Any, members: list[int]) -> list[dict[str, Any]]:
    """What a rank prints until those are the ranks that take part."""
    lines: list[dict[str, Any]] = []
    while not lines or lines[-1]["members"] != members:
        lines.append(json.loads(process.stdout.readline()))
    return lines


def test_a_killed_process_is_out_and_the_others_train_one_model() -> None:
    with star() as (net, _):
        ranks = start(net, "adaptive", SILENT_S=SILENT_S, PAUSE="0.05")
        begun = lines_until(ranks[0], 5)
        ranks[1].send_signal(signal.SIGKILL)
        lines, errors = finish(ranks)
    assert [process.returncode for process in ranks] == [0, -signal.SIGKILL, 0], errors
    lines[0] = begun + lines[0]
    assert_alike([lines[0], lines[2]])
    assert lines[0][0]["members"] == WHOLE
    assert lines[0][-2]["members"] == [0, 2]
    assert lines[0][-2]["loss"] < lines[0][0]["loss"]
    assert "rank 1 is out, the others go on" in errors[0]


@pytest.mark.full
def test_a_stopped_process_is_out_and_catches_up_when_it_runs_again() -> None:
    steps = 200
    with star() as (net, _):
        ranks = start(net, "adaptive", steps, SILENT_S=SILENT_S, PAUSE="0.05")
        begun = lines_until(ranks[0], 5)
        ranks[2].send_signal(signal.SIGSTOP)
        begun += lines_until_members(ranks[0], [0, 1])
        begun += lines_until(ranks[0], begun[-1]["step"] + 10)  # they go on without it
        ranks[2].send_signal(signal.SIGCONT)
        begun += lines_until_members(ranks[0], WHOLE)
        lines, errors = finish(ranks)
    assert not any(process.returncode for process in ranks), errors
    lines[0] = begun + lines[0]
    assert_alike(lines, steps)  # the one that was out has done every step, with the same sums
    assert "rank 2 is out, the others go on" in errors[0]
    assert "rank 2 has returned" in errors[0]


@pytest.mark.parametrize("algorithm", ["adaptive", "sparse", "gloo"])
def test_without_going_on_a_killed_process_ends_it_with_a_sentence(algorithm: str) -> None:
    with star() as (net, _):
        ranks = start(net, algorithm, PAUSE="0.05")
        lines_until(ranks[0], 5)
        ranks[1].send_signal(signal.SIGKILL)
        _, errors = finish(ranks)  # it doesn't wait for Gloo's patience, which is half an hour
    for rank in (0, 2):
        assert ranks[rank].returncode == 1
        assert "CollectiveError: A reduction " in errors[rank]


def test_rank_0_gone_ends_it_with_a_sentence_as_it_coordinates() -> None:
    with star() as (net, _):
        ranks = start(net, "adaptive", SILENT_S=SILENT_S, PAUSE="0.05")
        lines_until(ranks[1], 5)
        ranks[0].send_signal(signal.SIGKILL)
        _, errors = finish(ranks)
    for rank in (1, 2):
        assert ranks[rank].returncode == 1
        assert "Rank 0, which coordinates, is gone." in errors[rank]
