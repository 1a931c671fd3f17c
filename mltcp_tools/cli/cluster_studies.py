"""Studies of `mltcp cluster`: rules against packets, schedulers with treatments, learning."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from mltcp_tools.cli.options import list_option, output_folder, shown_option


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
@click.option("--seeds", type=click.IntRange(1), help="Draws of each workload.")
@list_option("--policy", "policies", metavar="A,B", help="Only these schedulers besides the rest.")
@list_option("--workload", "workloads", metavar="A,B", help="Only these workloads.")
@click.option(
    "--pairs",
    metavar="gavel:FILE",
    help="Let jobs share GPUs, with the slow-downs measured there.",
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
    from mltcp_tools.clusters.policies import known
    from mltcp_tools.clusters.question_plots import draw, render
    from mltcp_tools.clusters.sweep import sweep

    needed = ("packed", "network", "cassini")
    chosen = tuple(dict.fromkeys((*(policies or question.POLICIES), *needed)))
    for name in chosen:
        known(name)
    size = question.SMALL if small else question.FULL
    if seeds is not None:
        size = dataclasses.replace(size, seeds=seeds)
    measured = None if pairs is None else read_pairs(pairs)
    asked = workloads or question.WORKLOADS
    left_out = question.missing(chosen, measured, asked)
    todo = question.tasks(size, chosen, pairs=measured, workloads=asked)
    with tqdm(total=len(todo), unit=" runs", disable=None) as bar:
        results = sweep(
            todo, output / "runs", executor, workers, lambda done: bar.update(done - bar.n) and None
        )
    found = question.cells(results)
    apart = question.differences(results)
    saved = question.savings(results)
    text = render(found, apart, saved, left_out)
    (output / "matrix.md").write_text(text, encoding="utf-8")
    for name, image in draw(found, saved, results).items():
        (output / f"{name}.png").write_bytes(image)
    if as_json:
        parts: dict[str, Sequence[Any]] = {
            "cells": found,
            "differences": apart,
            "savings": saved,
            "missing": left_out,
        }
        document: dict[str, object] = {"schema": "mltcp-cluster-matrix/3"}
        for part, entries in parts.items():
            document[part] = [dataclasses.asdict(each) for each in entries]
        click.echo(json.dumps(document, indent=2))
    else:
        click.echo(text, nl=False)


@click.command()
@shown_option("--seeds", type=click.IntRange(0, 10), default=3, help="Trainings; 0: none.")
@shown_option("--rounds", type=click.IntRange(1), default=20, help="Of each training.")
@shown_option("--held-out", type=click.IntRange(1), default=5, help="Draws to compare on.")
@list_option("--rivals", metavar="A,B,…", help="Compare with these alone.  [default: all]")
@click.option(
    "--pairs",
    metavar="gavel:FILE",
    required=True,
    help="Measured slow-downs of jobs that share GPUs.",
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def marl(
    seeds: int, rounds: int, held_out: int, rivals: tuple[str, ...], pairs: str, as_json: bool
) -> None:
    """Train schedulers that learn which jobs share GPUs, and compare them with all others.

    An experiment: `predicted` does as well without learning, and is the default. Held-out workloads
    are of seeds that training never uses, and larger; an oracle says what can be won for sure, a
    bound what nobody can win.
    """
    from mltcp_tools.clusters.interference import fit_pairs
    from mltcp_tools.clusters.marl.evaluate import RIVALS, drawn, evaluate
    from mltcp_tools.clusters.marl.train import Curriculum, train
    from mltcp_tools.clusters.pairs import read_pairs
    from mltcp_tools.clusters.text import render_learned

    def say(what: str) -> None:
        click.echo(f"{what}…", err=True)

    curriculum = Curriculum(read_pairs(pairs))
    trained = {}
    for seed in range(1, seeds + 1):
        trained[seed] = train(
            seed,
            rounds,
            curriculum,
            said=lambda n, seed=seed: say(f"seed {seed}, round {n}"),  # type: ignore[misc]
        )
    known = fit_pairs(curriculum.pairs, 1)
    off = {"predicted": known.error, "mean_guessed": known.guessed}
    workloads = drawn(held_out, curriculum)
    rows = evaluate(workloads, trained, rivals or RIVALS, say)
    if as_json:
        document = {"schema": "mltcp-cluster-marl/5", "draws": held_out, "policies": rows} | {
            "pairs_off": off
        }
        click.echo(json.dumps(document, indent=2))
    else:
        click.echo(render_learned(rows, held_out, off), nl=False)


@click.command()
@click.argument("name")
@click.argument("words", nargs=-1, required=True, metavar="-- COMMAND…")
@click.pass_context
def results(context: click.Context, name: str, words: tuple[str, ...]) -> None:
    """Run a COMMAND of `mltcp cluster` and put what it prints into RESULTS.md as section NAME."""
    import contextlib
    import io

    from mltcp_tools.clusters.results import DOCUMENT, put, section
    from mltcp_tools.kernel.host.files import replace_file

    assert context.parent is not None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        group = context.parent.command
        group.main(list(words), prog_name="mltcp cluster", standalone_mode=False)
    # Read only now, so that two of these may run at a time.
    text = DOCUMENT.read_text(encoding="utf-8") if DOCUMENT.is_file() else ""
    made = put(text, name, section(name, words, printed.getvalue()))
    replace_file(DOCUMENT, made.encode())
    click.echo(printed.getvalue(), nl=False)
