# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp status`: what is loaded, as read back from the kernel."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from contextlib import suppress

import click

from mltcp_tools.base.columns import Cell, Column, Row, clip
from mltcp_tools.base.errors import HostError, UnknownError
from mltcp_tools.base.units import format_bytes, format_seconds
from mltcp_tools.cli.flows import show_flows
from mltcp_tools.cli.jobs import show_jobs, show_own
from mltcp_tools.cli.options import shown_option
from mltcp_tools.cli.text import examples, printable, show_table
from mltcp_tools.kernel.backends import AUTO, BACKENDS, checks, get_backend
from mltcp_tools.kernel.backends.base import JobParams, Status
from mltcp_tools.kernel.backends.pins import loaded_elsewhere
from mltcp_tools.kernel.congestion_controls import NAMES
from mltcp_tools.kernel.host.leases import leases
from mltcp_tools.kernel.host.namespaces import defaults

_KERNEL = (
    Column("BACKEND", left=True),
    Column("CONGESTION CONTROL", left=True),
    Column("SOCKETS"),
    Column("BUILD", left=True, drop=1),
)
_JOBS = (
    Column("ID", drop=2),
    Column("JOB", left=True),
    Column("BURST"),
    Column("GAP"),
    Column("F", left=True, drop=1),
    Column("BACKEND", left=True, drop=3),
)


def show_status(status: Status, as_json: bool) -> None:
    """Print a status for people, or as one JSON object."""
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(status), indent=2))
    else:
        _show([status])


def _parameters(params: JobParams) -> tuple[str, str, str]:
    """Burst, gap and F of flows, as people read them."""
    return (
        format_bytes(params.burst_bytes) if params.burst_bytes else "learned",
        format_seconds(params.gap_s) if params.gap_s else "learned",
        f"{params.slope:g} r + {params.intercept:g}",
    )


def _show(found: Sequence[Status]) -> None:
    rows = [
        (status.backend, name, str(status.sockets.get(name, 0)), status.build)
        for status in found
        for name in status.loaded
    ]
    if rows:
        show_table(_KERNEL, rows)
    for status in found:
        if error := status.details.get("error"):
            click.echo(f"{status.backend}: {error}")
        elif not status.loaded:
            click.echo(f"{status.backend}: nothing is loaded")
        foreign = status.details.get("elsewhere")
        if isinstance(foreign, list) and foreign:
            click.echo(f"{status.backend}: {loaded_elsewhere(foreign)}")
        unregistered = status.details.get("unregistered")
        if isinstance(unregistered, list) and unregistered:
            click.echo(
                f"{status.backend}: the kernel still has the programs of {', '.join(unregistered)}"
                " from an earlier load, held by a socket or a default; `mltcp unload --everything"
                " --dry-run` names it"
            )
    jobs: list[Row] = [
        (str(job.id), clip(printable(job.name), 20), *_parameters(job.params), status.backend)
        for status in found
        for job in status.jobs
    ]
    jobs += [
        ("-", Cell("flows without a job", "quiet"), *_parameters(each.defaults), each.backend)
        for each in found
        if each.defaults
    ]
    if jobs:
        show_table(_JOBS, jobs)


def _status_of(name: str) -> Status:
    """The backend's status; one without anything but the error where there is none to read."""
    try:
        return get_backend(name).status()
    except (HostError, UnknownError) as error:
        return Status(name, (), {}, (), {"error": str(error)})


@click.command(
    epilog=examples(
        "mltcp status",
        "mltcp status flows --json",
        then="""\b
Exit codes of --check, the first that holds:
  0    all is well
  10   nothing is loaded
  11   another build is loaded, or one from another installation
  12   sockets run programs of an earlier load
  13   the agent is enabled or was killed, and does not run
  14   another program sets the congestion control of attached connections""",
    )
)
@click.argument("view", type=click.Choice(("jobs", "flows")), required=False)
@shown_option(
    "--backend",
    type=click.Choice((AUTO, *BACKENDS)),
    default=AUTO,
    help="Show only the eBPF programs (bpf) or only the kernel module (kmod); auto: both.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
@click.option(
    "--check", is_flag=True, help="Print only problems; the exit code says which (see below)."
)
@click.option(
    "--mine",
    is_flag=True,
    help="With jobs: only your own jobs (root: all) that the agent follows, including those that"
    " ended in the last minutes. Needs no privilege.",
)
@click.option("--job", "name", metavar="NAME", help="With --mine: only the job of this name.")
@click.pass_context
def command(
    ctx: click.Context,
    view: str | None,
    backend: str,
    as_json: bool,
    check: bool,
    mine: bool,
    name: str | None,
) -> None:
    """Show the loaded congestion controls, the number of sockets that use them, and the jobs.

    `mltcp status jobs` lists the jobs. BURST is the size of a flow's burst and GAP the pause that
    ends an iteration; `learned` means that each flow learns its own. PERIOD and BYTES are the
    measured iteration time and bytes of a flow, and SOURCE is where they come from: hooks, nccl,
    gloo, or learned (from the flows). Only `mltcp agent` and `mltcp attach --follow` find them.

    `mltcp status flows` lists the sockets that run an MLTCP congestion control, in all network
    namespaces. SENT (bytes), RATIO (share of the burst sent), F and RETRANS (retransmissions) are
    those of the current iteration; a RATIO of - means that the flow behaves as its base. QUEUE-MS
    is the queueing delay now and that of a full queue. BY is how they are measured: RTT, or
    `bidirectional` where inbound traffic makes the RTT useless, so that the flow does not yield.

    In both, flows without a job that have learned their iterations form a job of their own,
    `COMMAND[PID] to PEER`.
    """
    if (mine and view != "jobs") or (check and view) or (name and not mine):
        raise click.UsageError(
            "--check takes no view, --mine belongs to `mltcp status jobs`, and --job to --mine"
        )
    if mine:
        show_own(name, as_json)
    elif view == "jobs":
        show_jobs(backend, as_json)
    elif view == "flows":
        show_flows(backend, as_json)
    else:
        _show_all(ctx, backend, as_json, check)


def _show_all(ctx: click.Context, backend: str, as_json: bool, check: bool) -> None:
    if check:
        from mltcp_tools.live.agent.health import problems

        found_wrong = problems(backend)
        for _, sentence in found_wrong:
            click.echo(sentence)
        ctx.exit(found_wrong[0][0] if found_wrong else 0)
    if backend == AUTO:
        found = [_status_of(name) for name in BACKENDS]
    else:
        found = [get_backend(backend).status()]
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(status) for status in found], indent=2))
        return
    _show(found)
    for status in found:
        if other := checks.other_build(get_backend(status.backend), status):
            click.echo(other)
    with suppress(HostError, UnknownError):  # others' namespaces are root's to look into
        for namespace, name in defaults():
            if name in NAMES:
                click.echo(f"{name} is the default of {namespace.name}")
    for lease in leases():
        click.echo(f"{lease} uses {lease.backend}")
