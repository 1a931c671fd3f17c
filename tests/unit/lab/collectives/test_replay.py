"""Bandwidths of a trace as shares of a link's rate."""

from __future__ import annotations

from pathlib import Path

import pytest

from mltcp_tools.errors import UsageError
from mltcp_tools.lab.collectives.replay import LEAST_SHARE, Replay, read_shares


def test_the_median_is_the_links_rate_and_nothing_is_faster(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_text("[10, 0, 5, 76, 10]")
    assert read_shares(path) == [1, LEAST_SHARE, 0.5, 1, 1]
    assert read_shares(path, 2) == [0.5, 1, 1, 1, LEAST_SHARE]


def test_each_lasts_a_step_and_then_it_starts_again() -> None:
    replay = Replay([1, 0.5, 0.25], step_s=2)
    assert [replay.at(second) for second in range(8)] == [1, 1, 0.5, 0.5, 0.25, 0.25, 1, 1]


def test_every_link_starts_at_another_place_of_the_trace() -> None:
    replay = Replay([1, 0.5, 0.25, 0.1], step_s=2, every_link=True)
    assert replay.rates(0, [100, 100]) == [100, 25]
    assert replay.rates(2, [100, 100]) == [50, 10]
    assert Replay([1, 0.5], step_s=2).rates(2, [100, 100]) == [50, 100]


@pytest.mark.parametrize("text", ["", "{", "[]", "[0]", "[1, -1]", '["a"]', "3"])
def test_what_is_no_list_of_bandwidths_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace.txt"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"trace\.txt"):
        read_shares(path)


def test_a_start_behind_the_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_text("[1]")
    with pytest.raises(UsageError, match="none is number 1"):
        read_shares(path, 1)
