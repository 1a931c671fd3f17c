"""Studies of `mltcp cluster`: rules against packets, schedulers with treatments, learning."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click

from mltcp_tools.cli.options import list_option, output_folder, shown_option


@click.command()
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


@click.command()
@output_folder(
    "Folder of its runs; what is there already isn't run again.",
    default=Path("runs/cluster-matrix"),
    show_default=True,
)
@click.option("--small", is_flag=True, help="Run a small matrix, of about two minutes.")
@click.option("--seeds", type=click.IntRange(1), help="How many draws of each workload.")
@list_option("--policy", "policies", metavar="A,B", help="Only these schedulers besides the rest.")
@shown_option(
    "--executor", default="processes", help="processes, ray (a local cluster) or ray:ADDRESS."
)
@click.option("--workers", type=click.IntRange(1), help="Processes.  [default: one per CPU]")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def matrix(
    output: Path,
    small: bool,
    seeds: int | None,
    policies: tuple[str, ...],
    executor: str,
    workers: int | None,
    as_json: bool,
) -> None:
    """Run every scheduler with every treatment on three workloads: who gains what, and together.

    Writes matrix.md and three plots next to the runs. Started again, it goes on where it stopped.
    """
    from tqdm import tqdm

    from mltcp_tools.clusters.question import (
        FULL,
        POLICIES,
        SMALL,
        answers,
        cells,
        differences,
        tasks,
    )
    from mltcp_tools.clusters.question_plots import draw, render
    from mltcp_tools.clusters.sweep import sweep

    chosen = policies or POLICIES
    needed = tuple(name for name in ("packed", "network", "cassini") if name not in chosen)
    size = SMALL if small else FULL
    if seeds is not None:
        size = dataclasses.replace(size, seeds=seeds)
    todo = tasks(size, (*chosen, *needed))
    with tqdm(total=len(todo), unit=" runs", disable=None) as bar:
        results = sweep(
            todo, output / "runs", executor, workers, lambda done: bar.update(done - bar.n) and None
        )
    found = cells(results)
    given = answers(found)
    apart = differences(results)
    text = render(found, given, apart)
    (output / "matrix.md").write_text(text, encoding="utf-8")
    for name, image in draw(found, given, results).items():
        (output / f"{name}.png").write_bytes(image)
    if as_json:
        document = {
            "schema": "mltcp-cluster-matrix/1",
            "cells": [dataclasses.asdict(each) for each in found],
            "answers": [dataclasses.asdict(each) for each in given],
            "differences": [dataclasses.asdict(each) for each in apart],
        }
        click.echo(json.dumps(document, indent=2))
    else:
        click.echo(text, nl=False)


@click.command()
@output_folder(
    "Folder of checkpoints; those that are there aren't trained again.",
    default=Path("runs/cluster-marl"),
    show_default=True,
)
@shown_option("--seeds", type=click.IntRange(1, 10), default=5)
@shown_option("--rounds", type=click.IntRange(1), default=20)
@shown_option("--held-out", type=click.IntRange(0), default=10, help="Draws to compare on.")
@list_option(
    "--trace", "traces", metavar="KIND:FILE,…", help="Compare on jobs of these traces, too."
)
@shown_option("--jobs", type=click.IntRange(1), default=150, help="Of a trace, the first.")
@list_option("--rivals", metavar="A,B,…", help="Compare with these alone.  [default: all]")
@shown_option(
    "--faster",
    type=click.FloatRange(0.01),
    default=1.0,
    help="Factor by which a trace's jobs arrive faster.",
)
@shown_option(
    "--shorter",
    type=click.FloatRange(1),
    default=1.0,
    help="Factor by which a trace's jobs, and the times between them, are shorter.",
)
@click.option(
    "--pairs",
    metavar="gavel:FILE",
    required=True,
    help="How jobs that share GPUs slow each other down, measured.",
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def marl(
    output: Path,
    seeds: int,
    rounds: int,
    held_out: int,
    traces: tuple[str, ...],
    jobs: int,
    rivals: tuple[str, ...],
    faster: float,
    shorter: float,
    pairs: str,
    as_json: bool,
) -> None:
    """Train schedulers that learn which jobs to let share GPUs, and compare them with the others.

    Held-out workloads are drawn from seeds that training never uses, and larger; jobs of traces
    come to the same cluster.
    """
    from mltcp_tools.clusters.marl.evaluate import (
        LARGE,
        RIVALS,
        draw_curves,
        drawn,
        evaluate,
        train_seeds,
    )
    from mltcp_tools.clusters.marl.train import Curriculum
    from mltcp_tools.clusters.pairs import read_pairs
    from mltcp_tools.clusters.rules import treatment
    from mltcp_tools.clusters.text import render_learned
    from mltcp_tools.clusters.traces import read_jobs
    from mltcp_tools.clusters.workload import Workload

    curriculum = Curriculum(read_pairs(pairs))
    sets = {f"{held_out} drawn": drawn(held_out, curriculum)} if held_out else {}
    for trace in traces:
        read = [
            dataclasses.replace(
                job,
                arrival_s=job.arrival_s / faster / shorter,
                iterations=max(1, round(job.iterations / shorter)),
            )
            for job in read_jobs(trace, LARGE)[:jobs]
        ]
        sets[trace] = [Workload(LARGE, tuple(read)).with_pairs(curriculum.pairs)]

    def say(seed: int, number: int, ratio: float) -> None:
        click.echo(f"seed {seed}, round {number + 1}: {ratio:.3f} of elastic's", err=True)

    trained = train_seeds(range(1, seeds + 1), rounds, output, curriculum, said=say)
    curves = {seed: each.curve for seed, each in trained.items()}
    (output / "curves.png").write_bytes(draw_curves(curves))
    known = [each.interference.pairs for each in trained.values()]
    off = {
        "predicted": sum(each.error for each in known) / len(known),
        "mean_guessed": sum(each.guessed for each in known) / len(known),
    }
    if not as_json:
        click.echo(
            f"speeds in pairs that were held out: off by {off['predicted']:.3f},"
            f" by guessing the mean {off['mean_guessed']:.3f}\n"
        )
    results = []
    for name, workloads in sets.items():
        result = evaluate(
            name, workloads, trained, treatment(curriculum.treatment), rivals or RIVALS
        ).document()
        results.append(result)
        if not as_json:
            # Traces take long, so that each is shown as soon as it is done.
            click.echo(render_learned([result]))
    if as_json:
        document = {
            "schema": "mltcp-cluster-marl/4",
            "curves": curves,
            "pairs_off": off,
            "held_out": results,
        }
        click.echo(json.dumps(document, indent=2))
