# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp cluster`: whole clusters in virtual time, and the schedulers that need them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from mltcp_tools.base.errors import UsageError
from mltcp_tools.cli.cluster_own import ask, import_
from mltcp_tools.cli.options import list_option, shown_option, with_options
from mltcp_tools.cli.text import examples


def _draws_options(default: int, least: int = 1) -> Callable[[Any], Any]:
    """Options of commands that draw workloads: default and least number of draws."""
    options = (
        shown_option(
            "--shorter",
            type=click.FloatRange(1),
            default=1.0,
            help="Factor by which jobs and arrival times are shortened.",
        ),
        shown_option(
            "--draws",
            type=click.IntRange(least),
            default=default,
            help="Number of draws, for intervals.",
        ),
        click.option("--json", "as_json", is_flag=True, help="Print as JSON."),
    )
    return with_options(options)


@click.group()
def command() -> None:
    """Simulate whole clusters under different schedulers and congestion controls."""


@command.command(
    epilog=examples(
        "mltcp cluster run cluster.yaml --workload sia:jobs.csv --policy fifo,cassini",
        "mltcp cluster run cluster.yaml --treatment reno,mltcp --draws 5",
    )
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--workload",
    "trace",
    metavar="KIND:FILE",
    help="Take the jobs from a public trace: sia:FILE or elasticflow:FILE.",
)
@list_option(
    "--policy",
    "policies",
    default=("fifo",),
    show_default=True,
    metavar="A,B,…",
    help="Schedulers to compare: fifo, cassini, elastic, replay.",
)
@list_option(
    "--treatment",
    "treatments",
    default=("mltcp",),
    show_default=True,
    metavar="A,B,…",
    help="Rules by which jobs share links: fair, reno, mltcp, time_shifts, mltcp+time_shifts.",
)
@click.option(
    "--ray",
    "address",
    metavar="ADDRESS",
    help="Run over the Ray cluster at this address; local starts one on all CPUs of this machine."
    "  [default: one run after another]",
)
@_draws_options(1)
def run(
    file: Path,
    trace: str | None,
    policies: tuple[str, ...],
    treatments: tuple[str, ...],
    address: str | None,
    shorter: float,
    draws: int,
    as_json: bool,
) -> None:
    """Run a workload under each policy and treatment.

    FILE is YAML with the cluster and, without --workload, its jobs;
    mltcp_tools/clusters/reading.py describes it. With several --draws, the figures are means
    over random draws (of jobs, paths and random variation), and each line gives the reduction of
    completion times compared with the first line, with an interval. The JSON has every job, too.
    """
    from mltcp_tools.clusters.outcome import Outcome
    from mltcp_tools.clusters.policies import policy
    from mltcp_tools.clusters.rules import treatment
    from mltcp_tools.clusters.sweep import Task, sweep
    from mltcp_tools.clusters.text import long, render_summaries
    from mltcp_tools.clusters.traces import read_draws

    # Names that don't exist are refused before anything runs.
    variants = [(policy(n).name, treatment(t).name) for n in policies for t in treatments]
    workloads = read_draws(file, trace, draws, shorter)
    tasks = [Task(each, name, how) for each in workloads for name, how in variants]
    done: dict[int, Outcome] = {}
    for place, outcome in sweep(tasks, address):
        done[place] = outcome
        click.echo(
            f"{len(done)} of {len(tasks)}: {outcome.policy}, {outcome.treatment}, seed"
            f" {outcome.seed}: completion {long(outcome.summary()['completion_mean_s'])}",
            err=True,
        )
    outcomes = [done[place] for place in range(len(tasks))]
    if as_json:
        runs = [each.summary() | {"each": [vars(job) for job in each.jobs]} for each in outcomes]
        click.echo(json.dumps({"schema": "mltcp-cluster/2", "runs": runs}, indent=2))
    else:
        click.echo(render_summaries([each.summary() for each in outcomes]), nl=False)


@command.command(
    epilog=examples(
        "mltcp cluster fapes cluster.yaml --workload sia:jobs.csv --requests azure:requests.csv"
    )
)
@click.argument("file", type=click.Path(path_type=Path))
@list_option(
    "--workload",
    "traces",
    required=True,
    metavar="KIND:FILE,…",
    help="Training jobs, as for `mltcp cluster run`; each trace is compared by itself.",
)
@click.option("--requests", required=True, metavar="azure:FILE", help="Requests to serve.")
@shown_option("--inference", type=click.IntRange(1), default=4, help="Servers that inference owns.")
@shown_option(
    "--tenants", type=click.IntRange(1), default=12, help="Tenants that replay the requests."
)
@_draws_options(3, least=2)
def fapes(
    file: Path,
    traces: tuple[str, ...],
    requests: str,
    inference: int,
    tenants: int,
    shorter: float,
    draws: int,
    as_json: bool,
) -> None:
    """Compare FaPES with other ways to share a cluster between training and inference.

    Each rival lacks a part of FaPES: static-elastic lends no servers, lyra has another scheduler,
    fapes-kpa a tuned autoscaler instead of a prediction, and with fapes-fixed the batch of each GPU
    stays. FILE describes the cluster, as for `mltcp cluster run`.

    The tenants replay the requests until the last job arrives, with 70 % fewer at night. Figures
    are means over --draws of requests, paths and random variation; FaPES' savings come last.
    """
    from mltcp_tools.clusters.fapes.compare import compare, saved
    from mltcp_tools.clusters.fapes.inference import replayed
    from mltcp_tools.clusters.text import render_loans
    from mltcp_tools.clusters.traces import read_draws, read_requests

    asked = read_requests(requests)
    compared = {}
    for trace in traces:
        results = []
        workloads = read_draws(file, trace, draws, shorter)
        for draw, workload in enumerate(workloads, 1):
            served = replayed(asked, workload.jobs[-1].arrival_s / 3600, tenants, draw)
            click.echo(f"{trace}, draw {draw} of {draws}…", err=True)
            results.append(compare(workload, served, inference))
        compared[trace] = {"draws": results, "saved": saved(results)}
    if as_json:
        click.echo(json.dumps({"schema": "mltcp-fapes/7", "traces": compared}, indent=2))
    else:
        click.echo(render_loans(compared), nl=False)


@command.command(epilog=examples("mltcp cluster marl crowded.yaml --rounds 80"))
@click.argument("file", type=click.Path(path_type=Path))
@shown_option("--rounds", type=click.IntRange(0), default=20, help="Number of learning rounds.")
@shown_option(
    "--held-out", type=click.IntRange(2), default=30, help="Number of workloads to compare on."
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def marl(file: Path, rounds: int, held_out: int, as_json: bool) -> None:
    """Train schedulers that learn where jobs go, and compare them with others.

    These are `fifo` with backfilling, as which training begins, and `predicted`, which takes the
    place that the interference model calls best. Lines say how far both are below `marl`.

    FILE describes a cluster and jobs to draw (`generate`), as for `run`. Each leaf has a scheduler
    (multi-agent reinforcement learning, arXiv 2112.13354). Workloads to train on, to choose among
    networks and to compare on have different seeds. The same command gives the same numbers on the
    same host.
    """
    from mltcp_tools.clusters.marl.train import HELD_OUT, evaluate, train
    from mltcp_tools.clusters.text import render_summaries
    from mltcp_tools.clusters.traces import read_workload
    from mltcp_tools.clusters.workload import Workload

    def draw(seed: int) -> Workload:
        return read_workload(file, None, seed)

    if draw(HELD_OUT).jobs[0].arrival_s == draw(HELD_OUT + 1).jobs[0].arrival_s:
        raise UsageError(f"{file} lists its jobs; describe jobs to draw in `generate` instead.")
    agents, known = train(draw, 1, rounds, lambda what: click.echo(what, err=True))
    runs = evaluate(draw, held_out, agents, known)
    if as_json:
        model = {"error": known.error, "guess": known.guess}
        document = {"schema": "mltcp-cluster-marl/10", "runs": runs, "interference": model}
        click.echo(json.dumps(document, indent=2))
    else:
        click.echo(render_summaries(runs))
        click.echo(
            f"Interference model: slow-downs are off by {known.error:.3f} (their mean by"
            f" {known.guess:.3f})."
        )


for each in (import_, ask):
    command.add_command(each)
