"""Studies of `mltcp cluster`: rules against packets, schedulers with treatments, learning."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mltcp_tools.cli.options import list_option, output_folder, shown_option
from mltcp_tools.errors import UsageError

if TYPE_CHECKING:
    from mltcp_tools.clusters.pairs import Pairs
    from mltcp_tools.clusters.question import Size


@click.command()
@click.argument("experiments", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def validate(experiments: tuple[str, ...], as_json: bool) -> None:
    """Compare the rules of sharing with the packet simulator, on EXPERIMENTS or all known ones.

    Iteration times should be within 5 %, and within 2 % where jobs take turns. A second table has
    what MLTCP gains over reno in both, and by how much that is off.
    """
    from mltcp_tools.clusters.text import render_cases, render_gains
    from mltcp_tools.clusters.validate import EXPERIMENTS, gains, validate

    cases = validate(experiments or EXPERIMENTS, lambda name: click.echo(f"{name}…", err=True))
    if as_json:
        document = {
            "schema": "mltcp-cluster-validate/2",
            "cases": [case.to_json() for case in cases],
            "gains": [gain.to_json() for gain in gains(cases)],
        }
        click.echo(json.dumps(document, indent=2))
    else:
        click.echo(render_cases(cases))
        click.echo(render_gains(gains(cases)), nl=False)


@click.command()
@output_folder(
    "Folder of its runs; what is there already isn't run again.",
    default=Path("runs/cluster-matrix"),
    show_default=True,
)
@click.option("--small", is_flag=True, help="Run a small matrix, of about two minutes.")
@click.option("--seeds", type=click.IntRange(1), help="How many draws of each workload.")
@list_option("--policy", "policies", metavar="A,B", help="Only these schedulers besides the rest.")
@list_option("--workload", "workloads", metavar="A,B", help="Only these workloads.")
@click.option(
    "--pairs",
    metavar="gavel:FILE",
    help="Let schedulers that learn take part: how jobs that share GPUs slow each other down.",
)
@list_option(
    "--agents",
    metavar="FILE,…",
    parse=Path,
    help="Their checkpoints, for one draw after the other.  [default: they are trained]",
)
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
    workloads: tuple[str, ...],
    pairs: str | None,
    agents: tuple[Path, ...],
    executor: str,
    workers: int | None,
    as_json: bool,
) -> None:
    """Run every scheduler with every treatment on some workloads: who gains what, and together.

    Writes matrix.md and three plots next to the runs. Started again, it goes on where it stopped.
    """
    from tqdm import tqdm

    from mltcp_tools.clusters import question
    from mltcp_tools.clusters.pairs import read_pairs
    from mltcp_tools.clusters.policies import policy
    from mltcp_tools.clusters.question_plots import draw, render
    from mltcp_tools.clusters.sweep import sweep

    if agents and pairs is None:
        raise UsageError("--agents needs --pairs: agents say which jobs are to share GPUs.")
    needed = ("packed", "network", "cassini")
    chosen = tuple(dict.fromkeys((*(policies or question.POLICIES), *needed)))
    for name in chosen:
        if name != "marl":
            policy(name)
    size = question.SMALL if small else question.FULL
    if seeds is not None:
        size = dataclasses.replace(size, seeds=seeds)
    measured = None if pairs is None else read_pairs(pairs)
    asked = workloads or question.WORKLOADS
    left_out = question.missing(chosen, measured, asked)
    impossible = {each.workload for each in left_out if each.policy == "marl"}
    checkpoints: list[bytes] = []
    if measured is not None and "marl" in chosen and impossible != set(asked):
        if len(agents) > size.seeds:
            raise UsageError(f"--agents names more checkpoints than there are draws, {size.seeds}.")
        checkpoints = _checkpoints(agents, size, output, measured)
    elif agents:
        raise UsageError(
            "--agents needs `marl` among the policies, and a workload that it can be had on."
        )
    todo = question.tasks(size, chosen, pairs=measured, agents=checkpoints, workloads=asked)
    with tqdm(total=len(todo), unit=" runs", disable=None) as bar:
        results = sweep(
            todo, output / "runs", executor, workers, lambda done: bar.update(done - bar.n) and None
        )
    found = question.cells(results)
    given = question.answers(found)
    apart = question.differences(results)
    saved = question.savings(results)
    text = render(found, given, apart, saved, left_out)
    (output / "matrix.md").write_text(text, encoding="utf-8")
    for name, image in draw(found, saved, results).items():
        (output / f"{name}.png").write_bytes(image)
    if as_json:
        parts: dict[str, Sequence[Any]] = {
            "cells": found,
            "answers": given,
            "differences": apart,
            "savings": saved,
            "missing": left_out,
        }
        document: dict[str, object] = {"schema": "mltcp-cluster-matrix/2"}
        for part, entries in parts.items():
            document[part] = [dataclasses.asdict(each) for each in entries]
        click.echo(json.dumps(document, indent=2))
    else:
        click.echo(text, nl=False)


def _checkpoints(files: tuple[Path, ...], size: Size, output: Path, pairs: Pairs) -> list[bytes]:
    """The agents' checkpoints; those that aren't given are trained, unless they are there."""
    from mltcp_tools.clusters.marl.evaluate import checkpoint, train_seeds
    from mltcp_tools.clusters.marl.train import Curriculum, load

    if not files:
        seeds = range(1, min(size.agents, size.seeds) + 1)
        folder = output / "agents"
        curriculum = Curriculum(pairs)
        train_seeds(seeds, size.rounds, folder, curriculum, said=_say_round)
        files = tuple(checkpoint(folder, seed, size.rounds, curriculum) for seed in seeds)
    contents = []
    for file in files:
        try:
            contents.append(file.read_bytes())
        except OSError as error:
            raise UsageError(f"{file} can't be read: {error.strerror}.") from None
        load(BytesIO(contents[-1]), str(file))
    return contents


def _say_round(seed: int, number: int, ratio: float) -> None:
    click.echo(f"seed {seed}, round {number + 1}: {ratio:.3f} of elastic's", err=True)


@click.command()
@output_folder(
    "Folder of checkpoints; those that are there aren't trained again.",
    default=Path("runs/cluster-marl"),
    show_default=True,
)
@shown_option("--seeds", type=click.IntRange(1, 10), default=5)
@shown_option("--rounds", type=click.IntRange(1), default=20)
@shown_option("--held-out", type=click.IntRange(0), default=10, help="Draws to compare on.")
@shown_option(
    "--first-draw",
    type=click.IntRange(0),
    default=100,
    help="Number of the first of them; training was tuned on some below 100.",
)
@list_option(
    "--workload", "traces", metavar="KIND:FILE,…", help="Compare on jobs of these traces, too."
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
    first_draw: int,
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
    from mltcp_tools.clusters.text import render_learned, render_over_traces
    from mltcp_tools.clusters.traces import read_jobs
    from mltcp_tools.clusters.workload import Workload

    curriculum = Curriculum(read_pairs(pairs))
    draws = drawn(held_out, curriculum, first_draw)
    sets = {f"{held_out} drawn": draws} if draws else {}
    for trace in traces:
        read = [
            dataclasses.replace(job, arrival_s=job.arrival_s / faster)
            for job in read_jobs(trace, LARGE)[:jobs]
        ]
        sets[trace] = [Workload(LARGE, tuple(read)).shorter(shorter).with_pairs(curriculum.pairs)]

    trained = train_seeds(range(1, seeds + 1), rounds, output, curriculum, said=_say_round)
    curves = {seed: each.curve for seed, each in trained.items()}
    (output / "curves.png").write_bytes(draw_curves(curves))
    known = [each.known for each in trained.values()]
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
        pace = shorter if name in traces else 1.0
        result = evaluate(
            name, workloads, trained, treatment(curriculum.treatment), rivals or RIVALS, pace
        ).document()
        results.append(result)
        if not as_json:
            # Traces take long, so that each is shown as soon as it is done.
            click.echo(render_learned([result]))
    if len(traces) > 1 and not as_json:
        click.echo(render_over_traces(results), nl=False)
    if as_json:
        document = {
            "schema": "mltcp-cluster-marl/4",
            "curves": curves,
            "pairs_off": off,
            "held_out": results,
        }
        click.echo(json.dumps(document, indent=2))


@click.command()
@click.argument("name", required=False)
@click.argument("words", nargs=-1, metavar="[-- COMMAND…]")
@click.option("--check", is_flag=True, help="Run nothing: say which sections are stale.")
@click.pass_context
def results(context: click.Context, name: str | None, words: tuple[str, ...], check: bool) -> None:
    """Run a COMMAND of `mltcp cluster` and put what it prints into RESULTS.md as section NAME."""
    import contextlib
    import io

    from mltcp_tools.clusters.results import DOCUMENT, put, section, stale
    from mltcp_tools.kernel.host.files import replace_file

    text = DOCUMENT.read_text(encoding="utf-8") if DOCUMENT.is_file() else ""
    if check:
        found = stale(text)
        for each in found:
            click.echo(f"{each} was made by another version.")
        context.exit(1 if found else 0)
    if name is None or not words:
        raise UsageError("name a section and a command: `mltcp cluster results NAME -- COMMAND…`.")
    assert context.parent is not None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        group = context.parent.command
        group.main(list(words), prog_name="mltcp cluster", standalone_mode=False)
    made = put(text, name, section(name, words, printed.getvalue()))
    replace_file(DOCUMENT, made.encode())
    click.echo(printed.getvalue(), nl=False)
