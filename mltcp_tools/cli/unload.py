"""`mltcp unload`: take the congestion controls out of the kernel."""

from __future__ import annotations

import click

from mltcp_tools.backends import get_backend
from mltcp_tools.cli.options import backend_option


@click.command()
@backend_option
@click.option(
    "--force",
    is_flag=True,
    help="Unload while sockets still use it: they run on as their base until they close, unless"
    " `mltcp load` was given --total and --gap. The kernel module stays until then, too.",
)
def command(backend: str, force: bool) -> None:
    """Unregister the congestion controls and forget all jobs and tags."""
    left = get_backend(backend).unload(force)
    click.echo("Unloaded.", err=True)
    if left:
        click.echo(f"{left} sockets run on with the code they have until they close.", err=True)
