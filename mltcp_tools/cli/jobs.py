"""`mltcp jobs`: the jobs set, and what is known of their iterations."""

from __future__ import annotations

import dataclasses
import json

import click

from mltcp_tools.backends import get_backend
from mltcp_tools.backends.base import Job
from mltcp_tools.cli.flows import as_document
from mltcp_tools.cli.options import backend_option
from mltcp_tools.cli.text import printable
from mltcp_tools.observe.board import read_boards
from mltcp_tools.observe.untagged import Untagged
from mltcp_tools.sources.metadata import Metadata
from mltcp_tools.units import format_bytes, format_seconds

_COLUMNS = "{:>10} {:<20} {:>5} {:>11} {:>9} {:<8} {:>9} {:>11} {:>10}"
_HEAD = _COLUMNS.format(
    "ID", "JOB", "FLOWS", "BURST", "GAP", "SOURCE", "PERIOD", "BYTES", "CONFIDENCE"
)


def _line(job: Job, flows: int, known: Metadata | None) -> str:
    params = job.params
    size = None if known is None else known.bytes_per_iteration
    return _COLUMNS.format(
        job.id,
        printable(job.name)[:20],
        flows,
        format_bytes(params.total_bytes) if params.total_bytes else "learned",
        format_seconds(params.gap_s) if params.gap_s else "learned",
        "-" if known is None else known.source,
        "-" if known is None else format_seconds(known.period_s),
        "-" if size is None else format_bytes(size),
        "-" if known is None else f"{known.confidence:.2f}",
    )


@click.command()
@backend_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def command(backend: str, as_json: bool) -> None:
    """List the jobs: the parameters their flows have, and who knows what of their iterations.

    BURST and GAP are in force: bytes of a burst of one flow, and the silence that ends an
    iteration; `learned`: by each flow itself. SOURCE is who is believed (hooks in the training
    loop, nccl, gloo; or `itself`, what flows have learned), with the PERIOD and BYTES of a flow it
    found; it takes `mltcp agent` or `attach --follow` to find out. Flows without a job that have
    learned their iterations are listed by process and peer.
    """
    source = get_backend(backend)
    untagged = Untagged()
    untagged.update(there := source.flows(), source.jobs())
    flows = [flow.job_id for flow in untagged.flows(there)]
    boards = read_boards()
    known = {job_id: view.metadata for job_id, view in boards.items()}
    jobs = [*source.jobs(), *untagged.jobs]
    if as_json:
        found = [(job, known.get(job.id)) for job in jobs]
        click.echo(
            json.dumps(
                [
                    dataclasses.asdict(job)
                    | {"flows": flows.count(job.id)}
                    | {"metadata": as_document(metadata)}
                    for job, metadata in found
                ],
                indent=2,
            )
        )
        return
    if not jobs:
        click.echo("No job is set; `mltcp attach` makes flows a job's.")
        return
    click.echo(_HEAD)
    for job in jobs:
        click.echo(_line(job, flows.count(job.id), known.get(job.id)))
