# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp doctor`: say what this host has and lacks."""

from __future__ import annotations

import json
import os
import shutil

import click

from mltcp_tools.base.errors import HostError
from mltcp_tools.cli.options import served
from mltcp_tools.cli.text import examples, styled
from mltcp_tools.doctor import Diagnosis, diagnose, peer


@click.command(
    epilog=examples(
        "mltcp doctor",
        "mltcp doctor --peer node2",
        then="Exit code 0: one of the two backends can work here (whatever the testbed lacks), or,"
        " with --peer, the hosts reach each other and have the same version; 3: not so.",
    )
)
@click.option(
    "--peer",
    "host",
    metavar="HOST",
    help="Compare this host with another one of the same jobs instead: versions, attached jobs, and"
    " each path's MTU, rate, SACK and timestamps. Over ssh (see Environment in `mltcp --help`).",
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as one JSON document.")
@click.pass_context
def command(ctx: click.Context, host: str | None, as_json: bool) -> None:
    """Check what this host has and lacks, and print a fix for each problem.

    Checks the needs of the eBPF programs, the kernel module, attaching and the testbed. Changes
    nothing. Needs no root, but sees more with it.
    """
    if host is None:
        diagnosis = diagnose()
    else:
        checks = peer.compare(host, served(host, "doctor"))
        diagnosis = Diagnosis(os.uname().release, {"peer": checks})
    if as_json:
        click.echo(json.dumps(diagnosis.as_json(), indent=2))
    else:
        click.echo(diagnosis.as_text(shutil.get_terminal_size((100, 24)).columns, styled))
    if not diagnosis.ready:
        ctx.exit(HostError.exit_code)
