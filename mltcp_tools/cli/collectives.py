# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp collectives`: compare all-reduces."""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import click

from mltcp_tools.base.errors import MltcpError, UsageError
from mltcp_tools.base.units import format_bytes, parse_bytes, parse_fraction
from mltcp_tools.cli.lazy import LazyGroup
from mltcp_tools.cli.options import (
    BYTES,
    RATE,
    list_option,
    mtu_option,
    output_file,
    shown_option,
)


def collectives() -> Collection[str]:
    """The names of those there are."""
    from mltcp_tools.collectives.registry import COLLECTIVES

    return COLLECTIVES


@click.group(
    cls=LazyGroup,
    sections={
        "Commands": {"aggregator": "Run the aggregator, which sums up gradients in the network."}
    },
)
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
    help="Place of the aggregator's programs, as for `mltcp collectives aggregator up`.",
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
    aggregator: str | None,
    as_json: bool,
) -> None:
    """Compare all-reduces of float32 tensors: time, bandwidth, and whether the sums are right.

    The algorithms take turns within each repetition. Needs torch; with --namespaces also root.
    """
    from mltcp_tools.collectives import require_packages
    from mltcp_tools.lab.collectives.bench_table import SCHEMA, for_terminal
    from mltcp_tools.lab.collectives.provenance import made

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
    if namespaces:
        from mltcp_tools.lab.collectives.bench_here import bench_here

        rates = [slow or rate] + [rate] * (namespaces - 1)
        document |= {"rates": rates, "queue": queue, "mode": mode, "mtu": mtu}
        document |= bench_here(plan, rates, queue, mode, mtu)
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
    """Make one page of what `bench --namespaces --json` wrote to FILES."""
    from mltcp_tools.base.files import replace_file
    from mltcp_tools.lab.collectives.bench_table import for_results, read

    if not files:
        raise UsageError("No file is named; `mltcp collectives table FILE...`.")
    page = for_results({file.stem: read(file) for file in files})
    if output is None:
        click.echo(page, nl=False)
    else:
        replace_file(output, page.encode())


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
    rank = dist.get_rank()
    dist.destroy_process_group()
    return rows if rank == 0 else []
