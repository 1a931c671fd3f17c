# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp plan`: which jobs fit together, and when each should start."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mltcp_tools.base.errors import MltcpError, UsageError
from mltcp_tools.base.files import replace_file
from mltcp_tools.cli.options import (
    FRACTION,
    RATE,
    SECONDS,
    list_option,
    output_file,
    shown_option,
    with_options,
)

if TYPE_CHECKING:
    from mltcp_tools.lab.planning.cluster import Loops, Rank
    from mltcp_tools.lab.planning.coflows_fabric import Policy


@click.group()
def command() -> None:
    """Plan which jobs share links and by how much to shift each, and in which order they send."""


_output_option = output_file("Write the plan to this JSON file.")
_plan_options = with_options(
    (
        shown_option(
            "--angle",
            type=click.FloatRange(0.05, 90),
            default=5.0,
            metavar="DEGREES",
            help="Precision of the shifts; 360 degrees are an iteration of a job.",
        ),
        shown_option(
            "--tolerance",
            type=FRACTION,
            default="1%",
            help="By how much iterations may be stretched to have a common multiple.",
        ),
        _output_option,
        click.option("--json", "as_json", is_flag=True, help="Print as JSON."),
    )
)


@dataclass(frozen=True)
class _Output:
    """The outputs of a plan: a JSON file, and the terminal as JSON or text."""

    output: Path | None
    as_json: bool

    def write(self, document: dict[str, Any], text: str) -> None:
        written = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
        if self.output is not None:
            replace_file(self.output, f"{written}\n".encode())
            click.echo(f"Wrote {self.output}.", err=True)
        if self.as_json:
            click.echo(written)
        else:
            click.echo(text, nl=False)


def _with_output(command: Callable[..., None]) -> Callable[..., None]:
    """The command, with the options that say where the plan goes as one argument `to`."""

    @functools.wraps(command)
    def wrapped(output: Path | None, as_json: bool, **options: Any) -> None:
        command(to=_Output(output, as_json), **options)

    return wrapped


@command.command()
@click.argument("jobs", type=click.Path(path_type=Path))
@click.option("--rate", type=RATE, help="Rate of the link.  [default: the one that JOBS names]")
@click.option(
    "--variant",
    help="Variant of a run folder to take the jobs from.  [default: alone]",
)
@click.option(
    "--time-limit",
    type=SECONDS,
    help="Time limit of the solver.  [default: 10 ms times the square of the number of jobs, 20 s"
    " at most]",
)
@_plan_options
@_with_output
def score(
    jobs: Path,
    rate: float | None,
    variant: str | None,
    time_limit: float | None,
    angle: float,
    tolerance: float,
    to: _Output,
) -> None:
    """Score how well JOBS fit on one link, and by how much to shift each.

    JOBS is a run folder of `mltcp testbed run` or `mltcp lab record`, or a YAML file of profiles
    (`mltcp lab profile` makes one). A score of 1 means that their bursts never ask for more than
    the link's rate.
    """
    from mltcp_tools.lab.planning.link import score_link
    from mltcp_tools.lab.planning.reading import read_source
    from mltcp_tools.lab.planning.text import render_link
    from mltcp_tools.lab.profiling.progress import SolverBar

    profiles, known_rate = read_source(jobs, variant)
    capacity = known_rate if rate is None else rate
    if capacity is None:
        raise UsageError(f"{jobs} names no link; give its rate with --rate.")
    with SolverBar(len(profiles)) as bar:
        plan = score_link(
            profiles,
            capacity,
            angle_deg=angle,
            tolerance=tolerance,
            time_limit_s=time_limit,
            report=bar.report,
        )
    to.write(plan.to_json(), render_link(plan))


@command.command()
@click.argument("file", type=click.Path(path_type=Path))
@shown_option(
    "--loops",
    type=click.Choice(["discard", "joint"]),
    default="discard",
    help="Placements whose affinity graph has a loop: discard them as the paper does, or solve the"
    " links of the loop jointly.",
)
@shown_option(
    "--rank",
    type=click.Choice(["mean", "worst"]),
    default="mean",
    help="Rank placements by the mean score of their links, or by the worst.",
)
@shown_option(
    "--time-limit",
    type=SECONDS,
    default="20s",
    help="Time limit of the solver, for all placements together.",
)
@_plan_options
@_with_output
def cluster(
    file: Path,
    loops: Loops,
    rank: Rank,
    time_limit: float,
    angle: float,
    tolerance: float,
    to: _Output,
) -> None:
    """Rank the candidate placements in FILE, and shift the jobs of each.

    FILE is YAML with links, jobs and placements; mltcp_tools/lab/planning/topology.py describes it.
    """
    from mltcp_tools.lab.planning.cluster import plan_cluster
    from mltcp_tools.lab.planning.cluster import to_json as document
    from mltcp_tools.lab.planning.cluster_report import render_cluster
    from mltcp_tools.lab.planning.reading import read_text
    from mltcp_tools.lab.planning.topology import parse_cluster
    from mltcp_tools.lab.profiling.progress import PartsBar

    parsed = parse_cluster(read_text(file), str(file))
    with PartsBar() as bar:
        plans = plan_cluster(
            parsed,
            angle_deg=angle,
            tolerance=tolerance,
            time_limit_s=time_limit,
            loops=loops,
            rank=rank,
            done=bar.done,
        )
    to.write(document(plans), render_cluster(plans))
    if all(plan.loop for plan in plans):
        raise MltcpError("Every placement has a loop and was discarded; try --loops joint.")


@command.command()
@click.argument("file", type=click.Path(path_type=Path))
@shown_option("--rate", type=RATE, default="1gbit", help="Rate of every port.")
@click.option(
    "--online", is_flag=True, help="Coflows arrive when FILE says; else all are there at the start."
)
@list_option(
    "--order",
    "policies",
    allowed=("BSSI", "epochs", "FIFO", "SEBF", "SEBF greedy", "fair"),
    metavar="ORDER,…",
    help="Compute only these: BSSI, epochs, FIFO, SEBF, SEBF greedy, fair.  [default: all; epochs"
    " only with --online]",
)
@_output_option
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def coflows(
    file: Path,
    rate: float,
    online: bool,
    policies: tuple[Policy, ...],
    output: Path | None,
    as_json: bool,
) -> None:
    """Order the coflows in FILE (Sincronia), and compute how long they take.

    FILE is a trace in the format of coflow-benchmark. BSSI is Sincronia's order, epochs its variant
    for many arrivals, SEBF that of Varys, and fair what fair sharing gives; see
    mltcp_tools/lab/planning/coflows_fabric.py.
    """
    from mltcp_tools.lab.planning.coflows_fabric import POLICIES
    from mltcp_tools.lab.planning.coflows_text import plan_coflows, render_coflows
    from mltcp_tools.lab.planning.coflows_trace import read_trace

    if rate <= 0:
        raise UsageError("--rate is 0; give the ports a rate, like 1gbit.")
    if "epochs" in policies and not online:
        raise UsageError("epochs pass only where coflows arrive one by one; add --online.")
    chosen = policies or [each for each in POLICIES if online or each != "epochs"]
    document = plan_coflows(read_trace(file), chosen, rate, online)
    _Output(output, as_json).write(document, render_coflows(document))
