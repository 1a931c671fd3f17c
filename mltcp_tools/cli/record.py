# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp lab record`: iterations of attached jobs into a run folder."""

from __future__ import annotations

import json
import math
from pathlib import Path

import click

from mltcp_tools.base.errors import MltcpError, UsageError
from mltcp_tools.base.units import counted
from mltcp_tools.cli import completing
from mltcp_tools.cli.options import (
    SECONDS,
    backend_option,
    jobs_and_targets,
    list_option,
    output_folder,
)
from mltcp_tools.cli.text import examples
from mltcp_tools.kernel.backends import get_backend

_DETECTION_S = 60.0
_LEAST_DETECTION_S = 10.0
"""Longest time to wait for iterations to be detected, of any recording and of a short one."""


@click.command(
    epilog=examples(
        "mltcp lab record -o runs/mine --duration 60s",
        "mltcp lab record -o runs/mine --job gpt2=train.py --iterations 100",
    )
)
@output_folder("Run folder to write.", "folder", required=True, metavar="RUN")
@list_option(
    "--job",
    "names",
    metavar="NAME[=TARGET],…",
    help="Jobs to record; with a TARGET (see `mltcp attach --help`), a job that isn't attached."
    "  [default: all attached jobs]",
    shell_complete=completing.JOBS,
)
@click.option(
    "--duration",
    type=SECONDS,
    help="Time after which recording ends, such as 60s.  [default: until Ctrl-C]",
)
@click.option(
    "--iterations",
    type=click.IntRange(1),
    help="Number of iterations of each job after which recording ends.  [default: until Ctrl-C]",
)
@backend_option
@click.option(
    "--json", "as_json", is_flag=True, help="Print the number of iterations of each job as JSON."
)
def command(
    folder: Path,
    names: tuple[str, ...],
    duration: float | None,
    iterations: int | None,
    backend: str,
    as_json: bool,
) -> None:
    """Record the iterations of jobs on this host, for `mltcp report`.

    An iteration is written once two later ones of its job have begun.

    A job with a TARGET is measured from its sockets' counters, whatever congestion control it runs,
    so MLTCP need not be loaded: a way to measure a job before attaching it. Needs root.
    """
    from mltcp_tools.live.observe.record import record
    from mltcp_tools.live.observe.record_passive import record_passive

    def until(counts: dict[str, int], elapsed_s: float) -> bool:
        if duration is not None and elapsed_s >= duration:
            return True
        return iterations is not None and all(n >= iterations for n in counts.values())

    if any("=" in each for each in names):
        wanted = jobs_and_targets(names)
        if plain := [name for name, targets in wanted.items() if not targets]:
            raise UsageError(
                f"Give a TARGET for {plain[0]}, too: either all jobs have one, or none."
            )
        # A short recording fails soon where no iterations show.
        patience_s = max(_LEAST_DETECTION_S, min(duration or math.inf, _DETECTION_S))
        counts = record_passive(folder, wanted, until, patience_s)
    else:
        counts = record(folder, get_backend(backend), names, until)
    if not any(counts.values()):
        raise MltcpError(
            f"No iteration was seen, so {folder} holds none: the jobs may have ended, or their gap"
            " is unknown; see `mltcp status jobs`."
        )
    if as_json:
        click.echo(json.dumps({"run": str(folder), "iterations": counts}))
    listed = ", ".join(f"{counted(count, 'iteration')} of {name}" for name, count in counts.items())
    click.echo(f"Recorded {listed}; see them with: mltcp report {folder}", err=True)
