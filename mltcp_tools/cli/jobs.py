# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp status jobs`: the jobs set, and what is known of their iterations."""

from __future__ import annotations

import dataclasses
import json
import os

import click

from mltcp_tools.base.columns import Cell, Column, Row, clip
from mltcp_tools.base.units import counted, format_bytes, format_seconds
from mltcp_tools.cli.flows import as_document
from mltcp_tools.cli.text import printable, show_table
from mltcp_tools.kernel.backends import get_backend
from mltcp_tools.kernel.backends.base import Job
from mltcp_tools.live.observe.follower_state import read_ended, read_follower_states
from mltcp_tools.live.observe.untagged import Untagged
from mltcp_tools.live.observe.view import JobView, summary
from mltcp_tools.live.sources.metadata import CONFIDENT, Metadata

_COLUMNS = (
    Column("ID", drop=3),
    Column("JOB", left=True),
    Column("FLOWS"),
    Column("BURST"),
    Column("GAP"),
    Column("SOURCE", left=True, drop=1),
    Column("PERIOD"),
    Column("BYTES", drop=4),
    Column("CONFIDENCE", drop=2),
)


def _row(job: Job, flows: int, known: Metadata | None) -> Row:
    params = job.params
    size = None if known is None else known.bytes_per_iteration
    doubtful = known is not None and known.confidence < CONFIDENT
    return (
        str(job.id),
        clip(printable(job.name), 20),
        str(flows),
        format_bytes(params.burst_bytes) if params.burst_bytes else Cell("learned", "quiet"),
        format_seconds(params.gap_s) if params.gap_s else Cell("learned", "quiet"),
        "-" if known is None else known.source,
        "-" if known is None else format_seconds(known.period_s),
        "-" if size is None else format_bytes(size),
        Cell("-" if known is None else f"{known.confidence:.2f}", "warning" if doubtful else ""),
    )


def show_own(name: str | None, as_json: bool) -> None:
    """Print the user's own jobs (root: all) that the agent follows; only that of this name."""
    running = list(read_follower_states().values())
    names = {each.name for each in running}
    ended = [each for each in read_ended() if each.name not in names]

    def mine(views: list[JobView]) -> list[JobView]:
        own = (each for each in views if os.geteuid() in (0, each.uid))
        return [each for each in own if name in (None, each.name)]

    running, ended = mine(running), mine(ended)
    if as_json:
        documents = [dataclasses.asdict(each) | {"ended": False} for each in running]
        documents += [dataclasses.asdict(each) | {"ended": True} for each in ended]
        click.echo(json.dumps(documents, indent=2))
        return
    for each in running:
        flows = counted(each.flows, "connection")
        click.echo(f"{printable(each.name)}: {flows}; {summary(each)}.")
    for each in ended:
        click.echo(f"{printable(each.name)}: ended; {summary(each)}.")
    if not running and not ended:
        wanted = f"job {printable(name)}" if name else "a job"
        said = os.environ.get("MLTCP_ATTACH")
        here = f"; here it is {printable(said)}" if said is not None else ""
        click.echo(
            f"No agent follows {wanted} of yours. Its rules decide, and MLTCP_ATTACH (on or off) in"
            f" the environment that the processes started with{here}.",
            err=True,
        )


def show_jobs(backend: str, as_json: bool) -> None:
    """Print the jobs of a backend, and what is known of their iterations."""
    source = get_backend(backend)
    untagged = Untagged()
    untagged.update(there := source.flows(), source.jobs())
    flows = [flow.job_id for flow in untagged.flows(there)]
    follower_states = read_follower_states()
    known = {job_id: view.metadata for job_id, view in follower_states.items()}
    gains = {
        job_id: dataclasses.asdict(view.gain)
        for job_id, view in follower_states.items()
        if view.gain
    }
    jobs = [*source.jobs(), *untagged.jobs]
    if as_json:
        found = [(job, known.get(job.id)) for job in jobs]
        click.echo(
            json.dumps(
                [
                    dataclasses.asdict(job)
                    | {"flows": flows.count(job.id)}
                    | {"metadata": as_document(metadata), "gain": gains.get(job.id)}
                    for job, metadata in found
                ],
                indent=2,
            )
        )
        return
    if not jobs:
        click.echo("There is no job; `mltcp attach` assigns flows to one.")
        return
    show_table(_COLUMNS, [_row(job, flows.count(job.id), known.get(job.id)) for job in jobs])
