# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp lab record`: iterations of attached jobs into a run folder."""

from __future__ import annotations

import json
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
from mltcp_tools.kernel.backends import get_backend


@click.command()
@output_folder("The run folder to make.", "folder", required=True, metavar="RUN")
@list_option(
    "--job",
    "names",
    metavar="NAME[=TARGET],…",
    help="Only these jobs; with a TARGET (see `mltcp attach --help`) one that needn't be attached.",
    shell_complete=completing.JOBS,
)
@click.option("--duration", type=SECONDS, help="End after this time, such as 60s.")
@click.option(
    "--iterations", type=click.IntRange(1), help="End when every job has this many iterations."
)
@backend_option
@click.option("--json", "as_json", is_flag=True, help="Print what was recorded as JSON.")
def command(
    folder: Path,
    names: tuple[str, ...],
    duration: float | None,
    iterations: int | None,
    backend: str,
    as_json: bool,
) -> None:
    """Record the iterations of attached jobs into RUN, a folder that `mltcp report` reads.

    Without --duration and --iterations, recording goes on until Ctrl-C. An iteration is counted
    when two later ones of its job have begun.

    Jobs with a TARGET are seen from outside, whatever congestion control they run, such as bbr: the
    kernel is asked how far their connections have come. Nothing needs to be loaded for that.
    """
    from mltcp_tools.live.observe.record import record
    from mltcp_tools.live.observe.record_passive import record_outside

    def until(counts: dict[str, int], elapsed_s: float) -> bool:
        if duration is not None and elapsed_s >= duration:
            return True
        return iterations is not None and all(n >= iterations for n in counts.values())

    if any("=" in each for each in names):
        wanted = jobs_and_targets(names)
        if plain := [name for name, targets in wanted.items() if not targets]:
            raise UsageError(f"Give a TARGET for {plain[0]}, too: all jobs are seen alike.")
        counts = record_outside(folder, wanted, until)
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
