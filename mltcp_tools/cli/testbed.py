"""`mltcp testbed`: experiments over a bottleneck made of network namespaces."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import click

from mltcp_tools.errors import MltcpError


@click.group()
def command() -> None:
    """Run experiments over a bottleneck made of network namespaces."""


def _names(context: click.Context, option: click.Parameter, value: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (value or "").split(",") if name.strip())


@command.command()
@click.argument("experiment")
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Run folder; new or empty.  [default: runs/NAME-UTC]",
)
@click.option("--arms", callback=_names, metavar="A,B,…", help="Run only these arms.")
@click.option("--iterations", type=click.IntRange(1), help="Instead of the experiment's.")
@click.option("--repetitions", type=click.IntRange(1), help="Instead of the experiment's.")
@click.option("--seed", type=click.IntRange(0), help="Instead of the experiment's.")
@click.option("--no-alone", is_flag=True, help="Don't measure each job alone on the link.")
@click.option(
    "--trace",
    type=click.IntRange(0, 1000),
    metavar="MS",
    default=2,
    show_default=True,
    help="Distance of the TCP samples of the first repetition; 0: none.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def run(
    experiment: str,
    output: Path | None,
    arms: tuple[str, ...],
    iterations: int | None,
    repetitions: int | None,
    seed: int | None,
    no_alone: bool,
    trace: int,
    as_json: bool,
) -> None:
    """Run EXPERIMENT, the name of a shipped one or a YAML file, and report on it.

    The run folder gets the experiment as run, the environment, the tables (Parquet and CSV), and
    the report. Needs root.
    """
    from mltcp_tools.testbed.reading import find_experiment, load_experiment
    from mltcp_tools.testbed.run import run_experiment

    wanted = load_experiment(find_experiment(experiment)).override(
        arms=arms,
        iterations=iterations,
        repetitions=repetitions,
        seed=seed,
        alone=not no_alone,
    )
    folder = output or Path("runs") / f"{wanted.name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    try:
        run_experiment(wanted, folder, trace_ms=trace)
    except (MltcpError, KeyboardInterrupt):
        if (folder / "arms.csv").exists():
            click.echo(f"what was measured until then: mltcp report {folder}", err=True)
        raise

    from mltcp_tools.analysis import render_text, write_report

    result = write_report(folder)
    click.echo(json.dumps(result) if as_json else render_text(result))
    click.echo(f"run folder: {folder}", err=True)


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def list_experiments(as_json: bool) -> None:
    """List the shipped experiments."""
    from mltcp_tools.testbed.reading import load_experiment, shipped_experiments

    experiments = [load_experiment(path) for path in shipped_experiments().values()]
    if as_json:
        click.echo(
            json.dumps(
                [
                    {
                        "name": each.name,
                        "description": each.description,
                        "jobs": [job.name for job in each.jobs],
                        "arms": [arm.name for arm in each.arms],
                        "iterations": each.iterations,
                        "repetitions": each.repetitions,
                    }
                    for each in experiments
                ]
            )
        )
        return
    width = max(len(each.name) for each in experiments)
    for each in experiments:
        click.echo(f"{each.name:<{width}}  {each.description}")
        arms = ", ".join(arm.name for arm in each.arms)
        click.echo(
            f"{'':<{width}}  {len(each.jobs)} jobs; arms {arms};"
            f" {each.repetitions} x {each.iterations} iterations"
        )


@command.command()
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def clean(as_json: bool) -> None:
    """Remove what killed runs left behind; living runs are not touched. Needs root."""
    from mltcp_tools.testbed.leftovers import remove_leftovers, require_privileges

    require_privileges()
    removed = remove_leftovers()
    if as_json:
        click.echo(json.dumps({"removed": removed}))
        return
    for name in removed:
        click.echo(f"removed {name}")
    if not removed:
        click.echo("nothing was left behind", err=True)
