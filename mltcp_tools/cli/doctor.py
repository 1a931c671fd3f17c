# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp doctor`: say what this host has and lacks."""

from __future__ import annotations

import json
import shutil

import click

from mltcp_tools.base.errors import HostError
from mltcp_tools.cli.text import examples, styled
from mltcp_tools.doctor import diagnose


@click.command(
    epilog=examples(
        "mltcp doctor",
        then="Exit code 0: one of the two backends and the testbed can work here; 3: they can't.",
    )
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as one JSON document.")
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Check what this host has and lacks, and print a fix for each problem.

    Checks the needs of the eBPF programs, the kernel module, attaching, the testbed and the
    collectives. Changes nothing. Needs no root, but sees more with it.
    """
    diagnosis = diagnose()
    if as_json:
        click.echo(json.dumps(diagnosis.as_json(), indent=2))
    else:
        click.echo(diagnosis.as_text(shutil.get_terminal_size((100, 24)).columns, styled))
    if not diagnosis.ready:
        ctx.exit(HostError.exit_code)
