"""`mltcp collectives`: compare all-reduces."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from mltcp_tools.cli.collectives_together import collectives, together
from mltcp_tools.cli.options import (
    BYTES,
    FRACTION,
    RATE,
    SECONDS,
    list_option,
    mtu_option,
    output_file,
    shown_option,
    with_options,
)
from mltcp_tools.errors import MltcpError, UsageError
from mltcp_tools.units import format_bytes, parse_bytes, parse_fraction

BOUNDS_SCHEMA = "mltcp-collectives-bounds/1"

_replay_options = with_options(
    [
        click.option(
            "--replay",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="A JSON list of bandwidths in any unit, which a link has one after the other; the"
            " median is the links' rate, and nothing is faster.",
        ),
        shown_option(
            "--replay-links",
            type=click.Choice(("first", "all")),
            default="first",
            help="Links that change; with `all`, each starts at another place of the trace.",
        ),
    ]
)


@click.group()
def command() -> None:
    """Compare ways to sum up gradients."""


@command.command()
@click.option(
    "--namespaces",
    type=click.IntRange(2, 16),
    help="Ranks to run on this host, each behind a link of its own, with an aggregator at the"
    " switch between them. Without it this is one rank of a torchrun.",
)
@shown_option("--rate", type=RATE, default="200mbit", help="Rate of each link.")
@click.option("--slow", type=RATE, help="Rate of the first rank's link, where it differs.")
@shown_option("--queue", type=BYTES, default="100kB", help="Queue at each end of a link.")
@shown_option(
    "--mode",
    type=click.Choice(("xdp", "tc")),
    default="xdp",
    help="Place of the aggregator's programs, as for `mltcp aggregate up`.",
)
@mtu_option(9000)
@list_option(
    "-s",
    "--size",
    "sizes",
    parse=parse_bytes,
    metavar="SIZE,…",
    default=("256kB", "2.5MB", "10MB"),
    show_default=True,
    help="Bytes of the tensors.",
)
@list_option(
    "-a",
    "--algorithm",
    "algorithms",
    allowed=collectives,
    metavar="NAME,…",
    show_default="all",
    help="Algorithms to compare.",
)
@shown_option(
    "--repeats",
    type=click.IntRange(1),
    default=5,
    help="Repeats of each all-reduce; the median counts.",
)
@list_option(
    "--density",
    "densities",
    parse=parse_fraction,
    metavar="SHARE,…",
    default=("100%",),
    show_default=True,
    help="Shares of the tensors' blocks that aren't zero at some rank.",
)
@shown_option(
    "--block",
    type=click.IntRange(1),
    default=352,
    help="Values of such a block; 352 are a packet's at 1500 bytes.",
)
@shown_option(
    "--type",
    "value_type",
    type=click.Choice(["float32", "bfloat16", "float16"]),
    default="float32",
    help="Type of the tensors' values.",
)
@shown_option(
    "--places",
    type=click.Choice(("scattered", "clustered", "apart")),
    default="scattered",
    help="Places of these blocks: anywhere, in ten runs, or anywhere and each at one rank alone.",
)
@_replay_options
@shown_option("--replay-step", type=SECONDS, default="5s", help="Time that each of these lasts.")
@shown_option(
    "--replay-from", type=click.IntRange(0), default=0, help="Number of the one that comes first."
)
@click.option("--aggregator", help="The aggregator, HOST[:PORT]; --namespaces starts one.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def bench(
    namespaces: int | None,
    rate: int,
    slow: int | None,
    queue: int,
    mode: str,
    mtu: int,
    sizes: tuple[int, ...],
    algorithms: tuple[str, ...],
    repeats: int,
    densities: tuple[float, ...],
    block: int,
    value_type: str,
    places: str,
    replay: Path | None,
    replay_links: str,
    replay_step: float,
    replay_from: int,
    aggregator: str | None,
    as_json: bool,
) -> None:
    """Compare all-reduces of float32 tensors: time, bandwidth, and whether the sums are right.

    The algorithms take turns within each repetition. Needs torch; with --namespaces also root.
    """
    from mltcp_tools.collectives import require_packages
    from mltcp_tools.lab.collectives.bench_table import SCHEMA, for_terminal
    from mltcp_tools.lab.collectives.made import made
    from mltcp_tools.lab.collectives.replay import Replay, read_shares

    require_packages()
    from mltcp_tools.lab.collectives.bench import Plan

    wrong = [size for size in sizes if size < 4 or size % 4]
    if wrong:
        raise UsageError(f"{wrong[0]} bytes aren't a whole number of float32; use a multiple of 4.")
    if not all(0 < density <= 1 for density in densities):
        raise UsageError("A --density is a share above 0% and up to 100%.")
    plan = Plan(
        algorithms or tuple(collectives()),
        list(sizes),
        repeats,
        densities,
        block,
        places,
        aggregator,
        type=value_type,
    )
    document: dict[str, Any] = {"schema": SCHEMA, "block": block, "places": places}
    document |= {"type": value_type}
    document["made"] = made()
    if replay_step <= 0:
        raise UsageError("--replay-step is a time above 0.")
    if replay and not namespaces:
        raise UsageError("--replay changes the links between --namespaces; say how many.")
    if namespaces:
        from mltcp_tools.lab.collectives.bench_here import bench_here

        replays = (
            Replay(read_shares(replay, replay_from), replay_step, replay_links == "all")
            if replay
            else None
        )
        rates = [slow or rate] + [rate] * (namespaces - 1)
        document |= {"rates": rates, "queue": queue, "mode": mode, "mtu": mtu}
        document |= bench_here(plan, rates, queue, mode, mtu, replays)
    else:
        document["rows"] = _as_rank(plan)
    if document["rows"]:
        click.echo(json.dumps(document, indent=2) if as_json else for_terminal(document))
    wrong_rows = [row for row in document["rows"] if not (row["correct"] and row["identical"])]
    if wrong_rows:
        first = wrong_rows[0]
        raise MltcpError(
            f"A sum was wrong, or not the same at all ranks: {first['algorithm']} at"
            f" {format_bytes(first['bytes'])}."
        )


@command.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@output_file("Write the page there.  [default: standard output]")
def table(files: tuple[Path, ...], output: Path | None) -> None:
    """Make one page of what `bench --namespaces --json` and `together --json` wrote to FILES."""
    from mltcp_tools.kernel.host.files import replace_file
    from mltcp_tools.lab.collectives.bench_table import for_results, read

    if not files:
        raise UsageError("No file is named; `mltcp collectives table FILE...`.")
    page = for_results({file.stem: read(file) for file in files})
    if output is None:
        click.echo(page, nl=False)
    else:
        replace_file(output, page.encode())


def _parse_ranks(word: str) -> int:
    if not word.isdigit() or not 2 <= int(word) <= 64:
        raise UsageError(f"{word!r} is not a number of ranks from 2 to 64.")
    return int(word)


@command.command()
@list_option(
    "--ranks",
    parse=_parse_ranks,
    metavar="N,…",
    default=("2", "3", "4", "8", "16"),
    show_default=True,
    help="Numbers of ranks.",
)
@shown_option(
    "--slow",
    type=FRACTION,
    default="100%",
    help="The first link's rate, as a share of the others'.",
)
@_replay_options
@click.option("--json", "as_json", is_flag=True, help="Print the rows as JSON.")
def bounds(
    ranks: tuple[int, ...], slow: float, replay: Path | None, replay_links: str, as_json: bool
) -> None:
    """Print how many times faster than a ring an all-reduce can be at most, as Markdown.

    Ranks are behind links of one rate, around a switch. A gain is the ring's least time by that of
    the others, for as many reductions in each state of the links; with --replay there are as many
    states as bandwidths, and the last column is for reductions one after the other in the same
    time. Nothing is run.
    """
    from mltcp_tools.lab.collectives.bench_table import bounds_table
    from mltcp_tools.lab.collectives.most import most, shares_of
    from mltcp_tools.lab.collectives.replay import Replay, read_shares

    if not 0 < slow <= 1:
        raise UsageError("--slow is a share above 0% and up to 100%.")
    every = replay_links == "all"
    replays = Replay(read_shares(replay), 1.0, every) if replay else None
    rows = [most(count, shares_of(count, slow, replays)) for count in ranks]
    if as_json:
        document = {"schema": BOUNDS_SCHEMA, "rows": [vars(row) for row in rows]}
        click.echo(json.dumps(document, indent=2))
    else:
        click.echo(bounds_table(rows), nl=False)


def _as_rank(plan: Any) -> list[dict[str, Any]]:
    """The rows at rank 0 of a torchrun, none at the others."""
    from dataclasses import asdict

    import torch.distributed as dist

    from mltcp_tools.lab.collectives.bench import run_rank

    if "RANK" not in os.environ:
        raise UsageError(
            "Say --namespaces N to compare on this host alone, or start it on each host by"
            " torchrun: torchrun --nnodes N … --no-python mltcp collectives bench"
        )
    dist.init_process_group("gloo")
    rows = [asdict(row) for row in run_rank(plan)]
    for row in rows:
        del row["begun_s"]  # of this rank's clock alone
    rank = dist.get_rank()
    dist.destroy_process_group()
    return rows if rank == 0 else []


command.add_command(together)
