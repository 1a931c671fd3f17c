# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp connections`: processes and their TCP connections, and what these look like."""

from __future__ import annotations

import dataclasses
import json

import click

from mltcp_tools.base.columns import Cell, Column, Row
from mltcp_tools.base.units import endpoint, format_bytes
from mltcp_tools.cli.options import TARGET_HELP, target_argument
from mltcp_tools.cli.text import examples, printable, say, show_table
from mltcp_tools.live.attach.classify import Classified
from mltcp_tools.live.attach.egress import Egress, egress_of, notices
from mltcp_tools.live.attach.selection import Target
from mltcp_tools.live.attach.targets import Seen, attached_jobs, look, look_for_training

_COLUMNS = (
    Column("FD"),
    Column("KIND", left=True),
    Column("LOCAL", left=True, drop=3),
    Column("PEER", left=True),
    Column("VIA", left=True, drop=6),
    Column("STATE", left=True, drop=5),
    Column("CC", left=True, drop=4),
    Column("SENT"),
    Column("RECEIVED", drop=2),
    Column("JOB", left=True),
    Column("WHY", left=True, drop=1),
)


@click.command(
    epilog=examples("mltcp connections", "mltcp connections train.py --json", then=TARGET_HELP)
)
@target_argument(required=False)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array, an object per process.")
def command(target: Target, as_json: bool) -> None:
    """Show the TCP connections of training processes, and why each has its kind.

    Without TARGET, shows attached processes and those that have a training library loaded (NCCL,
    RCCL, Gloo, torch, oneCCL, MPI, UCX, JAX). `mltcp attach` takes the kinds that carry data to
    other hosts. VIA is the interface on which a connection leaves this host. Other users' processes
    need root.
    """
    jobs, notes = attached_jobs()
    seen, unread = look(target) if target != Target() else look_for_training(jobs)
    if as_json:
        click.echo(json.dumps([_document(each, jobs) for each in seen], indent=2))
    else:
        for each in seen:
            notes += _show(each, jobs)
    for note in (*notes, *unread):
        say(note)
    if not seen:
        limit = " that may be looked into" if unread else ""
        say(
            f"No process{limit} has a training library loaded; name others: mltcp connections"
            f" TARGET"
        )


def _document(seen: Seen, jobs: dict[int, str]) -> dict[str, object]:
    sockets = []
    egress = egress_of([each.socket for each in seen.sockets])
    for classified in seen.sockets:
        fields = dataclasses.asdict(classified.socket)
        del fields["process"]
        sockets.append(
            fields
            | {
                "kind": classified.kind,
                "reason": classified.reason,
                "carries_data": classified.carries_data,
                "stays_here": classified.stays_here,
                "egress": egress.get(classified.socket.cookie, Egress()).interface,
                "job": jobs.get(classified.socket.cookie),
            }
        )
    process = dataclasses.asdict(seen.process)
    del process["image"]
    return process | {"sockets": sockets}


def _show(seen: Seen, jobs: dict[int, str]) -> list[str]:
    """Print a process; return what is worth a notice."""
    process = seen.process
    command = printable(" ".join(process.command)) or f"[{printable(process.name)}]"
    click.echo(f"{process.pid} {command}")
    cgroup = printable(process.cgroup)
    click.echo(f"  user {process.uid}, cgroup {cgroup}, network namespace {process.netns}")
    if not seen.sockets:
        click.echo("  no TCP sockets")
        return []
    sockets = [each.socket for each in seen.sockets]
    egress = egress_of(sockets)
    show_table(_COLUMNS, [_row(each, jobs, egress) for each in seen.sockets])
    return notices(sockets, egress)


def _row(classified: Classified, jobs: dict[int, str], egress: dict[int, Egress]) -> Row:
    sock = classified.socket
    return (
        str(sock.fd),
        Cell(
            classified.kind,
            "good" if classified.carries_data and not classified.stays_here else "quiet",
        ),
        endpoint(*sock.local),
        "-" if sock.state == "listen" else endpoint(*sock.remote),
        egress.get(sock.cookie, Egress()).interface or "-",
        sock.state,
        sock.congestion_control,
        format_bytes(sock.bytes_sent),
        format_bytes(sock.bytes_received),
        printable(jobs.get(sock.cookie, "-")),
        classified.reason,
    )
