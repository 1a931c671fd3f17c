# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp detach`: put attached connections back to what they were."""

from __future__ import annotations

import dataclasses
import json

import click

from mltcp_tools.base.errors import MltcpError
from mltcp_tools.cli import completing
from mltcp_tools.cli.text import became, printable, tally
from mltcp_tools.live.attach.restore import Restoration, detach
from mltcp_tools.live.observe.follower_state import forget_killed


@click.command()
@click.argument("which", metavar="[JOB|PID]", required=False, shell_complete=completing.JOBS)
@click.option("--all", "everything", is_flag=True, help="Every job attached on this host.")
@click.option(
    "--job",
    "name",
    metavar="NAME",
    help="The job of this name, even if the name is a number.",
    shell_complete=completing.JOBS,
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def command(which: str | None, everything: bool, name: str | None, as_json: bool) -> None:
    """Restore the congestion control of a job's or process's sockets, and drop their tags.

    Also works after `mltcp unload --force`. It says what it could not restore and why.
    """
    if sum(each is not None and each is not False for each in (which, everything, name)) != 1:
        raise click.UsageError("say what to detach: JOB, PID, --job or --all")
    if which is not None and which.isdecimal() and len(which) <= 9:
        done = detach(pid=int(which))
    else:
        done = detach(job=which or name)
    if everything:
        forget_killed()  # `mltcp status --check` has no reason left to miss them
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(each) for each in done], indent=2))
    else:
        _show(done)
    if failed := [each for each in done if each.outcome == "failed"]:
        raise MltcpError(
            f"{len(failed)} of {len(done)} sockets could not be restored and stay recorded."
        )


def _show(done: list[Restoration]) -> None:
    for each in done:
        record, names = each.record, f"{each.record.new} -> {each.now or '-'}"
        found = record.pid, record.fd, record.remote
        click.echo(became(*found, names, printable(each.job), each.outcome, each.reason))
    summary = tally(each.outcome for each in done)
    click.echo(f"Detached: {summary or 'nothing was attached'}.", err=True)
