"""`mltcp flows`: the flows under MLTCP, one line each."""

from __future__ import annotations

import dataclasses
import json

import click

from mltcp_tools.backends import get_backend
from mltcp_tools.backends.base import Flow
from mltcp_tools.cli.options import backend_option
from mltcp_tools.cli.text import endpoint, printable
from mltcp_tools.host.driven import Driven
from mltcp_tools.host.namespaces import MOUNTED
from mltcp_tools.observe.board import read_boards
from mltcp_tools.observe.untagged import Untagged, owners
from mltcp_tools.sources.metadata import Metadata
from mltcp_tools.units import format_bytes, format_seconds

_COLUMNS = (
    "{:<16} {:>7} {:<12} {:>5} {:<11} {:<27} {:>9} {:>9} {:>5} {:>5} {:>6} {:>8} {:>7} {:<8} {:>9}"
    " {:>9} {}"
)


def _line(flow: Flow, job: str, known: Metadata | None, owner: Driven | None) -> str:
    size = flow.learned_bytes if known is None else known.bytes_per_iteration
    source = "itself" if flow.learned_bytes else "-"
    return _COLUMNS.format(
        printable(job)[:16],
        owner.pid if owner and owner.pid else "-",
        _namespace(flow, owner)[:12],
        flow.local_port,
        flow.congestion_control,
        endpoint(flow.remote_addr, flow.remote_port),
        flow.iteration,
        format_bytes(flow.sent_bytes),
        f"{flow.ratio:.2f}" if flow.active else "-",
        f"{flow.gain:.2f}" if flow.active else "1",
        flow.cwnd,
        f"{flow.srtt_us / 1000:.2f}",
        flow.retransmits,
        source if known is None else known.source,
        "-" if known is None else format_seconds(known.period_s),
        "-" if not size else format_bytes(size),
        flow.state,
    )


def _namespace(flow: Flow, owner: Driven | None) -> str:
    """Its name, where it has one; `-` for this one; else the number by which `netns:` knows it."""
    if owner is None:
        return str(flow.netns)
    name = owner.namespace.name
    if name.startswith(MOUNTED):
        return name.removeprefix(MOUNTED)
    return "-" if owner.namespace.is_here else str(flow.netns)


def as_document(known: Metadata | None) -> dict[str, object] | None:
    """What is known of a job's iterations, as `--json` shows it."""
    return None if known is None else dataclasses.asdict(known)


@click.command()
@backend_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def command(backend: str, as_json: bool) -> None:
    """List every socket that runs an MLTCP congestion control, in all network namespaces.

    PID is a process that has the socket, NETNS its network namespace (- for this one) and PORT the
    local one. A flow without a job that is sure of its iterations is one of its own: what that
    process sends to that peer. SENT, RATIO and RETRANS are those of the present iteration. A ratio
    of - means that the flow behaves as its base: it doesn't know its iterations, or no longer.
    SOURCE is who knows of its job's iterations, with their PERIOD and the BYTES of a flow in each;
    `itself`: only what the flow has learned alone.
    """
    source = get_backend(backend)
    flows = source.flows()
    held = owners(flows)
    untagged = Untagged()
    untagged.update(flows, jobs := source.jobs())
    own = {flow.cookie: flow.job_id for flow in untagged.flows(flows)}
    known = {job_id: view.metadata for job_id, view in read_boards().items()}
    if as_json:
        documents = [
            dataclasses.asdict(flow)
            | {"metadata": as_document(known.get(flow.job_id))}
            | {"pid": held[flow.cookie].pid if flow.cookie in held else 0}
            for flow in flows
        ]
        click.echo(json.dumps(documents, indent=2))
        return
    names = {job.id: job.name for job in (*jobs, *untagged.jobs)}
    click.echo(
        _COLUMNS.format(
            "JOB",
            "PID",
            "NETNS",
            "PORT",
            "CC",
            "PEER",
            "ITERATION",
            "SENT",
            "RATIO",
            "F",
            "CWND",
            "SRTT-MS",
            "RETRANS",
            "SOURCE",
            "PERIOD",
            "BYTES",
            "STATE",
        )
    )
    for flow in sorted(flows, key=lambda flow: (flow.job_id, flow.cookie)):
        job_id = own[flow.cookie]
        name = names.get(job_id, str(job_id)) if job_id else "-"
        click.echo(_line(flow, name, known.get(flow.job_id), held.get(flow.cookie)))
