# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp plan`: which jobs fit together, and when each should start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mltcp_tools.base.errors import UsageError
from mltcp_tools.cli.options import FRACTION, RATE, SECONDS, list_option, shown_option

if TYPE_CHECKING:
    from mltcp_tools.lab.planning.coflows_fabric import Policy


@click.group()
def command() -> None:
    """Plan which jobs share links and by how much to shift each, and in which order they send."""


_tolerance_option = shown_option(
    "--tolerance",
    type=FRACTION,
    default="1%",
    help="By how much iterations may be stretched to have a common multiple.",
)
_json_option = click.option("--json", "as_json", is_flag=True, help="Print as JSON.")


def _show(document: dict[str, Any], text: str, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        click.echo(text, nl=False)


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
@_tolerance_option
@_json_option
def score(
    jobs: Path,
    rate: float | None,
    variant: str | None,
    time_limit: float | None,
    tolerance: float,
    as_json: bool,
) -> None:
    """Score how well JOBS fit on one link, and by how much to shift each.

    JOBS is a run folder of `mltcp testbed run` or `mltcp lab record`, or a YAML file of profiles
    (`mltcp lab profile` makes one). A score of 1 means that their bursts never ask for more than
    the link's rate.
    """
    from mltcp_tools.lab.planning.link import score_link
    from mltcp_tools.lab.planning.reading import read_source
    from mltcp_tools.lab.planning.text import render_link

    profiles, known_rate = read_source(jobs, variant)
    capacity = known_rate if rate is None else rate
    if capacity is None:
        raise UsageError(f"{jobs} names no link; give its rate with --rate.")
    plan = score_link(profiles, capacity, tolerance=tolerance, time_limit_s=time_limit)
    _show(plan.to_json(), render_link(plan), as_json)


@command.command()
@click.argument("file", type=click.Path(path_type=Path))
@shown_option(
    "--time-limit",
    type=SECONDS,
    default="20s",
    help="Time limit of the solver, for all placements together.",
)
@_tolerance_option
@_json_option
def cluster(file: Path, time_limit: float, tolerance: float, as_json: bool) -> None:
    """Rank the candidate placements in FILE by their mean score, and shift the jobs of each.

    FILE is YAML with links, jobs and placements; mltcp_tools/lab/planning/topology.py describes it.
    """
    from mltcp_tools.lab.planning.cluster import plan_cluster
    from mltcp_tools.lab.planning.cluster import to_json as document
    from mltcp_tools.lab.planning.cluster_report import render_cluster
    from mltcp_tools.lab.planning.reading import read_text
    from mltcp_tools.lab.planning.topology import parse_cluster

    parsed = parse_cluster(read_text(file), str(file))
    plans = plan_cluster(parsed, tolerance=tolerance, time_limit_s=time_limit)
    _show(document(plans), render_cluster(plans), as_json)


@command.command()
@click.argument("file", type=click.Path(path_type=Path))
@shown_option("--rate", type=RATE, default="1gbit", help="Rate of every port.")
@click.option(
    "--online", is_flag=True, help="Coflows arrive when FILE says; else all are there at the start."
)
@list_option(
    "--order",
    "policies",
    allowed=("BSSI", "FIFO", "SEBF", "fair"),
    metavar="ORDER,…",
    help="Compute only these: BSSI, FIFO, SEBF, fair.  [default: all]",
)
@_json_option
def coflows(
    file: Path, rate: float, online: bool, policies: tuple[Policy, ...], as_json: bool
) -> None:
    """Order the coflows in FILE (Sincronia), and compute how long they take.

    FILE is a trace in the format of coflow-benchmark. BSSI is Sincronia's order, SEBF that of
    Varys, and fair what fair sharing gives (mltcp_tools/lab/planning/coflows_fabric.py).
    """
    from mltcp_tools.lab.planning.coflows_fabric import POLICIES
    from mltcp_tools.lab.planning.coflows_text import plan_coflows, render_coflows
    from mltcp_tools.lab.planning.coflows_trace import read_trace

    if rate <= 0:
        raise UsageError("--rate is 0; give the ports a rate, like 1gbit.")
    document = plan_coflows(read_trace(file), policies or POLICIES, rate, online)
    _show(document, render_coflows(document), as_json)
