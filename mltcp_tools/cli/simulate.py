# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp simulate`: experiments in virtual time."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mltcp_tools.base.errors import UsageError
from mltcp_tools.cli.experiments import (
    EITHER,
    names_matrix,
    overridden,
    run_and_report,
    run_scenarios,
)
from mltcp_tools.cli.options import BYTES, SECONDS, mtu_option, shown_option, with_options
from mltcp_tools.cli.text import examples

if TYPE_CHECKING:
    from mltcp_tools.lab.experiments.experiment import Experiment


@click.command(
    epilog=examples(
        "mltcp simulate four-jobs",
        "mltcp simulate headline --only two-jobs --variants cubic,mltcp",
    )
)
@with_options(EITHER)
@mtu_option(9216)
@shown_option(
    "--gro",
    "join",
    type=SECONDS,
    default="0s",
    metavar="TIME",
    help="Time within which receivers coalesce segments (GRO), such as 20us.",
)
@shown_option(
    "--rtt",
    type=SECONDS,
    default="100us",
    metavar="TIME",
    help="RTT of the empty path without the links' own delay.",
)
@shown_option(
    "--bucket",
    type=BYTES,
    default="0",
    metavar="SIZE",
    help="Bytes that a link passes at once after idle time, as a token bucket does; the testbed's"
    " links have 20480B.",
)
def command(experiment: str, only: tuple[str, ...], **options: Any) -> None:
    """Run an experiment or a matrix in virtual time, and report like `mltcp testbed run`.

    EXPERIMENT is the name of a shipped experiment or matrix (`mltcp testbed list`), or a YAML file
    of either. Takes seconds instead of minutes, needs no root, and gives the same result for the
    same seed. Packets, queues and senders are simulated, with the algorithm itself compiled in.
    Variants with other congestion controls than reno, cubic, dctcp and MLTCP's are left out.
    """
    from mltcp_tools.lab.experiments.reading import find_either, load_experiment

    if names_matrix(experiment, only):
        _simulate_matrix(experiment, only, options)
        return
    described = overridden(load_experiment(find_either(experiment)), options)
    run_and_report(_modelled(described, options["variants"], set()), options, _conduct(options))


def _conduct(options: dict[str, Any]) -> Callable[[Experiment, Path], None]:
    from mltcp_tools.lab.simulator.simulate_experiment import simulate_experiment
    from mltcp_tools.lab.simulator.variants import SimulationSettings

    names = ("trace", "mtu", "join", "rtt", "bucket")
    settings = SimulationSettings(*(options[name] for name in names))
    return functools.partial(simulate_experiment, settings=settings)


def _modelled(experiment: Experiment, named: tuple[str, ...], said: set[str]) -> Experiment:
    """The experiment with the variants that can be simulated.

    Names what isn't simulated of the others, unless `said` has it, and adds it to that.
    """
    from mltcp_tools.lab.simulator.modelled import modelled

    kept, left_out = modelled(experiment, named)
    if new := dict.fromkeys(what for what in left_out.values() if what not in said):
        click.echo(
            f"warning: left out variants whose parts can't be simulated: {', '.join(new)}", err=True
        )
        said.update(new)
    return kept


def _simulate_matrix(name: str, only: tuple[str, ...], options: dict[str, Any]) -> None:
    from mltcp_tools.lab.experiments.matrix import chosen, find_matrix, load_matrix

    matrix = load_matrix(find_matrix(name))
    scenarios: dict[str, Experiment] = {}
    problems: dict[str, str] = {}
    said: set[str] = set()
    for scenario, experiment, variants in chosen(matrix, only, options["variants"]):
        scenarios[scenario] = overridden(experiment, options | {"variants": variants})
        try:
            scenarios[scenario] = _modelled(scenarios[scenario], options["variants"], said)
        except UsageError as error:
            problems[scenario] = str(error)
    run_scenarios(
        matrix,
        scenarios,
        options["output"] or Path("runs") / f"{matrix.name}-simulated",
        _conduct(options),
        as_json=options["as_json"],
        simulated=True,
        problems=problems,
    )
