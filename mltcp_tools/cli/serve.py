# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp serve`: the remote ends of commands that reach other hosts."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from mltcp_tools.cli.text import examples


@click.command(epilog=examples("mltcp serve trial auto"), hidden=True)
@click.argument("role", type=click.Choice(("trial", "testbed", "priorities", "doctor")))
@click.argument("detail", default="auto")
def command(role: str, detail: str) -> None:
    """Serve one end of a command that another host runs, over stdin and stdout.

    DETAIL is the folder of maps for the role `priorities`, and the backend for `trial`.
    """
    if role == "testbed":
        from mltcp_tools.lab.testbed.remote import run_agent

        run_agent()
    elif role == "doctor":
        from mltcp_tools.doctor import peer

        peer.serve()
    elif role == "priorities":
        from mltcp_tools.kernel.host.signals import noted_end
        from mltcp_tools.live.priorities.host_side import serve_maps

        serve_maps(Path(detail), sys.stdin.fileno(), sys.stdout.fileno(), noted_end())
    else:
        from mltcp_tools.kernel.backends import get_backend
        from mltcp_tools.live.trial.remote_worker import take_part

        take_part(get_backend(detail))
