# SPDX-License-Identifier: BSD-2-Clause
"""Studies of `mltcp cluster`: schedulers that learn, and tables of results."""

from __future__ import annotations

import json

import click

from mltcp_tools.cli.options import shown_option


@click.command()
@shown_option("--seeds", type=click.IntRange(0, 10), default=3, help="Trainings; 0: none.")
@shown_option("--rounds", type=click.IntRange(1), default=20, help="Of each training.")
@shown_option("--held-out", type=click.IntRange(1), default=5, help="Draws to compare on.")
@click.option(
    "--pairs",
    metavar="gavel:FILE",
    required=True,
    help="Measured slow-downs of jobs that share GPUs.",
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def marl(seeds: int, rounds: int, held_out: int, pairs: str, as_json: bool) -> None:
    """Train schedulers that learn which jobs share GPUs, and compare them with `predicted`.

    An experiment: `predicted` does as well without learning. Held-out workloads are of seeds that
    training never uses, and larger.
    """
    from mltcp_tools.clusters.interference import fit_pairs
    from mltcp_tools.clusters.marl.evaluate import drawn, evaluate
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
    rows = evaluate(workloads, trained, say)
    if as_json:
        document = {"schema": "mltcp-cluster-marl/6", "draws": held_out, "policies": rows} | {
            "pairs_off": off
        }
        click.echo(json.dumps(document, indent=2))
    else:
        click.echo(render_learned(rows, held_out, off), nl=False)
