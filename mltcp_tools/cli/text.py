# SPDX-License-Identifier: BSD-2-Clause
"""The wording of the commands' output."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Sequence

import click

from mltcp_tools.base.columns import Column, Meaning, Row, render
from mltcp_tools.base.units import endpoint

_COLOURS = {"good": "green", "warning": "yellow", "bad": "red"}


def examples(*lines: str, then: str = "") -> str:
    """Return the end of a command's help: lines that can be typed as they are, and what follows."""
    shown = "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines)))
    return f"{shown}\n\n{then}".rstrip()


def queue_text(queue_us: int, full_us: int) -> str:
    """A queueing delay and a full queue's, in milliseconds: `0.59/1.20`; `0.59/-`: unknown."""
    return f"{queue_us / 1000:.2f}/{f'{full_us / 1000:.2f}' if full_us else '-'}"


def printable(text: str) -> str:
    """Text that others chose (names of processes and jobs), unable to drive the terminal."""
    return "".join(char if char.isprintable() else "?" for char in text)


def became(
    pid: int, fd: int, remote: tuple[str, int], change: str, job: str, outcome: str, reason: str
) -> str:
    """Return the line on what became of a process's socket to `remote`. change: of what it runs,
    `cubic -> mltcp`.
    """
    why = f": {reason}" if reason else ""
    return f"{pid} fd {fd} to {endpoint(*remote)}: {change}, job {job}, {outcome}{why}"


def tally(kinds: Iterable[str]) -> str:
    """Return the counts of each kind: `3 switched, 1 failed`."""
    return ", ".join(f"{count} {kind}" for kind, count in Counter(kinds).items())


def styled(text: str, meaning: Meaning) -> str:
    """In the colour of what it means; click leaves colours out where it goes to no terminal."""
    if meaning == "quiet":
        return click.style(text, dim=True)
    return click.style(text, fg=_COLOURS.get(meaning))


def show_table(columns: Sequence[Column], rows: Sequence[Row]) -> None:
    """Print a table: on a terminal as wide as that is, else with all its columns."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    click.echo(render(columns, rows, width, styled))


def say(sentence: str) -> None:
    """To the standard error output, for people."""
    click.echo(printable(sentence), err=True)
