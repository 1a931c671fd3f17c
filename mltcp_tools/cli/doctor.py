# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp doctor`: say what this host has and lacks."""

from __future__ import annotations

import json
import shutil

import click

from mltcp_tools.base.errors import HostError
from mltcp_tools.cli.text import styled
from mltcp_tools.doctor import diagnose


@click.command(
    epilog="Exit code 0: one of the two backends, and the testbed, can work here. 3: something they"
    " need is missing."
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as one JSON document.")
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Say what this host has and lacks, with the fix for each.

    Looks at what the BPF backend, the testbed, the kernel module, attaching to running jobs and
    the collectives need. Changes nothing. Works for every user, and sees more as root.
    """
    diagnosis = diagnose()
    if as_json:
        click.echo(json.dumps(diagnosis.as_json(), indent=2))
    else:
        click.echo(diagnosis.as_text(shutil.get_terminal_size((100, 24)).columns, styled))
    if not diagnosis.ready:
        ctx.exit(HostError.exit_code)
