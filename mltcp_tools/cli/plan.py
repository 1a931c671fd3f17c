# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp plan`: which jobs fit together, and when each should start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mltcp_tools.base.errors import UsageError
from mltcp_tools.cli.options import FRACTION, RATE, list_option, shown_option
from mltcp_tools.cli.text import examples

if TYPE_CHECKING:
    from mltcp_tools.lab.planning.coflows_fabric import Policy


@click.group()
def command() -> None:
    """Plan which jobs share links, by how much to shift each, and in which order they send."""


_tolerance_option = shown_option(
    "--tolerance",
    type=FRACTION,
    default="1%",
    help="Share by which iterations may be stretched to find a common multiple of their times.",
)
_json_option = click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")


def _show(document: dict[str, Any], text: str, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        click.echo(text, nl=False)


@command.command(
    epilog=examples("mltcp plan score runs/four-jobs", "mltcp plan score jobs.yaml --rate 10gbit")
)
@click.argument("jobs", type=click.Path(path_type=Path))
@click.option(
    "--rate", type=RATE, help="Rate of the link, such as 10gbit.  [default: the one in JOBS]"
)
@click.option(
    "--variant",
    help="Variant of the run folder that the jobs are taken from.  [default: alone]",
)
@_tolerance_option
@_json_option
def score(
    jobs: Path,
    rate: float | None,
    variant: str | None,
    tolerance: float,
    as_json: bool,
) -> None:
    """Score how well jobs share one link (Cassini).

    Prints the score, and the time shift of each job. A score of 1 means that with these shifts the
    jobs together never need more than the link's rate. JOBS is a run folder of `mltcp testbed run`
    or `mltcp lab record`, or a YAML file of profiles, as `mltcp lab profile` writes it.
    """
    from mltcp_tools.lab.planning.link import score_link
    from mltcp_tools.lab.planning.reading import read_source
    from mltcp_tools.lab.planning.text import render_link

    profiles, known_rate = read_source(jobs, variant)
    capacity = known_rate if rate is None else rate
    if capacity is None:
        raise UsageError(f"{jobs} names no link; give its rate with --rate.")
    plan = score_link(profiles, capacity, tolerance=tolerance)
    _show(plan.to_json(), render_link(plan), as_json)


@command.command(epilog=examples("mltcp plan cluster mltcp_tools/lab/planning/examples/racks.yaml"))
@click.argument("file", type=click.Path(path_type=Path))
@_tolerance_option
@_json_option
def cluster(file: Path, tolerance: float, as_json: bool) -> None:
    """Rank placements of jobs by their mean score (Cassini).

    Prints the time shift of each job, too. FILE is YAML with links, jobs and candidate placements;
    mltcp_tools/lab/planning/topology.py describes it.
    """
    from mltcp_tools.lab.planning.cluster import plan_cluster
    from mltcp_tools.lab.planning.cluster import to_json as document
    from mltcp_tools.lab.planning.cluster_report import render_cluster
    from mltcp_tools.lab.planning.reading import read_text
    from mltcp_tools.lab.planning.topology import parse_cluster

    parsed = parse_cluster(read_text(file), str(file))
    plans = plan_cluster(parsed, tolerance=tolerance)
    _show(document(plans), render_cluster(plans), as_json)


@command.command(
    epilog=examples(
        "mltcp plan coflows trace.txt", "mltcp plan coflows trace.txt --order BSSI,fair"
    )
)
@click.argument("file", type=click.Path(path_type=Path))
@shown_option("--rate", type=RATE, default="1gbit", help="Rate of each port, such as 10gbit.")
@click.option(
    "--online",
    is_flag=True,
    help="Let coflows arrive at the times in FILE.  [default: all at the start]",
)
@list_option(
    "--order",
    "policies",
    allowed=("BSSI", "FIFO", "fair"),
    metavar="ORDER,…",
    help="Orders to compute: BSSI (Sincronia), FIFO, fair (sharing).  [default: all]",
)
@_json_option
def coflows(
    file: Path, rate: float, online: bool, policies: tuple[Policy, ...], as_json: bool
) -> None:
    """Order coflows (Sincronia), and compute their completion times.

    FILE is a trace in the format of coflow-benchmark.
    """
    from mltcp_tools.lab.planning.coflows_fabric import POLICIES
    from mltcp_tools.lab.planning.coflows_text import plan_coflows, render_coflows
    from mltcp_tools.lab.planning.coflows_trace import read_trace

    if rate <= 0:
        raise UsageError("--rate is 0; give the ports a rate, like 1gbit.")
    document = plan_coflows(read_trace(file), policies or POLICIES, rate, online)
    _show(document, render_coflows(document), as_json)
