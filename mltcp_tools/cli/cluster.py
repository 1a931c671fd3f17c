"""`mltcp cluster`: whole clusters in virtual time, and the schedulers that need them."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import click

from mltcp_tools.cli.cluster_own import ask, import_, replay
from mltcp_tools.cli.cluster_studies import marl, matrix, results, validate
from mltcp_tools.cli.options import FRACTION, Quantity, list_option, output_folder, shown_option
from mltcp_tools.cli.text import show_table
from mltcp_tools.columns import Column
from mltcp_tools.errors import UsageError
from mltcp_tools.units import exact_seconds, parse_seconds


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
    help="Schedulers to compare; NAME-estimated estimates lengths.  [default: fifo or predicted]",
)
@list_option(
    "--treatment",
    "treatments",
    default=("mltcp",),
    show_default=True,
    metavar="A,B,…",
    help="Rule for jobs on a link: reno, mltcp, turns, rates, priorities, aggregation and others.",
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
@output_folder("Write a run folder: every job, plots, a report.")
@click.option(
    "--seed",
    type=click.IntRange(1),
    help="Of the first draw of jobs, paths, luck and random policies.  [default: FILE's, or 1]",
)
@shown_option("--draws", type=click.IntRange(1), default=1, help="Number of draws, for intervals.")
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
    as_json: bool,
) -> None:
    """Run the workload in FILE, or of a trace, under every policy and treatment named.

    FILE is YAML with the cluster and, without --workload, its jobs;
    mltcp_tools/clusters/workload.py describes it. With several draws, figures are means, and each
    line says what it saves of the first one's completion times, with an interval.
    """
    from tqdm import tqdm

    from mltcp_tools.clusters.outcome import Outcome
    from mltcp_tools.clusters.pairs import read_pairs
    from mltcp_tools.clusters.policies import known, policy
    from mltcp_tools.clusters.report import write_report
    from mltcp_tools.clusters.rules import treatment
    from mltcp_tools.clusters.simulate import ClusterSimulator
    from mltcp_tools.clusters.text import render_summaries
    from mltcp_tools.clusters.traces import read_workload
    from mltcp_tools.clusters.workload import Workload
    from mltcp_tools.live.observe.environment import Environment
    from mltcp_tools.live.observe.tables import check_folder

    policies = policies or (("predicted",) if pairs else ("fifo",))
    for name in policies:
        if known(name).shares and pairs is None:
            raise UsageError(f"{name} lets jobs share GPUs: say how that slows them with --pairs.")
    arms = [(name, treatment(how)) for name in policies for how in treatments]
    first = read_workload(file, trace, seed)
    measured = None if pairs is None else read_pairs(pairs)

    def drawn(seed: int) -> Workload:
        found = first if seed == first.seed else read_workload(file, trace, seed)
        found = dataclasses.replace(found, jobs=found.jobs[:jobs]).shorter(shorter)
        return found if measured is None else found.with_pairs(measured)

    if output is not None:
        check_folder(output)
        output.mkdir(parents=True, exist_ok=True)
        environment = Environment(output)
        environment.add(simulated=True)
    outcomes: list[Outcome] = []
    total = draws * len(arms) * min(len(first.jobs), jobs or len(first.jobs))
    with tqdm(total=total, unit=" jobs", disable=None) as bar:
        for workload in map(drawn, range(first.seed, first.seed + draws)):
            for name, how in arms:
                each = policy(name, workload.seed, shorter)
                outcomes.append(
                    ClusterSimulator(
                        workload, each, how, said=lambda done: bar.update() and None
                    ).run()
                )
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
@shown_option("--draws", type=click.IntRange(1), default=3, help="Number of draws, for intervals.")
@shown_option(
    "--faster",
    type=click.FloatRange(0.01),
    default=1.0,
    help="Factor by which training jobs arrive faster.",
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
    how: str,
    seed: int,
    draws: int,
    as_json: bool,
) -> None:
    """Share the cluster in FILE between training and inference: statically, as Lyra, as FaPES.

    Figures are means over draws of the tenants' requests, and of jobs' paths and luck.

    TENANTS replay the requests until the last job arrives, less SWING of them at night. In the
    static split and as Lyra, inference owns SERVERS of them, and Knative's autoscaler uses these.
    A table of the goals that are reached comes last.
    """
    from mltcp_tools.clusters.fapes.compare import compare
    from mltcp_tools.clusters.fapes.goals import goals
    from mltcp_tools.clusters.fapes.inference import replayed
    from mltcp_tools.clusters.requests import Service
    from mltcp_tools.clusters.rules import treatment
    from mltcp_tools.clusters.text import render_loans
    from mltcp_tools.clusters.traces import read_requests, read_workload

    asked = read_requests(requests)
    compared = {}
    for trace in traces:
        results = []
        for draw in range(seed, seed + draws):
            workload = read_workload(file, trace, draw)
            jobs = [dataclasses.replace(j, arrival_s=j.arrival_s / faster) for j in workload.jobs]
            workload = dataclasses.replace(workload, jobs=tuple(jobs))
            served = replayed(asked, jobs[-1].arrival_s / 3600, tenants, swing, draw)
            results.append(compare(workload, served, Service(), treatment(how), inference))
        compared[trace] = {
            "draws": [[result.summary() for result in each] for each in results],
            "goals": [goal.document() for goal in goals(results)],
        }
    if as_json:
        click.echo(json.dumps({"schema": "mltcp-fapes/4", "traces": compared}, indent=2))
    else:
        click.echo(render_loans(compared), nl=False)


@command.command()
@output_folder("Run folder, new or empty.", default=Path("runs/cluster-live"), show_default=True)
@click.option("--requests", metavar="azure:FILE", help="The load.")
@shown_option(
    "--duration",
    "seconds",
    type=Quantity("time", parse_seconds, 10, shown=exact_seconds),
    default="120s",
    metavar="TIME",
    help="Time that it runs.",
)
@shown_option(
    "--faster",
    type=click.FloatRange(0.1),
    default=4.0,
    help="Factor by which the load is replayed faster.",
)
@shown_option("--cores", type=click.FloatRange(0.2), default=2.0, help="Cores that the two share.")
@shown_option(
    "--slo",
    type=Quantity("time", parse_seconds, 0.001, shown=exact_seconds),
    default="1s",
    metavar="TIME",
    help="The latency that requests should keep to.",
)
@shown_option("--goal", type=FRACTION, default="95%", help="Least share of requests within it.")
@click.option("--stop", is_flag=True, help="End what a killed controller left running.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def live(
    output: Path,
    requests: str | None,
    seconds: float,
    faster: float,
    cores: float,
    slo: float,
    goal: float,
    stop: bool,
    as_json: bool,
) -> None:
    """Share this host's cores between an elastic training job and an inference server.

    Both are real: torchrun over Gloo, and a small model behind HTTP. The load is a trace, replayed
    FASTER than recorded. Exits with 1 where fewer requests than GOAL kept to SLO. Needs root for
    control groups.
    """
    from mltcp_tools.clusters.live import controller
    from mltcp_tools.clusters.live.report import draw, summary
    from mltcp_tools.clusters.traces import read_requests
    from mltcp_tools.live.observe.tables import check_folder

    if stop:
        controller.stop(output)
        return
    if requests is None:
        raise UsageError("name the load with --requests.")
    read_requests(requests)
    controller.require_unused(output)
    check_folder(output)
    output.mkdir(parents=True, exist_ok=True)
    controller.Controller(output, cores).run(requests, seconds, faster)
    (output / "live.png").write_bytes(draw(output, slo))
    document = summary(output, slo, goal)
    (output / "summary.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    if as_json:
        click.echo(json.dumps(document, indent=2))
    else:
        shown = [(key, str(value)) for key, value in document.items() if key != "schema"]
        show_table((Column("MEASURE", left=True), Column("VALUE")), shown)
    click.get_current_context().exit(0 if document["slo_kept"] else 1)


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


for each in (validate, matrix, marl, import_, replay, ask, results):
    command.add_command(each)
