# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp status flows`: the flows under MLTCP, one line each."""

from __future__ import annotations

import dataclasses
import json

import click

from mltcp_tools.base.columns import Cell, Column, Row, clip
from mltcp_tools.base.units import endpoint, format_bytes, format_seconds
from mltcp_tools.cli.text import printable, queue_text, show_table
from mltcp_tools.kernel.backends import get_backend
from mltcp_tools.kernel.backends.base import Flow
from mltcp_tools.kernel.host.cc_sockets import Driven
from mltcp_tools.kernel.host.namespaces import MOUNTED
from mltcp_tools.live.observe.follower_state import read_follower_states
from mltcp_tools.live.observe.untagged import Untagged, owners
from mltcp_tools.live.sources.metadata import Metadata

_COLUMNS = (
    Column("JOB", left=True),
    Column("PID", drop=11),
    Column("NETNS", left=True, drop=12),
    Column("PORT", drop=13),
    Column("CC", left=True, drop=4),
    Column("PEER", left=True),
    Column("ITERATION", drop=3),
    Column("SENT", drop=2),
    Column("RATIO"),
    Column("F"),
    Column("CWND", drop=6),
    Column("SRTT-MS", drop=7),
    Column("QUEUE-MS", drop=14),
    Column("BY", left=True, drop=15),
    Column("RETRANS", drop=5),
    Column("SOURCE", left=True, drop=9),
    Column("PERIOD", drop=8),
    Column("BYTES", drop=10),
    Column("STATE", left=True, drop=1),
)


def _row(flow: Flow, job: str, known: Metadata | None, owner: Driven | None) -> Row:
    size = flow.learned_bytes if known is None else known.bytes_per_iteration
    source = "learned" if flow.learned_bytes else "-"
    return (
        clip(printable(job), 20),
        str(owner.pid) if owner and owner.pid else "-",
        clip(_namespace(flow, owner), 12),
        str(flow.local_port),
        flow.congestion_control,
        endpoint(flow.remote_addr, flow.remote_port),
        str(flow.iteration),
        format_bytes(flow.sent_bytes),
        f"{flow.ratio:.2f}" if flow.active else Cell("-", "quiet"),
        f"{flow.gain:.2f}" if flow.active else Cell("1", "quiet"),
        str(flow.cwnd),
        f"{flow.srtt_us / 1000:.2f}",
        queue_text(flow.queue_us, flow.full_queue_us),
        _by(flow),
        Cell(str(flow.retransmits), "warning" if flow.retransmits else ""),
        source if known is None else known.source,
        "-" if known is None else format_seconds(known.period_s),
        "-" if not size else format_bytes(size),
        Cell(flow.state, "" if flow.state == "established" else "quiet"),
    )


def _by(flow: Flow) -> Cell:
    return Cell("bidirectional" if flow.bidirectional else "RTT", "quiet")


def _namespace(flow: Flow, owner: Driven | None) -> str:
    """Its name, where it has one; `-` for this one; else the number by which `netns:` knows it."""
    if owner is None:
        return str(flow.netns)
    name = owner.namespace.name
    if name.startswith(MOUNTED):
        return name.removeprefix(MOUNTED)
    return "-" if owner.namespace.is_here else str(flow.netns)


def as_document(known: Metadata | None) -> dict[str, object] | None:
    """Return the knowledge of a job's iterations, as `--json` shows it."""
    return None if known is None else dataclasses.asdict(known)


def show_flows(backend: str, as_json: bool) -> None:
    """Print the flows of a backend."""
    source = get_backend(backend)
    flows = source.flows()
    held = owners(flows)
    untagged = Untagged()
    untagged.update(flows, jobs := source.jobs())
    own = {flow.cookie: flow.job_id for flow in untagged.flows(flows)}
    known = {job_id: view.metadata for job_id, view in read_follower_states().items()}
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
    rows = []
    for flow in sorted(flows, key=lambda flow: (flow.job_id, flow.cookie)):
        job_id = own[flow.cookie]
        name = names.get(job_id, str(job_id)) if job_id else "-"
        rows.append(_row(flow, name, known.get(flow.job_id), held.get(flow.cookie)))
    show_table(_COLUMNS, rows)
