# SPDX-License-Identifier: BSD-2-Clause
"""The common part of the commands that run experiments, on the testbed or simulated."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mltcp_tools.base.errors import MltcpError, UsageError
from mltcp_tools.base.units import parse_seconds
from mltcp_tools.cli import completing
from mltcp_tools.cli.options import Quantity, list_option, output_folder, shown_option

if TYPE_CHECKING:
    from mltcp_tools.lab.experiments.experiment import Experiment
    from mltcp_tools.lab.experiments.matrix import Matrix


def _milliseconds(text: object) -> int:
    """Whole milliseconds, 1000 at most."""
    milliseconds = parse_seconds(text) * 1e3
    whole = round(milliseconds)
    if abs(milliseconds - whole) > 1e-6 or whole > 1000:
        raise UsageError(f"{text!r} must be whole milliseconds, up to 1s.")
    return whole


EITHER = (
    click.argument("experiment", shell_complete=completing.EXPERIMENTS),
    output_folder("Run folder to write, new or empty.  [default: one in runs/]"),
    list_option("--only", metavar="X,Y,…", help="Scenarios of a matrix to run.  [default: all]"),
    list_option("--variants", metavar="A,B,…", help="Variants to run.  [default: all]"),
    click.option(
        "--iterations",
        type=click.IntRange(1),
        help="Number of iterations of each job.  [default: the experiment's]",
    ),
    click.option(
        "--repetitions",
        type=click.IntRange(1),
        help="Number of runs of all variants, each with other random numbers.  [default: the"
        " experiment's]",
    ),
    click.option(
        "--seed", type=click.IntRange(0), help="Random seed.  [default: the experiment's]"
    ),
    click.option(
        "--no-alone",
        is_flag=True,
        help="Leave out the runs of each job alone on the link, and with them the bound.",
    ),
    shown_option(
        "--trace",
        type=Quantity("time", _milliseconds),
        default="2ms",
        help="Time between samples of TCP state in the first repetition, up to 1s; 0: no samples.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
)
"""The parameters of a command that runs an experiment or a matrix."""


def names_matrix(experiment: str, only: Sequence[str]) -> bool:
    """Return whether it is a matrix, of which alone there can be some scenarios `only`."""
    from mltcp_tools.lab.experiments.matrix import is_matrix

    if is_matrix(experiment):
        return True
    if only:
        raise UsageError(
            f"--only selects scenarios of a matrix, but {experiment} is an experiment."
        )
    return False


def overridden(experiment: Experiment, options: Mapping[str, Any]) -> Experiment:
    """The experiment as the options want it."""
    return experiment.override(
        variants=options["variants"],
        iterations=options["iterations"],
        repetitions=options["repetitions"],
        seed=options["seed"],
        alone=not options["no_alone"],
    )


def run_and_report(
    experiment: Experiment,
    options: Mapping[str, Any],
    conduct: Callable[[Experiment, Path], None],
) -> None:
    """Have `conduct` run the experiment into the folder that the options say, and report on it."""
    folder = options["output"]
    if folder is None:
        folder = Path("runs") / f"{experiment.name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    before = (folder / "variants.csv").exists()  # which the run refuses to touch
    try:
        conduct(experiment, folder)
    except (MltcpError, KeyboardInterrupt):
        if not before and (folder / "variants.csv").exists():
            click.echo(f"what was measured until then: mltcp report {folder}", err=True)
        raise

    from mltcp_tools.lab.analysis import render_text, write_report

    result = write_report(folder)
    click.echo(json.dumps(result) if options["as_json"] else render_text(result))
    click.echo(f"run folder: {folder}, with report.html", err=True)


def _run_scenario(
    conduct: Callable[[Experiment, Path], None], experiment: Experiment, folder: Path
) -> None:
    from mltcp_tools.lab.analysis import write_report

    conduct(experiment, folder)
    write_report(folder)


def run_scenarios(
    matrix: Matrix,
    scenarios: Mapping[str, Experiment],
    folder: Path,
    conduct: Callable[[Experiment, Path], None],
    *,
    as_json: bool,
    simulated: bool = False,
    problems: Mapping[str, str] | None = None,
) -> None:
    """Have `conduct` run these of the scenarios of `matrix` into `folder`, and make their table.

    simulated: whether it simulates them. problems: scenarios that can't be run at all, and why.
    Raises MltcpError at the end where a scenario has no result.
    """
    from mltcp_tools.lab.analysis import render_matrix_text, save_matrix
    from mltcp_tools.lab.experiments.matrix import run_matrix

    missing = dict(problems or {})
    possible = {scenario: each for scenario, each in scenarios.items() if scenario not in missing}
    try:
        run_matrix(
            possible,
            folder,
            functools.partial(_run_scenario, conduct),
            lambda line: click.echo(line, err=True),
            missing,
            simulated=simulated,
        )
    finally:
        if folder.is_dir():
            descriptions = {
                scenario: each.description
                for scenario, each in matrix.scenarios.items()
                if scenario in scenarios or (folder / scenario).is_dir()
            }
            document = save_matrix(folder, matrix.name, descriptions, missing)
            click.echo(json.dumps(document) if as_json else render_matrix_text(document))
            click.echo(f"matrix folder: {folder}", err=True)
    if missing:
        raise MltcpError(
            f"{len(missing)} of {len(scenarios)} scenarios have no result ({', '.join(missing)});"
            " the table says why."
        )
