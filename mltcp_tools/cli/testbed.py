# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp testbed`: experiments over a bottleneck made of network namespaces."""

from __future__ import annotations

import functools
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mltcp_tools.cli import completing
from mltcp_tools.cli.experiments import (
    ARGUMENTS,
    CHOSEN,
    EITHER,
    OPTIONS,
    names_matrix,
    overridden,
    run_and_report,
    run_scenarios,
)
from mltcp_tools.cli.options import SSH, backend_option, list_option, shown_option, with_options

if TYPE_CHECKING:
    from mltcp_tools.lab.experiments.experiment import Experiment


@click.group()
def command() -> None:
    """Run experiments over a bottleneck made of network namespaces."""


attempts_option = shown_option(
    "--attempts",
    type=click.IntRange(1, 100),
    default=3,
    metavar="N",
    help="Run a variant at most this often until nothing else on the host disturbs it.",
)


def _run(options: dict[str, Any], conduct: Callable[[Experiment, Path], None]) -> None:
    """Have `conduct` run the experiment that the options name, and report on it."""
    from mltcp_tools.lab.experiments.reading import find_experiment, load_experiment

    experiment = overridden(load_experiment(find_experiment(options["experiment"])), options)
    run_and_report(experiment, options, conduct)


@command.command()
@with_options((*EITHER, backend_option, attempts_option))
def run(only: tuple[str, ...], **options: Any) -> None:
    """Run EXPERIMENT, and report on it; of a matrix, run its scenarios and make one table.

    EXPERIMENT is the name of a shipped experiment or matrix, or a YAML file of either. The
    run folder gets the experiment as run, the environment, the tables (CSV), and the
    report; that of a matrix has matrix.txt, matrix.json and a run folder for each scenario, and
    scenarios that it already has are not run again. Disturbances by the rest of the host are
    measured; disturbed variants are run again, and if that doesn't help, they are not compared
    with others. Needs root.
    """
    if names_matrix(options["experiment"], only):
        _run_matrix(options["experiment"], only, options)
        return
    _run(options, functools.partial(_conduct, options))


def _conduct(options: dict[str, Any], experiment: Experiment, folder: Path) -> None:
    """Run an experiment on this host as the options want it."""
    from mltcp_tools.lab.testbed.run_experiment import run_experiment

    run_experiment(
        experiment,
        folder,
        trace_ms=options["trace"],
        backend=options["backend"],
        attempts=options["attempts"],
    )


@command.command()
@with_options((*ARGUMENTS, *OPTIONS, backend_option))
@list_option(
    "--sender",
    "senders",
    required=True,
    metavar="HOST,…",
    help="The machines that send, as ssh knows them.",
)
@click.option("--receiver", required=True, metavar="HOST", help="The machine that receives.")
@click.option(
    "--address",
    help="The receiver's address on the link.  [default: --receiver without its user]",
)
@shown_option(
    "--ssh",
    default=SSH,
    help="The command that reaches a machine; it is given its name and the command to run there.",
)
@shown_option("--mltcp", "tool", default="mltcp", help="This tool's command there.")
def across(
    senders: tuple[str, ...],
    receiver: str,
    address: str | None,
    ssh: str,
    tool: str,
    **options: Any,
) -> None:
    """Run EXPERIMENT across machines, with this one as the router between them.

    The jobs are dealt to the senders in turn and send to the receiver. All machines need this tool
    in the same version, and root there; ssh must reach them without asking. This machine's
    interface towards the receiver becomes the bottleneck: its queueing discipline is replaced, and
    with a `delay` also those towards the senders; they are not restored. The senders load
    MLTCP where the experiment needs it, and unload what they loaded.
    """
    from mltcp_tools.lab.testbed.machines import Machines
    from mltcp_tools.lab.testbed.multihost import run_across

    machines = Machines(
        senders=senders,
        receiver=receiver,
        address=address or receiver.rpartition("@")[2],
        ssh=shlex.split(ssh),
        mltcp=shlex.split(tool),
    )
    _run(
        options,
        lambda experiment, folder: run_across(
            experiment, machines, folder, trace_ms=options["trace"], backend=options["backend"]
        ),
    )


@command.command()
@click.argument("matrix", shell_complete=completing.EXPERIMENTS)
@with_options((*CHOSEN, backend_option, attempts_option))
def matrix(matrix: str, only: tuple[str, ...], **options: Any) -> None:
    """Run the scenarios of MATRIX, as `mltcp testbed run` does; an experiment is refused.

    Scenarios that the folder already has are not run again: after an interruption, repeat the
    same command. A scenario that can't be run here is named, and the others go on. The folder gets
    matrix.txt, matrix.json, and a run folder for each scenario. Needs root.
    """
    _run_matrix(matrix, only, options)


def _run_matrix(matrix: str, only: tuple[str, ...], options: dict[str, Any]) -> None:
    from mltcp_tools.lab.experiments.matrix import chosen, find_matrix, load_matrix
    from mltcp_tools.lab.testbed.leftovers import require_privileges

    require_privileges()
    described = load_matrix(find_matrix(matrix))
    scenarios = {
        name: overridden(experiment, options | {"variants": variants})
        for name, experiment, variants in chosen(described, only, options["variants"])
    }

    run_scenarios(
        described,
        scenarios,
        options["output"] or Path("runs") / described.name,
        functools.partial(_conduct, options),
        as_json=options["as_json"],
    )


@command.command(hidden=True)
def agent() -> None:
    """Serve `mltcp testbed across` on this machine, over stdin and stdout."""
    from mltcp_tools.lab.testbed.remote import run_agent

    run_agent()


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def list_experiments(as_json: bool) -> None:
    """List the shipped experiments, and the shipped matrices with their scenarios."""
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


@command.command()
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def clean(as_json: bool) -> None:
    """Remove what killed runs left behind; living runs are not touched. Needs root."""
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
