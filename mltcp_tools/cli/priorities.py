# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp lab priorities`: the controller of jobs' priorities."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from mltcp_tools.cli.options import list_option, served, shown_option
from mltcp_tools.live.priorities.coflows import LEVELS, WEIGHTS

_ID_BITS = 32
"""Of the ids of jobs on a host."""


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@shown_option(
    "--weight",
    type=click.Choice(WEIGHTS),
    default="none",
    help="Reason to put a burst first, besides being short.",
)
@shown_option(
    "--levels",
    "count",
    type=click.IntRange(2, LEVELS),
    default=LEVELS,
    help="Levels of priority; the last is shared.",
)
@list_option(
    "--host",
    "hosts",
    metavar="HOST,…",
    help="Order the jobs of these machines, as ssh knows them, together.",
)
@click.option(
    "--same-ids",
    is_flag=True,
    help="With --host, a job that several send for has the same id there.",
)
def command(
    folder: Path,
    weight: str,
    count: int,
    hosts: tuple[str, ...],
    same_ids: bool,
) -> None:
    """Order the bursts of the jobs in FOLDER (Sincronia), and give each job its priority.

    FOLDER has the pinned maps of bpf/priority.bpf.c. The testbed does the same by
    itself in variants with the treatment `priorities`. It runs until a signal ends it; then all
    jobs are alike again. If it is killed, they are alike after half a second.

    With --host, FOLDER is that of each machine.
    """
    from mltcp_tools.kernel.host.signals import noted_end
    from mltcp_tools.live.priorities.controller import run_controller
    from mltcp_tools.live.priorities.coordinator import Host, run_hub

    ended = noted_end()
    if not hosts:
        run_controller(folder, weight, count, ended)
        return
    with contextlib.ExitStack() as stack:
        reached = []
        for place, name in enumerate(hosts):
            base = 0 if same_ids else place << _ID_BITS
            reached.append(Host(name, served(name, "priorities", str(folder)), base))
            stack.callback(reached[-1].close)
        run_hub(reached, weight, count, ended, lambda line: click.echo(line, err=True))
