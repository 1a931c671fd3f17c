# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp lab priorities`: the controller of jobs' priorities."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from mltcp_tools.cli.options import list_option, served, shown_option
from mltcp_tools.cli.text import examples
from mltcp_tools.live.priorities.coflows import LEVELS, WEIGHTS

_ID_BITS = 32
"""Of the ids of jobs on a host."""


@click.command(
    epilog=examples(
        "mltcp lab priorities /sys/fs/bpf/priorities",
        "mltcp lab priorities /sys/fs/bpf/priorities --host node1,node2",
    )
)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@shown_option(
    "--weight",
    type=click.Choice(WEIGHTS),
    default="none",
    help="Bursts to favour beside short ones: those with much (remaining-more) or little"
    " (remaining-less) left to send, of front layers (layer), or that waited long (idle).",
)
@shown_option(
    "--levels",
    "count",
    type=click.IntRange(2, LEVELS),
    default=LEVELS,
    help="Number of priority levels; all bursts beyond share the last.",
)
@list_option(
    "--host",
    "hosts",
    metavar="HOST,…",
    help="Hosts, as ssh knows them, whose jobs are ordered together.  [default: this one alone]",
)
@click.option(
    "--same-ids",
    is_flag=True,
    help="With --host: the same id on two hosts means the same job.  [default: different jobs]",
)
def command(
    folder: Path,
    weight: str,
    count: int,
    hosts: tuple[str, ...],
    same_ids: bool,
) -> None:
    """Order the bursts of jobs, shortest first (Sincronia), and set each job's priority.

    FOLDER holds the pinned maps of bpf/priority.bpf.c, on each host. The testbed's treatment
    `priorities` does the same by itself. Runs until a signal ends it, which makes all jobs equal
    again; if it is killed, they are equal after half a second. Needs root.
    """
    from mltcp_tools.kernel.host.signals import noted_end
    from mltcp_tools.live.priorities.controller import run_controller
    from mltcp_tools.live.priorities.coordinator import PriorityHost, run_hub

    ended = noted_end()
    if not hosts:
        run_controller(folder, weight, count, ended)
        return
    with contextlib.ExitStack() as stack:
        reached = []
        for place, name in enumerate(hosts):
            base = 0 if same_ids else place << _ID_BITS
            reached.append(PriorityHost(name, served(name, "priorities", str(folder)), base))
            stack.callback(reached[-1].close)
        run_hub(reached, weight, count, ended, lambda line: click.echo(line, err=True))
