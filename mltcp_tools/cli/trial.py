# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp trial`: a controlled experiment on running jobs."""

from __future__ import annotations

import json

import click

from mltcp_tools.base.errors import MltcpError, UsageError
from mltcp_tools.cli import completing
from mltcp_tools.cli.options import (
    FRACTION,
    SECONDS,
    backend_option,
    jobs_and_targets,
    list_option,
    served,
    shown_option,
)
from mltcp_tools.cli.text import examples, printable, say, show_table
from mltcp_tools.kernel.backends import get_backend
from mltcp_tools.kernel.congestion_controls import NAMES, RECOMMENDED


@click.command(
    epilog=examples(
        "mltcp trial --job gpt2 --job bert",
        "mltcp trial --job gpt2=train.py --job bert=tree:1234",
    )
)
@list_option(
    "--job",
    "jobs",
    metavar="NAME[=TARGET],…",
    help="Jobs to measure: NAME of an attached job, or NAME=TARGET of any job (TARGET: see `mltcp"
    " attach --help`). Repeat a name for further targets.",
    shell_complete=completing.JOBS,
)
@list_option(
    "--host",
    "hosts",
    metavar="HOST,…",
    help="Hosts whose connections are switched together, as ssh knows them (see Environment in"
    " `mltcp --help`).  [default: this host]",
)
@shown_option(
    "--rounds",
    type=click.IntRange(8),
    default=8,
    help="Number of A/B rounds (even); each is one period with and one without MLTCP.",
)
@shown_option(
    "--phase-time",
    type=SECONDS,
    default="3min",
    metavar="TIME",
    help="Length of a period; extended to 40 iterations of each job.",
)
@shown_option(
    "--cc", "name", type=click.Choice(NAMES), default=RECOMMENDED, help="Congestion control to try."
)
@shown_option(
    "--abort-if-slower",
    type=FRACTION,
    default="20%",
    metavar="SHARE",
    help="Slowdown under MLTCP at which a job gets its own congestion control back at once. The"
    " second such slowdown ends the trial.",
)
@shown_option(
    "--detection-time",
    type=SECONDS,
    default="60s",
    metavar="TIME",
    help="Longest time to wait for iterations to be detected before the first round.",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    help="Random seed for the order of periods.  [default: random]",
)
@backend_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    jobs: tuple[str, ...],
    hosts: tuple[str, ...],
    rounds: int,
    phase_time: float,
    name: str,
    abort_if_slower: float,
    detection_time: float,
    seed: int | None,
    backend: str,
    as_json: bool,
) -> None:
    """Measure on running jobs whether MLTCP makes their iterations shorter.

    Switches all jobs together between their own congestion control and MLTCP, in a balanced random
    order, and times their iterations. Prints the difference with its 95 % confidence interval, and
    advice. Name all jobs that share a link; they need not be attached. Takes 48 minutes by default,
    longer with long iterations. Needs root, and `mltcp load` first.

    Rounds that other traffic or programs disturb are discarded and repeated. The congestion
    controls are restored at the end, also if the trial is killed. Exit code 1: the trial ended
    early.

    Only the connections of this host are switched unless --host names all hosts of the jobs. Each
    host's part of a job is then a row of its own, JOB@HOST.
    """
    from mltcp_tools.live.trial import text
    from mltcp_tools.live.trial.conduct import conduct
    from mltcp_tools.live.trial.multihost import conduct_across
    from mltcp_tools.live.trial.surroundings import Interrupted
    from mltcp_tools.live.trial.trial import Plan

    if not jobs:
        raise UsageError("No job is named; give --job NAME or --job NAME=TARGET.")
    wanted, plan = jobs_and_targets(jobs), Plan(rounds, phase_time, abort_if_slower)
    try:
        if hosts:
            commands = {host: served(host, "trial", backend) for host in hosts}
            found = conduct_across(commands, wanted, plan, name, say, detection_time, seed)
        else:
            found = conduct(wanted, plan, name, get_backend(backend), say, detection_time, seed)
    except Interrupted:  # before its first round
        raise KeyboardInterrupt from None
    if as_json:
        click.echo(json.dumps(text.document(found), indent=2))
    else:
        show_table(text.COLUMNS, text.rows(found))
        click.echo(f"\nIn short: {printable(text.in_short(found))}")
    if found.course.ended:
        raise MltcpError(f"The trial ended early: {found.course.ended}")
