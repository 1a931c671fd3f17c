# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp trial`: a controlled experiment on running jobs."""

from __future__ import annotations

import json
from pathlib import Path

import click

from mltcp_tools.base.errors import MltcpError, UsageError
from mltcp_tools.base.files import can_replace, replace_file
from mltcp_tools.cli import completing
from mltcp_tools.cli.options import (
    FRACTION,
    SECONDS,
    backend_option,
    jobs_and_targets,
    list_option,
    output_file,
    served,
    shown_option,
)
from mltcp_tools.cli.text import printable, say, show_table
from mltcp_tools.kernel.backends import get_backend
from mltcp_tools.kernel.congestion_controls import NAMES, RECOMMENDED


@click.command()
@list_option(
    "--job",
    "jobs",
    metavar="NAME[=TARGET],…",
    help="A job that is attached, or a name and its processes (see `mltcp attach --help`); again"
    " for others, or for further targets of one.",
    shell_complete=completing.JOBS,
)
@list_option(
    "--host",
    "hosts",
    metavar="HOST,…",
    help="Jobs of these machines, as ssh knows them, instead of this one's.",
)
@shown_option(
    "--rounds", type=click.IntRange(8), default=8, help="Of two periods each, an even number."
)
@shown_option(
    "--every",
    type=SECONDS,
    default="3min",
    metavar="TIME",
    help="Length of a period; longer where 40 iterations take longer.",
)
@shown_option(
    "--cc", "name", type=click.Choice(NAMES), default=RECOMMENDED, help="Congestion control to try."
)
@shown_option(
    "--slower",
    type=FRACTION,
    default="20%",
    metavar="SHARE",
    help="A job that mltcp slows down by more gets back what it ran at once; the second time ends"
    " the trial.",
)
@shown_option(
    "--look",
    type=SECONDS,
    default="60s",
    metavar="TIME",
    help="Time for which iterations are looked for, at most.",
)
@click.option("--seed", type=click.IntRange(0), help="Of the order; another one each time.")
@output_file("Write a report to FILE, a page in HTML.")
@backend_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    jobs: tuple[str, ...],
    hosts: tuple[str, ...],
    rounds: int,
    every: float,
    name: str,
    slower: float,
    look: float,
    seed: int | None,
    output: Path | None,
    backend: str,
    as_json: bool,
) -> None:
    """Prove on running jobs whether mltcp helps them.

    The jobs, all together, are switched between what they run and mltcp and back, in a random
    balanced order; their iterations are timed in both. It says how much shorter or longer they are
    with mltcp, how sure that is, and what to do. Give all jobs that share a link.

    A round in which a job or what is around it changes is discarded, and repeated. A job that
    stalls or becomes too slow gets its own congestion control back at once, and is timed without
    mltcp right after, to tell mltcp from a neighbour. Whatever ends the trial, even kill -9, puts
    everything back.

    Other hosts of a job keep what they run, unless --host names all of them: then all switch
    together, and what a host sees of a job is a row of its own, JOB@HOST. Their clocks needn't
    agree.

    The exit code is 1 where the trial ended early.
    """
    from mltcp_tools.live.trial import html, text
    from mltcp_tools.live.trial.conduct import conduct
    from mltcp_tools.live.trial.multihost import conduct_across
    from mltcp_tools.live.trial.surroundings import Interrupted
    from mltcp_tools.live.trial.trial import Plan

    if not jobs:
        raise UsageError("Which jobs? Give --job NAME, or --job NAME=TARGET.")
    wanted, plan = jobs_and_targets(jobs), Plan(rounds, every, slower)
    if output is not None:
        _check_writable(output)
    try:
        if hosts:
            commands = {host: served(host, "trial", backend) for host in hosts}
            found = conduct_across(commands, wanted, plan, name, say, look, seed)
        else:
            found = conduct(wanted, plan, name, get_backend(backend), say, look, seed)
    except Interrupted:  # before its first round
        raise KeyboardInterrupt from None
    if as_json:
        click.echo(json.dumps(text.document(found), indent=2))
    else:
        show_table(text.COLUMNS, text.rows(found))
        click.echo(f"\nIn short: {printable(text.in_short(found))}")
    if output is not None:
        replace_file(output, html.page(found).encode())
    if found.course.ended:
        raise MltcpError(f"The trial ended early: {found.course.ended}")


def _check_writable(path: Path) -> None:
    """Raise UsageError unless the file can be written, which an hour later is too late to find."""
    if not path.parent.is_dir():
        raise UsageError(f"There is no folder {path.parent}; make it, or give --output another.")
    if not can_replace(path):
        raise UsageError(f"You may not write in {path.parent}; give --output another.")
