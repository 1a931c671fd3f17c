# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp attach`: make the connections of running processes flows of a job."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import click

from mltcp_tools.base.errors import MltcpError
from mltcp_tools.cli import completing
from mltcp_tools.cli.options import (
    TARGET_HELP,
    backend_option,
    flow_options,
    list_option,
    target_argument,
)
from mltcp_tools.cli.text import became, examples, printable, say, tally
from mltcp_tools.kernel.backends import get_backend
from mltcp_tools.kernel.backends.base import Job
from mltcp_tools.kernel.congestion_controls import NAMES, OBSERVED, RECOMMENDED
from mltcp_tools.kernel.native.requirements import may_miscount
from mltcp_tools.live.attach.access import DONE, Change
from mltcp_tools.live.attach.classify import ALL, KINDS, Classified
from mltcp_tools.live.attach.egress import egress_of, notices
from mltcp_tools.live.attach.selection import Target, select
from mltcp_tools.live.attach.switch import attach_by_name, require_ready
from mltcp_tools.live.attach.targets import sockets_to_attach


@click.command(
    epilog=examples(
        "mltcp attach train.py --job gpt2 --dry-run",
        "mltcp attach tree:1234 --job gpt2 --burst-bytes 2.5MB",
        then=TARGET_HELP,
    )
)
@target_argument(required=True)
@click.option(
    "--job",
    "name",
    required=True,
    metavar="NAME",
    help="Name of the job that the connections belong to; new, or attached before.",
    shell_complete=completing.JOBS,
)
@flow_options("each flow of the job")
@click.option(
    "--cc",
    "congestion_control",
    type=click.Choice((*NAMES, OBSERVED)),
    default=RECOMMENDED,
    help="Congestion control for the sockets (see `mltcp load --help`); observe: keep theirs"
    f" (reno, cubic or dctcp), and only measure iterations.  [default: {RECOMMENDED}]",
)
@list_option(
    "--kind",
    "kinds",
    allowed=(ALL, *KINDS),
    metavar="KIND,…",
    help=f"Kinds of connections to attach: {', '.join((ALL, *KINDS))}; `mltcp connections` shows"
    " them; store: PyTorch's rendezvous.  [default: those that carry data to other hosts]",
)
@backend_option
@click.option(
    "--follow",
    is_flag=True,
    help="Keep running, and attach later connections and processes, too, until the last process"
    " ends. Ctrl-C ends it earlier, and leaves the connections attached.",
)
@click.option(
    "--move",
    is_flag=True,
    help="Also attach connections that belong to another job or to the agent, which is refused"
    " otherwise.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be attached, and change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def command(
    target: Target,
    name: str,
    burst_bytes: int | None,
    gap_s: float | None,
    slope: float | None,
    intercept: float | None,
    congestion_control: str,
    kinds: tuple[str, ...],
    backend: str,
    follow: bool,
    move: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Assign the data connections of running processes to a job, without restarting them.

    Prints each socket with its peer and its congestion control before and after. Attach a job on
    every host that it runs on. A job keeps its parameters unless new ones are given. `mltcp detach`
    restores what the sockets had before. Needs root, and `mltcp load` first.
    """
    chosen = {
        "burst_bytes": burst_bytes,
        "gap_s": gap_s,
        "slope": slope,
        "intercept": intercept,
    }
    if follow and (dry_run or as_json or move):
        raise click.UsageError("--follow can't be combined with --dry-run, --json or --move")
    given: dict[str, Any] = {field: each for field, each in chosen.items() if each is not None}
    observe = congestion_control == OBSERVED
    if observe and given.keys() & {"slope", "intercept"}:
        raise click.UsageError(
            "--cc observe changes nothing, so it takes no --slope and no --intercept"
        )
    given["mechanisms"] = () if observe else None
    if follow:
        _follow(target, name, given, congestion_control, kinds, backend)
        return
    sockets, left_alone = sockets_to_attach(target, kinds)
    for notice in notices(sockets, egress_of(sockets)):
        say(notice)
    kernel = get_backend(backend)
    job, changes = attach_by_name(
        sockets, name, given, congestion_control, kernel, dry_run, move=move
    )
    if kernel.name == "bpf" and (warning := may_miscount()):
        say(warning)
    if as_json:
        click.echo(json.dumps(_document(job, changes, left_alone), indent=2))
    else:
        _show(job, changes, left_alone)
    if failed := [change for change in changes if change.outcome == "failed"]:
        raise MltcpError(f"{len(failed)} of {len(changes)} sockets could not be attached.")
    if not dry_run and not any(change.outcome in DONE for change in changes):
        raise MltcpError("All sockets have closed in the meantime; nothing is attached.")


def _follow(
    target: Target,
    name: str,
    given: dict[str, Any],
    congestion_control: str,
    kinds: tuple[str, ...],
    backend: str,
) -> None:
    from mltcp_tools.live.agent.follow import follow
    from mltcp_tools.live.agent.rules import Rule

    rule = Rule(
        job=name,
        target=target,
        kinds=kinds,
        congestion_control=congestion_control,
        burst_bytes=given.pop("burst_bytes", None) or None,
        gap_s=given.pop("gap_s", None) or None,
        given=given,
    )
    kernel = get_backend(backend)
    require_ready(congestion_control, kernel)
    if not select(target):
        click.echo("No process matches yet; waiting for one.", err=True)
    follow(rule, kernel, say)


def _document(job: Job, changes: list[Change], left_alone: list[Classified]) -> dict[str, object]:
    return {
        "job": dataclasses.asdict(job),
        "changes": [dataclasses.asdict(change) for change in changes],
        "left_alone": [dataclasses.asdict(classified) for classified in left_alone],
    }


def _show(job: Job, changes: list[Change], left_alone: list[Classified]) -> None:
    for change in changes:
        sock, names = change.socket, f"{change.old} -> {change.new or '-'}"
        moved = f"{printable(change.before)} -> " if change.before else ""
        found = sock.pid, sock.fd, sock.remote
        job_name = f"{moved}{printable(change.job)}"
        click.echo(became(*found, names, job_name, change.outcome, change.reason))
    summary = tally(change.outcome for change in changes)
    click.echo(f"Job {printable(job.name)} (id {job.id}): {summary}.", err=True)
    if left_alone:
        listed = tally(classified.kind for classified in left_alone)
        click.echo(f"Not attached: {listed}; `mltcp connections` shows why.", err=True)
