# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp testbed`: experiments over a bottleneck made of network namespaces."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mltcp_tools.cli.experiments import (
    EITHER,
    names_matrix,
    overridden,
    run_and_report,
    run_scenarios,
)
from mltcp_tools.cli.options import backend_option, list_option, served, shown_option, with_options
from mltcp_tools.cli.text import examples

if TYPE_CHECKING:
    from mltcp_tools.lab.experiments.experiment import Experiment


@click.group()
def command() -> None:
    """Run experiments with real TCP over a bottleneck, on network namespaces or hosts."""


@command.command(
    epilog=examples(
        "mltcp testbed run four-jobs",
        "mltcp testbed run headline --only two-jobs -o runs/headline",
        "mltcp testbed run four-jobs --sender node1,node2 --receiver node3=10.0.0.3",
    )
)
@with_options((*EITHER, backend_option))
@shown_option(
    "--attempts",
    type=click.IntRange(1, 100),
    default=3,
    metavar="N",
    help="Maximum number of runs of a variant that other programs disturb; not with --sender.",
)
@list_option(
    "--sender",
    "senders",
    metavar="HOST,…",
    help="Hosts that run the jobs, as ssh knows them, instead of network namespaces.",
)
@click.option(
    "--receiver",
    metavar="HOST[=ADDRESS]",
    help="With --sender: the host that receives, and its address on the link.  [default of ADDRESS:"
    " HOST]",
)
def run(
    experiment: str, only: tuple[str, ...], senders: tuple[str, ...], receiver: str, **options: Any
) -> None:
    """Run an experiment, or the scenarios of a matrix, and report on it.

    EXPERIMENT is the name of a shipped experiment or matrix (`mltcp testbed list`), or a YAML file
    of either. The run folder gets the experiment, the environment, the tables (CSV) and the report;
    a matrix's folder gets matrix.txt, matrix.json and a run folder for each scenario. Repeat the
    command to finish a matrix that was interrupted. Needs root.

    Variants that other programs disturb are run again; those that stay disturbed are left
    out of comparisons.

    With --sender, this host is the router between the senders and the receiver, and its interface
    towards the receiver becomes the bottleneck. Its queueing disciplines stay changed. All hosts
    need this version of mltcp; see Environment in `mltcp --help` for how they are reached.
    """
    from mltcp_tools.lab.experiments.reading import find_either, load_experiment

    if bool(senders) != bool(receiver):
        raise click.UsageError("--sender and --receiver need each other")
    conduct = _across(senders, receiver, options) if senders else _here(options)
    if names_matrix(experiment, only):
        _run_matrix(experiment, only, options, conduct)
    else:
        described = overridden(load_experiment(find_either(experiment)), options)
        run_and_report(described, options, conduct)


def _here(options: dict[str, Any]) -> Callable[[Experiment, Path], None]:
    """Return what runs an experiment on this host."""
    from mltcp_tools.lab.testbed.run_experiment import run_experiment

    return functools.partial(
        run_experiment,
        trace_ms=options["trace"],
        backend=options["backend"],
        attempts=options["attempts"],
    )


def _across(
    senders: tuple[str, ...], receiver: str, options: dict[str, Any]
) -> Callable[[Experiment, Path], None]:
    """Return what runs an experiment across hosts."""
    from mltcp_tools.lab.testbed.machines import Machines
    from mltcp_tools.lab.testbed.multihost import run_across

    name, _, address = receiver.partition("=")
    machines = Machines(
        senders=senders,
        receiver=name,
        address=address or name.rpartition("@")[2],
        command=lambda host: served(host, "testbed"),
    )

    def conduct(experiment: Experiment, folder: Path) -> None:
        run_across(
            experiment, machines, folder, trace_ms=options["trace"], backend=options["backend"]
        )

    return conduct


def _run_matrix(
    matrix: str,
    only: tuple[str, ...],
    options: dict[str, Any],
    conduct: Callable[[Experiment, Path], None],
) -> None:
    from mltcp_tools.lab.experiments.matrix import chosen, find_matrix, load_matrix
    from mltcp_tools.lab.testbed.leftovers import require_privileges

    require_privileges()
    described = load_matrix(find_matrix(matrix))
    scenarios = {
        name: overridden(experiment, options | {"variants": variants})
        for name, experiment, variants in chosen(described, only, options["variants"])
    }
    folder = options["output"] or Path("runs") / described.name
    run_scenarios(described, scenarios, folder, conduct, as_json=options["as_json"])


@command.command("list", epilog=examples("mltcp testbed list"))
@click.option("--json", "as_json", is_flag=True, help="Print the experiments as JSON.")
def list_experiments(as_json: bool) -> None:
    """List the shipped experiments and matrices."""
    from mltcp_tools.lab.experiments.matrix import load_matrix
    from mltcp_tools.lab.experiments.reading import (
        load_experiment,
        shipped_experiments,
        shipped_matrices,
    )

    experiments = [load_experiment(path) for path in shipped_experiments().values()]
    if as_json:
        click.echo(
            json.dumps(
                [
                    {
                        "name": each.name,
                        "description": each.description,
                        "jobs": [job.name for job in each.jobs],
                        "variants": [variant.name for variant in each.variants],
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
        variants = ", ".join(variant.name for variant in each.variants)
        click.echo(
            f"{'':<{width}}  {len(each.jobs)} jobs; variants {variants};"
            f" {each.repetitions} x {each.iterations} iterations"
        )
    for matrix in map(load_matrix, shipped_matrices().values()):
        click.echo(f"{matrix.name:<{width}}  matrix: {matrix.description}")
        click.echo(
            f"{'':<{width}}  {len(matrix.scenarios)} scenarios: {', '.join(matrix.scenarios)}"
        )


@command.command(epilog=examples("mltcp testbed clean"))
@click.option(
    "--json", "as_json", is_flag=True, help="Print the names of what was removed as JSON."
)
def clean(as_json: bool) -> None:
    """Remove namespaces and other leftovers of killed runs. Needs root.

    Running experiments are not touched.
    """
    from mltcp_tools.lab.testbed.leftovers import remove_leftovers, require_privileges

    require_privileges()
    removed = remove_leftovers()
    if as_json:
        click.echo(json.dumps({"removed": removed}))
        return
    for name in removed:
        click.echo(f"removed {name}")
    if not removed:
        click.echo("nothing was left behind", err=True)
