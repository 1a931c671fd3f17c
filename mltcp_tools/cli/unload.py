"""`mltcp unload`: take the congestion controls out of the kernel."""

from __future__ import annotations

import click

from mltcp_tools.backends import BACKENDS, get_backend


@click.command()
@click.option("--backend", type=click.Choice(BACKENDS), default="bpf", show_default=True)
@click.option(
    "--force",
    is_flag=True,
    help="Unload while sockets still use it: until they close they run on, as their base unless"
    " `mltcp load` was given --total and --gap.",
)
def command(backend: str, force: bool) -> None:
    """Unregister the congestion controls and forget all jobs and tags."""
    left = get_backend(backend).unload(force)
    click.echo("Unloaded.", err=True)
    if left:
        click.echo(f"{left} sockets run on with the code they have until they close.", err=True)
