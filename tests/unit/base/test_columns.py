# SPDX-License-Identifier: BSD-2-Clause
"""Tables: every column where there is room, fewer where there isn't, colours only where wanted."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import click
import pytest

from mltcp_tools.base.columns import Cell, Column, render
from mltcp_tools.cli import connections, flows, jobs, watch
from mltcp_tools.cli.text import styled

COLUMNS = (
    Column("JOB", left=True),
    Column("TIME"),
    Column("SOURCE", left=True, drop=2),
    Column("CHANGE", drop=1),
)
ROWS = [
    ("bert", "500 ms", "hooks", Cell("-3.0%", "good")),
    ("a-job-with-a-long-name", "1.2 s", "learned", Cell("+44.0%", "bad")),
]


def test_columns_align() -> None:
    head, first, second = render(COLUMNS, ROWS).splitlines()
    assert head == "JOB                       TIME  SOURCE   CHANGE"
    assert first == "bert                    500 ms  hooks     -3.0%"
    assert second == "a-job-with-a-long-name   1.2 s  learned  +44.0%"


@pytest.mark.parametrize(
    ("width", "titles"),
    [
        (47, ["JOB", "TIME", "SOURCE", "CHANGE"]),
        (46, ["JOB", "TIME", "CHANGE"]),
        (30, ["JOB", "TIME"]),
    ],
)
def test_narrow_terminals_get_fewer_columns(width: int, titles: list[str]) -> None:
    lines = render(COLUMNS, ROWS, width).splitlines()
    assert lines[0].split() == titles
    assert max(map(len, lines)) <= width


def test_where_nothing_more_can_go_names_are_cut() -> None:
    assert render(COLUMNS, ROWS, 16).splitlines()[2] == "a-job-wi…  1.2 s"


@pytest.mark.parametrize(
    "columns", [flows._COLUMNS, jobs._COLUMNS, watch._COLUMNS, connections._COLUMNS]
)
def test_every_table_of_live_jobs_fits_a_terminal_of_80(columns: tuple[Column, ...]) -> None:
    typical = {"LOCAL": 21, "PEER": 21, "JOB": 12, "WHY": 60, "KIND": 12, "STATE": 11}
    row = ["x" * typical.get(column.title, max(6, len(column.title))) for column in columns]
    lines = render(columns, [row], 80).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split()[0] in ("JOB", "FD", "ID")


def test_colours_mean_something_and_take_no_room() -> None:
    coloured = render(COLUMNS, ROWS, None, styled)
    assert "\x1b[32m-3.0%\x1b[0m" in coloured
    assert "\x1b[31m+44.0%\x1b[0m" in coloured
    assert click.unstyle(coloured) == render(COLUMNS, ROWS)


def on_a_terminal(**environment: str) -> str:
    """Return what `mltcp doctor` prints on a terminal."""
    ours, theirs = pty.openpty()
    known = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    with subprocess.Popen(
        [sys.executable, "-m", "mltcp_tools.cli.main", "doctor"],
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env=known | environment,
    ):
        os.close(theirs)
        shown = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            shown += part
    os.close(ours)
    return shown.decode()


def test_no_color_is_honoured() -> None:
    assert "\x1b[" in on_a_terminal()
    assert "\x1b[" not in on_a_terminal(NO_COLOR="1")
