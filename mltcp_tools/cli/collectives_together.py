"""`mltcp collectives together`: jobs that share links."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

import click

from mltcp_tools.cli.options import (
    BYTES,
    FRACTION,
    RATE,
    SECONDS,
    list_option,
    output_folder,
    shown_option,
)
from mltcp_tools.cli.text import say


def collectives() -> Collection[str]:
    """The names of those there are."""
    from mltcp_tools.collectives.registry import COLLECTIVES

    return COLLECTIVES


@click.command()
@shown_option("--jobs", type=click.IntRange(1, 4), default=2, help="Number of jobs.")
@shown_option("--ranks", type=click.IntRange(2, 8), default=3, help="Ranks of a job.")
@shown_option("--rate", type=RATE, default="100mbit", help="Rate of each link.")
@click.option("--slow", type=RATE, help="Rate of the first rank's link, where it differs.")
@shown_option("--queue", type=BYTES, default="100kB", help="Queue at each end of a link.")
@shown_option("--bytes", "size", type=BYTES, default="1MB", help="Bytes of a tensor.")
@shown_option(
    "--density", type=FRACTION, default="25%", help="Share of its blocks that aren't zero."
)
@shown_option("--compute", "compute_s", type=SECONDS, default="150ms", help="Compute time.")
@shown_option("--jitter", type=FRACTION, default="5%", help="Standard deviation of that time.")
@shown_option("--iterations", type=click.IntRange(5), default=30, help="Iterations of each job.")
@shown_option("--repetitions", type=click.IntRange(1), default=5, help="Runs of each row.")
@shown_option("--seed", type=int, default=1, help="Seed of the compute times.")
@list_option(
    "-a",
    "--collective",
    "chosen",
    allowed=collectives,
    metavar="NAME,…",
    show_default="all",
    help="Collectives that the jobs reduce by.",
)
@list_option(
    "--cc",
    "ccs",
    metavar="NAME,…",
    default=("cubic", "mltcp"),
    show_default=True,
    help="Congestion controls of their connections; under mltcp a worker's window grows by F, too.",
)
@output_folder("The run folder.", required=True)
@click.option(
    "--go-on",
    is_flag=True,
    help="Add the repetitions to those of a run with the same options; else the folder is new.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the rows as JSON.")
def together(
    jobs: int,
    ranks: int,
    rate: int,
    slow: int | None,
    queue: int,
    size: int,
    density: float,
    compute_s: float,
    jitter: float,
    iterations: int,
    repetitions: int,
    seed: int,
    chosen: tuple[str, ...],
    ccs: tuple[str, ...],
    output: Path,
    go_on: bool,
    as_json: bool,
) -> None:
    """Run jobs that share links, by each collective and congestion control: do the gains add?

    Prints a table, also written as together.md; `mltcp report FOLDER --write` plots when
    the jobs communicated. Needs torch and root.
    """
    from mltcp_tools.collectives import require_packages

    require_packages()
    from mltcp_tools.lab.collectives.made import made
    from mltcp_tools.lab.collectives.together import (
        TOGETHER_SCHEMA,
        Together,
        render,
        run_together,
    )

    setting = Together(
        jobs=jobs,
        rates=(slow or rate, *(rate for _ in range(ranks - 1))),
        queue=queue,
        bytes=size // 4 * 4,
        density=density,
        compute_s=compute_s,
        jitter=jitter,
        iterations=iterations,
        repetitions=repetitions,
        seed=seed,
        collectives=chosen or tuple(collectives()),
        congestion_controls=ccs,
    )
    rows = run_together(setting, output, say, go_on)
    if as_json:
        document = {"schema": TOGETHER_SCHEMA, "made": made(), "rows": rows}
        click.echo(json.dumps(document, indent=2))
    else:
        click.echo(render(rows), nl=False)
