"""Studies of `mltcp collectives`: jobs that share links, and ranks that are late."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from mltcp_tools.cli.options import BYTES, FRACTION, RATE, SECONDS, list_option, shown_option
from mltcp_tools.cli.text import say
from mltcp_tools.collectives import require_packages
from mltcp_tools.errors import UsageError
from mltcp_tools.units import format_seconds

STRAGGLERS_SCHEMA = "mltcp-collectives-stragglers/1"
TOGETHER_SCHEMA = "mltcp-collectives-together/1"


@click.command()
@shown_option("--jobs", type=click.IntRange(1, 4), default=2)
@shown_option("--ranks", type=click.IntRange(2, 8), default=3, help="Of a job.")
@shown_option("--rate", type=RATE, default="100mbit", help="Rate of each link.")
@click.option("--slow", type=RATE, help="Rate of the first rank's link, where it differs.")
@shown_option("--queue", type=BYTES, default="100kB", help="Queue at each end of a link.")
@shown_option("--bytes", "size", type=BYTES, default="1MB", help="Of a tensor.")
@shown_option("--density", type=FRACTION, default="25%")
@shown_option("--compute", "compute_s", type=SECONDS, default="150ms")
@shown_option("--jitter", type=FRACTION, default="5%")
@shown_option("--iterations", type=click.IntRange(5), default=30)
@shown_option("--repetitions", type=click.IntRange(1), default=1)
@shown_option("--seed", type=int, default=1)
@list_option(
    "-a",
    "--collective",
    "collectives",
    allowed=("gloo", "aggregated", "sparse", "adaptive"),
    metavar="NAME,…",
    default=("gloo", "aggregated", "sparse", "adaptive"),
    show_default=True,
    help="What the jobs reduce by.",
)
@list_option(
    "--cc",
    "ccs",
    metavar="NAME,…",
    default=("cubic", "mltcp"),
    show_default=True,
    help="Congestion controls of their connections; under mltcp a worker's window grows by F, too.",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, help="The run folder."
)
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
    collectives: tuple[str, ...],
    ccs: tuple[str, ...],
    output: Path,
    go_on: bool,
    as_json: bool,
) -> None:
    """Run jobs that share links, by each collective and congestion control: do the gains add?

    Prints a table, also written as together.md; `mltcp report FOLDER --write` plots when
    the jobs communicated. Needs torch and root.
    """
    require_packages()
    from mltcp_tools.collectives.together import Together, render, run_together

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
        collectives=collectives,
        congestion_controls=ccs,
    )
    rows = run_together(setting, output, say, go_on)
    if as_json:
        click.echo(json.dumps({"schema": TOGETHER_SCHEMA, "rows": rows}, indent=2))
    else:
        click.echo(render(rows), nl=False)


@click.command()
@click.argument("times", type=click.Path(path_type=Path))
@shown_option(
    "--collective",
    "share",
    type=FRACTION,
    default="20%",
    help="What a reduction takes, as a share of the median computation.",
)
@click.option(
    "--namespaces",
    type=click.IntRange(3, 16),
    help="Run it as well: so many ranks on this host, each behind a link of its own, compute for"
    " the times of as many workers of the trace. Needs torch and root.",
)
@shown_option("--rate", type=RATE, default="200mbit", help="Rate of each link.")
@shown_option("--queue", type=BYTES, default="100kB", help="Queue at each end of a link.")
@shown_option("--bytes", "size", type=BYTES, default="500kB", help="Of the tensor.")
@shown_option(
    "--compute", "compute_s", type=SECONDS, default="150ms", help="What the median computation is."
)
@shown_option("--iterations", type=click.IntRange(1), default=100, help="Of the trace, to run.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def stragglers(
    times: Path,
    share: float,
    namespaces: int | None,
    rate: int,
    queue: int,
    size: int,
    compute_s: float,
    iterations: int,
    as_json: bool,
) -> None:
    """Estimate what `adaptive` with stragglers=True would gain on measured iteration times.

    TIMES is a CSV file with the columns worker, time (number of the iteration) and batch_time_norm
    (what the worker took for it, in any unit). The rules are the coordinator's; nothing is run but
    with --namespaces, where ranks that wait and ranks that go on take turns, block after block.
    """
    from statistics import median

    require_packages()
    from mltcp_tools.collectives.adaptive.straggling import read_times, straggling

    compute = read_times(times)
    found = straggling(compute, share * median(compute.ravel()))
    document: dict[str, Any] = {
        "schema": STRAGGLERS_SCHEMA,
        "ranks": compute.shape[1],
        "collective": share,
    }
    document |= {"iterations": len(compute), "gain": found.gain, "most_gain": found.most_gain}
    document |= vars(found)
    if namespaces:
        from mltcp_tools.collectives.straggling_here import Setting, run_here

        if namespaces > compute.shape[1]:
            raise UsageError(f"{times} has {compute.shape[1]} workers, not {namespaces}.")
        setting = Setting(namespaces, rate, queue, size // 4 * 4, compute_s, iterations)
        document["run"] = run_here(compute, setting)
    if as_json:
        click.echo(json.dumps(document, indent=2))
        return
    click.echo(
        f"{len(compute)} iterations of {compute.shape[1]} ranks, a mean iteration of"
        f" {found.waiting:.4g} when all are waited for, {found.going_on:.4g} without the late"
        f" ({found.gain:.2f} times faster, {found.late:.1%} of the gradients a step later);"
        f" {found.none_late:.4g} if none was ({found.most_gain:.2f} times faster, which no rule"
        " beats that leaves nothing out)."
    )
    if namespaces:
        ran = document["run"]
        click.echo(
            f"Run with {namespaces} ranks: {format_seconds(ran['waiting_s'])} when all are waited"
            f" for, {format_seconds(ran['going_on_s'])} without the late ({ran['gain']:.2f} times"
            f" faster, {ran['late']:.1%} of the gradients a step later)."
        )
