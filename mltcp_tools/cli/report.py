# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp report`: what a run folder shows, or what two of them show side by side."""

from __future__ import annotations

import json
from pathlib import Path

import click

from mltcp_tools.base.errors import MltcpError, UsageError
from mltcp_tools.cli.text import examples

_FOLDER = click.Path(path_type=Path)


@click.command(
    epilog=examples("mltcp report runs/four-jobs", "mltcp report runs/four-jobs -o report.html")
)
@click.argument("run", type=_FOLDER)
@click.argument("other", metavar="[RUN2]", type=_FOLDER, required=False)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the result as JSON (schema mltcp-result/1)."
)
@click.option(
    "-o",
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the report, with its plots, to this HTML file, too.",
)
def command(
    run: Path,
    other: Path | None,
    as_json: bool,
    html: Path | None,
) -> None:
    """Report the results of a run folder, or compare two.

    RUN and RUN2 are folders written by `mltcp testbed run`, `mltcp simulate` or `mltcp lab record`.
    Needs only the files: no root, and not the host that wrote them. Missing or damaged files are
    named, and the rest is reported.
    """
    # pandas takes longer to load than --help may take
    from mltcp_tools.lab import analysis

    if other is not None:
        if html:
            raise UsageError("--html reports on one run; leave out the second.")
        comparison = analysis.compare_runs(analysis.load_run(run), analysis.load_run(other))
        click.echo(
            _json(comparison) if as_json else analysis.render_comparison(comparison), nl=False
        )
        return
    loaded = analysis.load_run(run)
    if html is None:
        result = analysis.summarise(loaded).document()
    else:
        report = analysis.make_report(loaded)
        result = report.result
        try:
            html.write_text(report.html, encoding="utf-8")
        except OSError as error:
            raise MltcpError(f"{html} can't be written: {error.strerror}.") from error
        click.echo(f"Wrote {html}.", err=True)
    click.echo(_json(result) if as_json else analysis.render_text(result), nl=False)


def _json(document: object) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
