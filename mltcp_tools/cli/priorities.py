# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp lab priorities`: the controller of jobs' priorities."""

from __future__ import annotations

import contextlib
import shlex
import sys
from pathlib import Path

import click

from mltcp_tools.cli.options import list_option, shown_option, ssh_options
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
@click.option(
    "--led", is_flag=True, hidden=True, help="Started there by --host: levels come by stdin."
)
@ssh_options
def command(
    folder: Path,
    weight: str,
    count: int,
    hosts: tuple[str, ...],
    same_ids: bool,
    led: bool,
    ssh: str,
    mltcp: str,
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
    from mltcp_tools.live.priorities.host_side import run_led

    if led and hosts:
        raise click.UsageError("--led is what --host starts on a machine; give one of the two.")
    ended = noted_end()
    if led:
        run_led(folder, sys.stdin.fileno(), sys.stdout.fileno(), ended)
        return
    if not hosts:
        run_controller(folder, weight, count, ended)
        return
    remote = [*shlex.split(mltcp), "lab", "priorities", str(folder), "--led"]
    with contextlib.ExitStack() as stack:
        reached = []
        for place, name in enumerate(hosts):
            base = 0 if same_ids else place << _ID_BITS
            reached.append(Host(name, [*shlex.split(ssh), name, *remote], base))
            stack.callback(reached[-1].close)
        run_hub(reached, weight, count, ended, lambda line: click.echo(line, err=True))
