# SPDX-License-Identifier: BSD-2-Clause
"""Variants that something disturbed are run again, a bounded number of times."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from mltcp_tools.kernel.host.disturbance import DisturbanceWatch, Second
from mltcp_tools.lab.runs.recorder import LinkCounters, Tables
from mltcp_tools.lab.testbed.loop import Attempts


class Watched(DisturbanceWatch):
    """A watch that has seen what it is told."""

    def __init__(self, stolen: float) -> None:
        self.stolen = stolen

    def seconds(self, start: float, end: float) -> list[Second]:
        return [
            Second(start + n, 1.0, self.stolen, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0) for n in range(5)
        ]


def run(stolen: list[float], most: int, folder: Path) -> tuple[list[int], list[str], pd.DataFrame]:
    """Run a variant that is disturbed so each time: its attempts, what was said, and its rows."""
    tables, said = Tables(), []
    attempts = Attempts(most, tables, said.append)
    ran = []
    for attempt in attempts.of("cubic", 1):
        tables.add_variant("cubic", 1, attempt, 0.0, LinkCounters())
        attempts.judge(Watched(stolen[attempt - 1]), [(10.0, 15.0)])
        ran.append(attempt)
    kept = tables._rows["variants"]
    assert [row["order"] for row in kept] == ran[-1:]
    return ran, said, pd.DataFrame(tables._rows["disturbance"])


@pytest.mark.parametrize(
    ("stolen", "most", "ran"),
    [([0.0], 3, 1), ([0.3, 0.0], 3, 2), ([0.3, 0.3, 0.3], 3, 3), ([0.3], 1, 1)],
)
def test_until_one_is_undisturbed(stolen: list[float], most: int, ran: int, tmp_path: Path) -> None:
    attempts, said, rows = run(stolen, most, tmp_path)
    assert attempts == list(range(1, ran + 1))
    assert list(rows.groupby("attempt").size()) == [5] * ran
    assert len(said) == sum(each > 0 for each in stolen)
    for number, sentence in enumerate(said, 1):
        last = "can't be compared" if number == most else "is run again"
        assert sentence.startswith("cubic, repetition 1, was disturbed")
        assert last in sentence
        assert "the hypervisor took 30% of the CPUs' time" in sentence
