# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp detach`: put attached connections back to what they were."""

from __future__ import annotations

import dataclasses
import json

import click

from mltcp_tools.base.errors import MltcpError
from mltcp_tools.cli import completing
from mltcp_tools.cli.text import became, examples, printable, tally
from mltcp_tools.live.attach.access import Change
from mltcp_tools.live.attach.restore import detach, detach_jobs
from mltcp_tools.live.observe.follower_state import forget_killed
from mltcp_tools.live.trial.rollback import withdraw


@click.command(epilog=examples("mltcp detach gpt2", "mltcp detach --all"))
@click.argument("which", metavar="[JOB|PID]", required=False, shell_complete=completing.JOBS)
@click.option("--all", "everything", is_flag=True, help="Detach every job on this host.")
@click.option(
    "--job",
    "name",
    metavar="NAME",
    help="Job to detach, if its name is a number (which is taken for a PID otherwise).",
    shell_complete=completing.JOBS,
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def command(which: str | None, everything: bool, name: str | None, as_json: bool) -> None:
    """Restore the congestion control that attached sockets had before, and drop their tags.

    JOB is the name of a job, PID a process. Prints each socket, and the reason where it could not
    be restored. Works after `mltcp unload --force`, too. Ends a trial of the job. Needs root.
    """
    if sum(each is not None and each is not False for each in (which, everything, name)) != 1:
        raise click.UsageError("give exactly one of JOB, PID, --job and --all")
    if which is not None and which.isdecimal() and len(which) <= 9:
        done = detach(pid=int(which))
    else:
        job = which or name
        on_trial = withdraw(job)
        # Its trial may have it detached at this moment.
        done = detach_jobs(on_trial) if job in on_trial else detach(job=job)
        if on_trial:
            click.echo(f"The trial of {printable(', '.join(on_trial))} ends.", err=True)
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


def _show(done: list[Change]) -> None:
    for each in done:
        sock, names = each.socket, f"{each.old} -> {each.new or '-'}"
        found = sock.pid, sock.fd, sock.remote
        click.echo(became(*found, names, printable(each.job), each.outcome, each.reason))
    summary = tally(each.outcome for each in done)
    click.echo(f"Detached: {summary or 'nothing was attached'}.", err=True)
