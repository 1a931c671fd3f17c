"""`mltcp ps`: processes and their TCP connections, and what these look like."""

from __future__ import annotations

import dataclasses
import json

import click

from mltcp_tools.attach.processes import Target
from mltcp_tools.attach.targets import Seen, attached_jobs, look, look_for_training
from mltcp_tools.attach.verdict import Verdict
from mltcp_tools.cli.options import TARGET_HELP, target_argument
from mltcp_tools.cli.text import endpoint, printable, say
from mltcp_tools.units import format_bytes

_COLUMNS = "  {:>4} {:<12} {:<27} {:<27} {:<11} {:<11} {:>9} {:>9} {:<8} {}"


@click.command(epilog=TARGET_HELP)
@target_argument(required=False)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array, an object per process.")
def command(target: Target, as_json: bool) -> None:
    """Show processes, their TCP connections, and what these look like and why.

    Without TARGET: all processes that have NCCL, Gloo or torch loaded, and those attached.
    """
    jobs, notes = attached_jobs()
    seen, unread = look(target) if target != Target() else look_for_training(jobs)
    if as_json:
        click.echo(json.dumps([_document(each, jobs) for each in seen], indent=2))
    else:
        for each in seen:
            _show(each, jobs)
    for note in (*notes, *unread):
        say(note)
    if not seen:
        limit = " that may be looked into" if unread else ""
        say(f"No process{limit} has NCCL, Gloo or torch loaded; name others: mltcp ps TARGET")


def _document(seen: Seen, jobs: dict[int, str]) -> dict[str, object]:
    sockets = []
    for verdict in seen.verdicts:
        fields = dataclasses.asdict(verdict.socket)
        del fields["process"]
        sockets.append(
            fields
            | {
                "kind": verdict.kind,
                "reason": verdict.reason,
                "carries_data": verdict.carries_data,
                "job": jobs.get(verdict.socket.cookie),
            }
        )
    return dataclasses.asdict(seen.process) | {"sockets": sockets}


def _show(seen: Seen, jobs: dict[int, str]) -> None:
    process = seen.process
    command = printable(" ".join(process.command)) or f"[{printable(process.name)}]"
    click.echo(f"{process.pid} {command}")
    cgroup = printable(process.cgroup)
    click.echo(f"  user {process.uid}, cgroup {cgroup}, network namespace {process.netns}")
    if not seen.verdicts:
        click.echo("  no TCP sockets")
        return
    click.echo(_COLUMNS.format("FD", *_TITLES).rstrip())
    for verdict in seen.verdicts:
        click.echo(_line(verdict, jobs.get(verdict.socket.cookie, "-")))


_TITLES = ("KIND", "LOCAL", "PEER", "STATE", "CC", "SENT", "RECEIVED", "JOB", "WHY")


def _line(verdict: Verdict, job: str) -> str:
    sock = verdict.socket
    return _COLUMNS.format(
        sock.fd,
        verdict.kind,
        endpoint(*sock.local),
        "-" if sock.state == "listen" else endpoint(*sock.remote),
        sock.state,
        sock.congestion_control,
        format_bytes(sock.bytes_sent),
        format_bytes(sock.bytes_received),
        printable(job),
        verdict.reason,
    )
