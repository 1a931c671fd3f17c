"""`mltcp results`: the tables of several matrices as one document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from mltcp_tools.cli.options import output_file
from mltcp_tools.errors import UsageError
from mltcp_tools.lab.experiments.reading import read_file


@click.command()
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path))
@output_file(
    "Write the document there; tables of other matrices that it has already stay.  [default:"
    " standard output]"
)
@click.option(
    "--into",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Put the first folder's table between this file's marks as well.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Write nothing: name the tables in these documents that another version made, and what"
    " these or matrices' folders say that is not as expected; exit code 1 if there is anything.",
)
@click.option(
    "--mark", is_flag=True, help="Have these documents say which of their tables are stale."
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
    check: bool,
    mark: bool,
    as_json: bool,
) -> None:
    """Write the tables of matrices' FOLDERS into one document, with what made each.

    FOLDERS are those that `mltcp testbed matrix` and `mltcp simulate` with a matrix write.
    `scripts/results` runs the matrices and then this.
    """
    from mltcp_tools.kernel.host.files import replace_file
    from mltcp_tools.lab.analysis.published import marked
    from mltcp_tools.lab.analysis.results_document import (
        load_matrix_run,
        put_table,
        render_results,
    )

    if not folders:
        raise UsageError("Nothing is named; `mltcp results FOLDER...`, or --check with FILES, too.")
    if mark:
        for path in folders:
            text = path.read_text(encoding="utf-8")
            if text != (said := marked(text, present_version)):
                replace_file(path, said.encode())
        return
    if check:
        found = [_checked(path) for path in folders]
        if as_json:
            click.echo(json.dumps(found, indent=2))
        for each in [] if as_json else found:
            for name in each["stale"]:
                click.echo(f"{each['file']}: {name} was made by another version.")
            for sentence in each["missed"]:
                click.echo(f"{each['file']}: {sentence}")
        context.exit(1 if any(each["stale"] or each["missed"] for each in found) else 0)
    runs = [load_matrix_run(folder) for folder in folders]
    if into is not None:
        text = put_table(into.read_text(encoding="utf-8"), runs[0])
        replace_file(into, marked(text, present_version).encode())
    if as_json:
        click.echo(json.dumps([run.document for run in runs], indent=2))
    elif output is None:
        click.echo(render_results(runs), nl=False)
    if output is not None:
        former = read_file(output) if output.exists() else ""
        page = marked(render_results(runs, former), present_version)
        replace_file(output, page.encode())


def _checked(path: Path) -> dict[str, Any]:
    """The tables of a document or a matrix's folder that are stale, and what isn't as expected."""
    from mltcp_tools.lab.analysis.published import stale
    from mltcp_tools.lab.analysis.results_document import load_matrix_run, missed, unexpected

    if not path.is_dir():
        text = read_file(path)
        return {
            "file": str(path),
            "stale": stale(text, present_version),
            "missed": unexpected(text),
        }
    run = load_matrix_run(path)
    old = [run.name] if run.algorithms != [present_version("algorithm")] else []
    sentences = [f"{mix}: {sentence}" for mix, sentence in missed(run.document)]
    return {"file": str(path), "stale": old, "missed": sentences}


def present_version(part: str) -> str:
    """The version at hand of what decides on figures: a part as in lab/analysis/published.py."""
    if part.startswith("clusters/"):
        from mltcp_tools.clusters.version import version

        return version(part.removeprefix("clusters/"))
    if part == "collectives":
        from mltcp_tools.lab.collectives.made import version as of_collectives

        return of_collectives()
    from mltcp_tools.kernel.native.csources import algorithm

    return algorithm()
