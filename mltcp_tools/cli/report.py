# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp report`: what a run folder shows, or what two of them show side by side."""

from __future__ import annotations

import json
from pathlib import Path

import click

from mltcp_tools.base.errors import MltcpError, UsageError

_FOLDER = click.Path(path_type=Path)


@click.command()
@click.argument("run", type=_FOLDER)
@click.argument("other", metavar="[RUN2]", type=_FOLDER, required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON (mltcp-result/1).")
@click.option(
    "-o",
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="PATH",
    help="Write a self-contained HTML report to PATH as well.",
)
def command(
    run: Path,
    other: Path | None,
    as_json: bool,
    html: Path | None,
) -> None:
    """Report on RUN, a folder written by `mltcp testbed run`, or compare it with RUN2.

    Works on the files alone, so it needs neither root nor the machine that made them. It names
    what is missing or damaged, and reports the rest.
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
