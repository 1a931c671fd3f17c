# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp cluster`: whole clusters in virtual time, and the schedulers that need them."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterable
from pathlib import Path

import click

from mltcp_tools.base.errors import UsageError
from mltcp_tools.cli.cluster_own import ask, import_, replay
from mltcp_tools.cli.cluster_studies import marl
from mltcp_tools.cli.options import FRACTION, list_option, output_folder, shown_option

windows_option = click.option(
    "--windows",
    "parts",
    type=click.IntRange(2),
    help="Cut the jobs into so many disjoint windows, for intervals over these.",
)


@click.group()
def command() -> None:
    """Simulate whole clusters: which scheduler and which congestion control gain what."""


@command.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option(
    "--workload",
    "trace",
    metavar="KIND:FILE",
    help="Take the jobs from a public trace: gavel:FILE, sia:FILE or elasticflow:FILE.",
)
@list_option(
    "--policy",
    "policies",
    metavar="A,B,…",
    help="Schedulers to compare.  [default: fifo, or predicted with --pairs]",
)
@list_option(
    "--treatment",
    "treatments",
    default=("mltcp",),
    show_default=True,
    metavar="A,B,…",
    help="Rule for jobs on a link: reno, mltcp, time shifts, rates, priorities, aggregation and"
    " others.",
)
@click.option(
    "--pairs",
    metavar="gavel:FILE",
    help="Let jobs share GPUs, with the slow-downs measured there.",
)
@click.option("--jobs", type=click.IntRange(1), help="Only the first N jobs.")
@shown_option(
    "--shorter",
    type=click.FloatRange(1),
    default=1.0,
    help="Factor by which jobs, the times between them, and schedulers' rounds are shorter.",
)
@output_folder("Write a run folder: every job, and the summaries.")
@click.option(
    "--seed",
    type=click.IntRange(1),
    help="Of the first draw of jobs, paths, luck and random policies.  [default: FILE's, or 1]",
)
@shown_option("--draws", type=click.IntRange(1), default=1, help="Number of draws, for intervals.")
@windows_option
@shown_option(
    "--executor",
    default="processes",
    metavar="WHERE",
    help="Engine of the runs: processes (of this machine), ray (a local cluster) or ray:ADDRESS.",
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def run(
    file: Path | None,
    trace: str | None,
    policies: tuple[str, ...],
    treatments: tuple[str, ...],
    pairs: str | None,
    jobs: int | None,
    shorter: float,
    output: Path | None,
    seed: int | None,
    draws: int,
    parts: int | None,
    executor: str,
    as_json: bool,
) -> None:
    """Run the workload in FILE, or of a trace, under every policy and treatment named.

    FILE is YAML with the cluster and, without --workload, its jobs;
    mltcp_tools/clusters/workload.py describes it. With several draws, figures are means, and each
    line says what it saves of the first one's completion times, with an interval; with --windows,
    that goes over disjoint parts of a trace. Each run is named when it is done.
    """
    from mltcp_tools.base.run_tables import check_folder
    from mltcp_tools.clusters.outcome import Outcome
    from mltcp_tools.clusters.pairs import read_pairs
    from mltcp_tools.clusters.policies import known
    from mltcp_tools.clusters.report import write_report
    from mltcp_tools.clusters.rules import treatment
    from mltcp_tools.clusters.sweep import Task, sweep
    from mltcp_tools.clusters.text import long, render_summaries
    from mltcp_tools.clusters.traces import read_workload, windows
    from mltcp_tools.clusters.workload import Workload
    from mltcp_tools.kernel.environment import Environment

    if parts and draws > 1:
        raise UsageError("--windows take the place of --draws; leave one of them out.")
    policies = policies or (("predicted",) if pairs else ("fifo",))
    for name in policies:
        if known(name).shares and pairs is None:
            raise UsageError(f"{name} lets jobs share GPUs: say how that slows them with --pairs.")
    variants = [(name, treatment(how).name) for name in policies for how in treatments]
    first = read_workload(file, trace, seed)
    measured = None if pairs is None else read_pairs(pairs)

    def drawn(seed: int) -> Workload:
        found = first if seed == first.seed else read_workload(file, trace, seed)
        found = dataclasses.replace(found, jobs=found.jobs[:jobs]).shorter(shorter)
        return found if measured is None else found.with_pairs(measured)

    if parts:
        workloads: Iterable[Workload] = windows(drawn(first.seed), parts)
    else:
        workloads = map(drawn, range(first.seed, first.seed + draws))
    if output is not None:
        check_folder(output)
        output.mkdir(parents=True, exist_ok=True)
        environment = Environment(output)
        environment.add(simulated=True)
    tasks = [Task(each, name, how, shorter) for each in workloads for name, how in variants]
    done: dict[int, Outcome] = {}
    for place, outcome in sweep(tasks, executor):
        done[place] = outcome
        mean_s = float(outcome.summary()["completion_mean_s"])
        click.echo(
            f"{len(done)} of {len(tasks)}: {outcome.policy}, {outcome.treatment}, seed"
            f" {outcome.seed}: completion {long(mean_s)}",
            err=True,
        )
    outcomes = [done[place] for place in range(len(tasks))]
    summaries = [outcome.summary() for outcome in outcomes]
    if output is not None:
        if file is not None:
            shutil.copyfile(file, output / "workload.yaml")
        write_report(output, outcomes)
        environment.finish("finished")
    if as_json:
        click.echo(json.dumps({"schema": "mltcp-cluster/1", "runs": summaries}, indent=2))
    else:
        click.echo(render_summaries(summaries), nl=False)


@command.command()
@click.argument("file", type=click.Path(path_type=Path))
@list_option(
    "--workload",
    "traces",
    required=True,
    metavar="KIND:FILE,…",
    help="Training jobs, as for run; a comparison for each.",
)
@click.option("--requests", required=True, metavar="azure:FILE", help="Requests to serve.")
@shown_option(
    "--inference",
    type=click.IntRange(1),
    default=4,
    metavar="SERVERS",
    help="Number of servers that inference owns.",
)
@shown_option(
    "--tenants", type=click.IntRange(1), default=12, help="Tenants that replay the requests."
)
@shown_option(
    "--swing", type=FRACTION, default="70%", help="Share of their requests missing at night."
)
@shown_option(
    "--treatment", "how", default="mltcp", help="Rule by which jobs share links, as for run."
)
@shown_option(
    "--seed",
    type=click.IntRange(1),
    default=1,
    help="Of the first draw: tenants' requests, jobs' paths and luck.",
)
@click.option(
    "--draws", type=click.IntRange(1), help="Number of draws, for intervals.  [default: 3]"
)
@windows_option
@shown_option(
    "--faster",
    type=click.FloatRange(0.01),
    default=1.0,
    help="Factor by which training jobs arrive faster.",
)
@shown_option(
    "--shorter",
    type=click.FloatRange(1),
    default=1.0,
    help="Factor by which training jobs, and the times between them, are shorter.",
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def fapes(
    file: Path,
    traces: tuple[str, ...],
    requests: str,
    inference: int,
    tenants: int,
    swing: float,
    faster: float,
    shorter: float,
    how: str,
    seed: int,
    draws: int | None,
    parts: int | None,
    as_json: bool,
) -> None:
    """Share the cluster in FILE between training and inference: statically, as Lyra, as FaPES.

    Figures are means over draws of the tenants' requests, and of jobs' paths and luck; with
    --windows, over disjoint parts of each trace.

    TENANTS replay the requests until the last job arrives, less SWING of them at night. In the
    static split and as Lyra, inference owns SERVERS of them, and Knative's autoscaler uses these.
    A table of the goals that are reached comes last.
    """
    from mltcp_tools.clusters.fapes.compare import compare
    from mltcp_tools.clusters.fapes.goals import goals
    from mltcp_tools.clusters.fapes.inference import Service, replayed
    from mltcp_tools.clusters.rules import treatment
    from mltcp_tools.clusters.text import render_loans
    from mltcp_tools.clusters.traces import read_requests, read_workload, windows
    from mltcp_tools.clusters.workload import Workload

    if parts and draws:
        raise UsageError("--windows take the place of --draws; leave one of them out.")

    def drawn(trace: str, draw: int) -> Workload:
        found = read_workload(file, trace, draw).shorter(shorter)
        jobs = (dataclasses.replace(j, arrival_s=j.arrival_s / faster) for j in found.jobs)
        return dataclasses.replace(found, jobs=tuple(jobs))

    asked = read_requests(requests)
    compared = {}
    for trace in traces:
        results = []
        if parts:
            workloads = windows(drawn(trace, seed), parts)
        else:
            workloads = [drawn(trace, draw) for draw in range(seed, seed + (draws or 3))]
        for draw, workload in enumerate(workloads, seed):
            served = replayed(asked, workload.jobs[-1].arrival_s / 3600, tenants, swing, draw)
            results.append(compare(workload, served, Service(), treatment(how), inference))
        compared[trace] = {
            "draws": [[result.summary() for result in each] for each in results],
            "goals": [goal.document() for goal in goals(results)],
        }
    if as_json:
        click.echo(json.dumps({"schema": "mltcp-fapes/5", "traces": compared}, indent=2))
    else:
        click.echo(render_loans(compared), nl=False)


@command.command("policies")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def policies_command(as_json: bool) -> None:
    """List the schedulers and the treatments."""
    from mltcp_tools.clusters.policies import POLICIES
    from mltcp_tools.clusters.rules import TREATMENTS

    if as_json:
        found = {"policies": list(POLICIES), "treatments": list(TREATMENTS)}
        click.echo(json.dumps(found, indent=2))
        return
    click.echo(f"policies: {', '.join(POLICIES)}")
    click.echo(f"treatments: {', '.join(TREATMENTS)}")


for each in (marl, import_, replay, ask):
    command.add_command(each)
