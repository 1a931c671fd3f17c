"""`mltcp status`: what is loaded, as read back from the kernel."""

from __future__ import annotations

import dataclasses
import json

import click

from mltcp_tools.backends import BACKENDS, get_backend
from mltcp_tools.backends.base import Status
from mltcp_tools.units import format_bytes, format_seconds


def show_status(status: Status, as_json: bool) -> None:
    """Print a status for people, or as one JSON object."""
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(status), indent=2))
        return
    if not status.loaded:
        click.echo(f"{status.backend}: nothing is loaded")
    for name in status.loaded:
        click.echo(f"{status.backend}: {name:<12} {status.sockets.get(name, 0)} sockets")
    for job in status.jobs:
        params = job.params
        total = format_bytes(params.total_bytes) if params.total_bytes else "unknown"
        gap = format_seconds(params.gap_s) if params.gap_s else "unknown"
        click.echo(
            f"job {job.id} {job.name}: {total} per burst of a flow, gap {gap}, "
            f"F = {params.slope:g} r + {params.intercept:g} ({params.shape})"
        )


@click.command()
@click.option("--backend", type=click.Choice(BACKENDS), default="bpf", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(backend: str, as_json: bool) -> None:
    """Show the congestion controls in the kernel, the sockets that use them, and the jobs."""
    show_status(get_backend(backend).status(), as_json)
