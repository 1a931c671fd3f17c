"""`mltcp results`: the tables of several matrices as one document."""

from __future__ import annotations

import json
from pathlib import Path

import click

from mltcp_tools.cli.options import output_file
from mltcp_tools.errors import UsageError


@click.command()
@click.argument("folders", nargs=-1, type=click.Path(file_okay=False, path_type=Path))
@output_file("Write the document there.  [default: standard output]")
@click.option(
    "--into",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Put the first folder's table between this file's marks as well.",
)
@click.option(
    "--check",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Name the tables of FILE that an older algorithm made; exit code 1 if there are any.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the tables, or what --check finds, as JSON."
)
@click.pass_context
def command(
    context: click.Context,
    folders: tuple[Path, ...],
    output: Path | None,
    into: Path | None,
    check: Path | None,
    as_json: bool,
) -> None:
    """Write the tables of matrices' FOLDERS into one document, with what made each.

    FOLDERS are those that `mltcp testbed matrix` and `mltcp simulate` with a matrix write.
    `scripts/results` runs the matrices and then this.
    """
    from mltcp_tools.analysis.results_document import (
        load_matrix_run,
        put_table,
        render_results,
        stale,
    )
    from mltcp_tools.host.files import replace_file
    from mltcp_tools.native.csources import algorithm

    if check is not None:
        old = stale(check.read_text(encoding="utf-8"), algorithm())
        if as_json:
            click.echo(json.dumps({"file": str(check), "stale": old}, indent=2))
        for name in () if as_json else old:
            click.echo(f"{check}: {name} was made by another version of the algorithm.")
        context.exit(1 if old else 0)
    if not folders:
        raise UsageError("No folder is named; `mltcp results FOLDER...`, or --check FILE.")
    runs = [load_matrix_run(folder) for folder in folders]
    if into is not None:
        text = put_table(into.read_text(encoding="utf-8"), runs[0])
        replace_file(into, text.encode())
    if as_json:
        click.echo(json.dumps([run.document for run in runs], indent=2))
    elif output is None:
        click.echo(render_results(runs), nl=False)
    if output is not None:
        replace_file(output, render_results(runs).encode())
