"""`mltcp prioritise`: the controller of jobs' priorities."""

from __future__ import annotations

import signal
from pathlib import Path

import click

from mltcp_tools.cli.options import shown_option
from mltcp_tools.experiments.treatments import WEIGHTS


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@shown_option(
    "--weight",
    type=click.Choice(WEIGHTS),
    default="none",
    help="What puts a burst first, besides being short.",
)
@shown_option(
    "--levels",
    "count",
    type=click.IntRange(2, 8),
    default=8,
    help="Levels of priority; the last is shared.",
)
@click.option("--with-parent", is_flag=True, help="End when the process that started this does.")
def command(folder: Path, weight: str, count: int, with_parent: bool) -> None:
    """Order the bursts of the jobs in FOLDER (Sincronia), and give each job its priority.

    FOLDER has the pinned maps of bpf/priority.bpf.c. `mltcp testbed run` starts this in arms with
    the treatment sincronia. It runs until a signal ends it; then all jobs are alike again. If it
    is killed, they are alike after half a second.
    """
    from mltcp_tools.host.lifetime import die_with_parent
    from mltcp_tools.priorities.controller import run_controller

    if with_parent:
        die_with_parent()
    ended = False

    def end(_number: int, _frame: object) -> None:
        nonlocal ended
        ended = True

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    run_controller(folder, weight, count, lambda: ended)
