# SPDX-License-Identifier: BSD-2-Clause
"""Makes the whole report of a run and writes it: result.json, report.html and plots/*.png; and the
table of a matrix."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mltcp_tools.base.errors import MltcpError
from mltcp_tools.base.files import replace_file
from mltcp_tools.lab.analysis.matrix import render_matrix_text, summarise_matrix
from mltcp_tools.lab.analysis.reference import make_reference
from mltcp_tools.lab.analysis.summary import summarise, summarise_with
from mltcp_tools.lab.analysis.undisturbed import undisturbed
from mltcp_tools.lab.runs.run import Run, load_run


@dataclass(frozen=True)
class Report:
    """The result (`mltcp-result/1`), the plots (name -> PNG) and the HTML page of a run."""

    result: dict[str, Any]
    images: dict[str, bytes]
    html: str


def make_report(run: Run) -> Report:
    """The whole report of a run; the result's problems name the plots that are left out."""
    # matplotlib takes longer to load than a text report takes to make.
    from mltcp_tools.lab.analysis.html import render_html
    from mltcp_tools.lab.analysis.plots import draw_plots

    quiet = undisturbed(run)
    reference = make_reference(quiet.run)
    result = summarise_with(quiet, reference)
    plots, missing = draw_plots(quiet.run, reference)
    result.problems.extend(missing)
    document = result.document()
    images = {plot.name: plot.png for plot in plots}
    return Report(document, images, render_html(document, plots))


def write_report(run_dir: str | Path) -> dict[str, Any]:
    """Write result.json, report.html and plots/*.png into a run folder, in place of earlier ones.

    Returns the result. Raises UsageError when `run_dir` is not a run folder and MltcpError when it
    can't be written.
    """
    from mltcp_tools.lab.analysis.plots import PLOTS

    report = make_report(load_run(run_dir))
    folder = Path(run_dir)
    document = json.dumps(report.result, indent=2, ensure_ascii=False, allow_nan=False)
    try:
        (folder / "plots").mkdir(exist_ok=True)
        for name in PLOTS:
            path = folder / "plots" / f"{name}.png"
            if name in report.images:
                replace_file(path, report.images[name])
            else:
                path.unlink(missing_ok=True)
        replace_file(folder / "report.html", report.html.encode())
        replace_file(folder / "result.json", document.encode() + b"\n")
    except OSError as error:
        raise MltcpError(f"The report can't be written to {folder}: {error.strerror}.") from error
    return report.result


def save_matrix(
    folder: Path, name: str, descriptions: Mapping[str, str], problems: Mapping[str, str]
) -> dict[str, Any]:
    """Write matrix.json and matrix.txt into a matrix's folder; returns the document.

    descriptions: of all scenarios, whose run folders bear their names. problems: why a scenario has
    no run.
    """
    results = {}
    for scenario in descriptions:
        if scenario in problems or not (folder / scenario).is_dir():
            continue
        run = load_run(folder / scenario)
        if run.environment.get("outcome") == "finished":
            results[scenario] = summarise(run).document()
    document = summarise_matrix(name, descriptions, results, problems)
    try:
        text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
        replace_file(folder / "matrix.json", text.encode() + b"\n")
        replace_file(folder / "matrix.txt", render_matrix_text(document).encode())
    except OSError as error:
        raise MltcpError(f"The table can't be written to {folder}: {error.strerror}.") from error
    return document
