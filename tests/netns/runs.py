# SPDX-License-Identifier: BSD-2-Clause
"""A small experiment for tests of the testbed, its command and tables, and the id of a run."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import pandas as pd

from mltcp_tools.base.run_tables import COLUMNS
from mltcp_tools.lab.testbed.leftovers import LOCKS

EXPERIMENT = """\
name: small
link: {rate: 100mbit, queue: 30kB}
jobs:
  - {name: job, count: 2, bytes: 100kB, compute: 20ms, jitter: 10%, start: random}
  - {name: other, bytes: 60kB, compute: 30ms, flows: 2, bursts: 2, direction: DIRECTION}
variants:
  VARIANTS
iterations: 9
repetitions: 2
alone: {iterations: 3}
"""
"""Of three jobs; VARIANTS and DIRECTION are to be replaced."""

CUBIC_RENO = "cubic: {cc: cubic}\n  reno: {cc: reno}"


def run_id(pid: int) -> str:
    """The id of the run that process `pid` is, once it has one; "" before."""
    for path in LOCKS.glob("*.lock"):
        with contextlib.suppress(FileNotFoundError):
            if path.read_text().strip() == str(pid):
                return path.stem
    return ""


def write(folder: Path, variants: str, direction: str = "send", text: str = EXPERIMENT) -> Path:
    """The experiment with these variants, in a file."""
    path = folder / "small.yaml"
    path.write_text(text.replace("VARIANTS", variants).replace("DIRECTION", direction))
    return path


def table(folder: Path, name: str) -> pd.DataFrame:
    """A table of a run folder, which has all of its columns."""
    frame = pd.read_csv(folder / f"{name}.csv")
    assert list(frame.columns) == list(COLUMNS[name])
    return frame


def command_line(*arguments: str) -> list[str]:
    """Of `mltcp testbed`."""
    # What disturbs this host is not what these tests are about.
    once = ("--attempts", "1") if arguments[0] == "run" else ()
    return [sys.executable, "-m", "mltcp_tools.cli.main", "testbed", *arguments, *once]
