"""`mltcp watch`: the attached jobs as they run."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Any

import click

from mltcp_tools.backends import get_backend
from mltcp_tools.cli.options import SECONDS, backend_option
from mltcp_tools.cli.text import printable
from mltcp_tools.observe.view import JobView
from mltcp_tools.units import format_seconds

_COLUMNS = "{:<20} {:>5} {:>10} {:>9} {:>8} {:>7} {:>8} {:<8} {:>9}"
_HEAD = _COLUMNS.format(
    "JOB", "FLOWS", "ITERATIONS", "TIME", "CHANGE", "TO-BEST", "OVERLAP", "SOURCE", "PERIOD"
)


_NONE = "No job is attached, and no flow without one is sure of its iterations yet."


def _line(view: JobView) -> str:
    known = view.metadata
    return _COLUMNS.format(
        printable(view.name)[:20],
        view.flows,
        view.iterations,
        "-" if view.iteration_s is None else format_seconds(view.iteration_s),
        "-" if view.change is None else f"{view.change:+.1%}",
        "-" if view.ratio is None else f"{view.ratio:.2f}",
        "-" if view.overlap is None else f"{view.overlap:.0%}",
        "-" if known is None else known.source,
        "-" if known is None else format_seconds(known.period_s),
    )


def document(view: JobView) -> dict[str, Any]:
    """A job as `--json` shows it: its view with the two figures derived from it."""
    return dataclasses.asdict(view) | {"change": view.change, "ratio": view.ratio}


@click.command()
@click.option("--once", is_flag=True, help="Print what there is after --wait, and end.")
@click.option("--json", "as_json", is_flag=True, help="With --once: print a JSON array.")
@click.option(
    "--wait",
    "wait_s",
    type=SECONDS,
    default="1s",
    show_default=True,
    help="Time between two looks; with --once before the only one.",
)
@backend_option
def command(once: bool, as_json: bool, wait_s: float, backend: str) -> None:
    """Show the jobs: how long iterations take, and whether others are in the way.

    Those attached, and what processes send to a peer over flows without a job that have learned
    their iterations.

    TIME is the median of the latest 10 iterations, CHANGE how it compares with the first 5 seen,
    TO-BEST with the fastest tenth; OVERLAP is the share of communication during which another job
    of this host communicates too; SOURCE tells the job's PERIOD. Jobs are seen from their beginning
    where `mltcp agent` or `attach --follow` runs, else from now on.
    """
    from mltcp_tools.observe.watch import Watch

    if as_json and not once:
        raise click.UsageError("--json goes with --once")
    screen = not once and sys.stdout.isatty()
    with Watch(get_backend(backend)) as watch:
        if watch.blind:
            click.echo(f"Only jobs that are followed are seen: {watch.blind}", err=True)
        while True:
            watch.wait(wait_s)
            views = watch.look()
            if as_json:
                click.echo(json.dumps([document(view) for view in views], indent=2))
                return
            if screen:
                click.clear()
            click.echo("\n".join([_HEAD, *map(_line, views)]) if views else _NONE)
            if once:
                return
