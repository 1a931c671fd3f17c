"""`mltcp cluster`: whole clusters in virtual time, and the schedulers that need them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mltcp_tools.cli.options import list_option
from mltcp_tools.errors import UsageError

if TYPE_CHECKING:
    from mltcp_tools.clusters.workload import Workload


@click.group()
def command() -> None:
    """Simulate whole clusters: which scheduler and which congestion control gain what."""


@command.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option(
    "--trace",
    metavar="KIND:FILE",
    help="Take the jobs from a public trace: gavel:FILE, sia:FILE or elasticflow:FILE.",
)
@list_option(
    "--policy",
    "policies",
    default=("fifo",),
    show_default=True,
    metavar="A,B,…",
    help="Schedulers to compare.",
)
@list_option(
    "--treatment",
    "treatments",
    default=("mltcp",),
    show_default=True,
    metavar="A,B,…",
    help="How jobs share links: reno, mltcp, turns, priority, aggregation and others.",
)
@click.option("--jobs", type=click.IntRange(1), help="Only so many jobs, the first ones.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True)
@click.option("--no-skip", is_flag=True, help="Simulate rounds that repeat instead of adding them.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def run(
    file: Path | None,
    trace: str | None,
    policies: tuple[str, ...],
    treatments: tuple[str, ...],
    jobs: int | None,
    seed: int,
    no_skip: bool,
    as_json: bool,
) -> None:
    """Run the workload in FILE, or of a trace, under every policy and treatment named.

    FILE is YAML with the cluster and, without --trace, its jobs;
    mltcp_tools/clusters/workload.py describes it.
    """
    from tqdm import tqdm

    from mltcp_tools.clusters.policies import policy
    from mltcp_tools.clusters.rules import treatment
    from mltcp_tools.clusters.simulate import simulate_cluster
    from mltcp_tools.clusters.text import render_summaries

    workload = _workload(file, trace)
    if jobs is not None:
        workload = dataclasses.replace(workload, jobs=workload.jobs[:jobs])
    pairs = [(policy(name, seed), treatment(how)) for name in policies for how in treatments]
    summaries: list[dict[str, Any]] = []
    with tqdm(total=len(pairs) * len(workload.jobs), unit=" jobs", disable=None) as bar:
        for each, how in pairs:
            outcome = simulate_cluster(
                workload, each, how, skip=not no_skip, said=lambda done: bar.update() and None
            )
            summaries.append(outcome.summary())
    if as_json:
        click.echo(json.dumps({"schema": "mltcp-cluster/1", "runs": summaries}, indent=2))
    else:
        click.echo(render_summaries(summaries), nl=False)


def _workload(file: Path | None, trace: str | None) -> Workload:
    from mltcp_tools.clusters.topology import Topology
    from mltcp_tools.clusters.traces import read_jobs
    from mltcp_tools.clusters.workload import Workload, parse_cluster, parse_workload
    from mltcp_tools.planning.reading import read_text

    if trace is None:
        if file is None:
            raise UsageError("name a FILE with a workload, or a --trace.")
        return parse_workload(read_text(file), str(file))
    if file is None:
        topology = Topology()
        return Workload(topology, read_jobs(trace, topology))
    base = parse_cluster(read_text(file), str(file))
    return dataclasses.replace(base, jobs=read_jobs(trace, base.topology))


@command.command()
@click.argument("experiments", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def validate(experiments: tuple[str, ...], as_json: bool) -> None:
    """Compare the rules of sharing with the packet simulator, on EXPERIMENTS or all known ones.

    Iteration times should be within 5 %, and within 2 % where jobs take turns.
    """
    from mltcp_tools.clusters.text import render_cases
    from mltcp_tools.clusters.validate import EXPERIMENTS, validate

    cases = validate(experiments or EXPERIMENTS, lambda name: click.echo(f"{name}…", err=True))
    if as_json:
        click.echo(json.dumps([case.to_json() for case in cases], indent=2))
    else:
        click.echo(render_cases(cases), nl=False)


@command.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--trace", required=True, metavar="KIND:FILE", help="Training jobs, as for run.")
@click.option("--requests", required=True, metavar="azure:FILE", help="Requests to serve.")
@click.option(
    "--inference", type=click.IntRange(1), default=4, show_default=True, metavar="SERVERS"
)
@click.option("--tenants", type=click.IntRange(1), default=12, show_default=True)
@click.option("--swing", type=click.FloatRange(0, 1), default=0.7, show_default=True)
@click.option("--treatment", "how", default=("mltcp",), show_default=True)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def fapes(
    file: Path,
    trace: str,
    requests: str,
    inference: int,
    tenants: int,
    swing: float,
    how: str,
    seed: int,
    as_json: bool,
) -> None:
    """Share the cluster in FILE between training and inference: statically, as Lyra, as FaPES.

    TENANTS replay the requests until the last job arrives, less SWING of them at night. In the
    static split and as Lyra, inference owns so many SERVERS and Knative's autoscaler uses them.
    """
    from mltcp_tools.clusters.fapes.compare import compare
    from mltcp_tools.clusters.fapes.inference import replayed
    from mltcp_tools.clusters.requests import Service
    from mltcp_tools.clusters.rules import treatment
    from mltcp_tools.clusters.text import render_loans
    from mltcp_tools.clusters.traces import read_requests

    workload = _workload(file, trace)
    hours = workload.jobs[-1].arrival_s / 3600
    served = replayed(read_requests(requests), hours, tenants, swing, seed)
    results = compare(workload, served, Service(), treatment(how), inference)
    summaries = [result.summary() for result in results]
    if as_json:
        click.echo(json.dumps({"schema": "mltcp-fapes/1", "arms": summaries}, indent=2))
    else:
        click.echo(render_loans(summaries), nl=False)


@command.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def fit(files: tuple[Path, ...], as_json: bool) -> None:
    """Fit Pollux's performance model to tables of measured placements (adaptdl's)."""
    from mltcp_tools.clusters.fapes.performance import error, fit, read_placements

    found = {}
    for file in files:
        measured = read_placements(file)
        model = fit(measured)
        found[file.name] = dataclasses.asdict(model) | {
            "measurements": len(measured),
            "mean_error": error(model, measured),
        }
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    for name, values in found.items():
        numbers = ", ".join(f"{key} {value:.4g}" for key, value in values.items())
        click.echo(f"{name}: {numbers}")


@command.command("policies")
def policies_command() -> None:
    """List the schedulers and the treatments."""
    from mltcp_tools.clusters.policies import POLICIES
    from mltcp_tools.clusters.rules import TREATMENTS

    click.echo(f"policies: {', '.join(POLICIES)}")
    click.echo(f"treatments: {', '.join(TREATMENTS)}")
