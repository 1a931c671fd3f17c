# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp collectives`: compare all-reduces."""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from typing import Any

import click

from mltcp_tools.base.errors import MltcpError, UsageError
from mltcp_tools.base.units import format_bytes, parse_bytes, parse_fraction, parse_rate
from mltcp_tools.cli.lazy import LazyGroup
from mltcp_tools.cli.options import (
    list_option,
    shown_option,
)
from mltcp_tools.cli.text import examples


def collectives() -> Collection[str]:
    """Return the names of all collectives."""
    from mltcp_tools.collectives.registry import COLLECTIVES

    return COLLECTIVES


@click.group(
    cls=LazyGroup,
    sections={
        "Commands": {"aggregator": "Run the aggregator, which sums up gradients in the network."}
    },
)
def command() -> None:
    """Sum gradients with less traffic, and compare all-reduces."""


@command.command(
    epilog=examples(
        "mltcp collectives bench --namespaces 4 -s 2.5MB -a gloo,aggregated",
        "torchrun --nnodes 4 --no-python mltcp collectives bench",
    )
)
@click.option(
    "--namespaces",
    type=click.IntRange(2, 16),
    help="Number of ranks to run on this host, each behind a link of its own, with an aggregator at"
    " the switch between them.  [default: be one rank of a torchrun]",
)
@list_option(
    "--rate",
    "rates",
    parse=parse_rate,
    metavar="RATE,…",
    default=("200mbit",),
    show_default=True,
    help="Rate of the links; with two rates, the first rank's and the others'.",
)
@list_option(
    "-s",
    "--size",
    "sizes",
    parse=parse_bytes,
    metavar="SIZE,…",
    default=("256kB", "2.5MB", "10MB"),
    show_default=True,
    help="Sizes of the tensors.",
)
@list_option(
    "-a",
    "--algorithm",
    "algorithms",
    allowed=collectives,
    metavar="NAME,…",
    help="Algorithms to compare.  [default: all]",
)
@shown_option(
    "--repeats", type=click.IntRange(1), default=5, help="Number of times each all-reduce is timed."
)
@list_option(
    "--density",
    "densities",
    parse=parse_fraction,
    metavar="SHARE,…",
    default=("100%",),
    show_default=True,
    help="Shares of the tensors' blocks that have values other than zero.",
)
@shown_option(
    "--block",
    type=click.IntRange(1),
    default=352,
    help="Number of values in a block; 352 fill a packet of 1500 bytes.",
)
@shown_option(
    "--type",
    "value_type",
    type=click.Choice(["float32", "bfloat16", "float16"]),
    default="float32",
    help="Type of the tensors' values.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def bench(
    namespaces: int | None,
    rates: tuple[int, ...],
    sizes: tuple[int, ...],
    algorithms: tuple[str, ...],
    repeats: int,
    densities: tuple[float, ...],
    block: int,
    value_type: str,
    as_json: bool,
) -> None:
    """Compare all-reduces: time, bandwidth, and whether the sums are right.

    The algorithms alternate within each repetition. Needs torch; --namespaces also needs root. A
    rank of a torchrun finds the aggregator in MLTCP_AGGREGATOR, as a training does.
    """
    from mltcp_tools.collectives import require_packages
    from mltcp_tools.lab.collectives.bench_table import SCHEMA, for_terminal
    from mltcp_tools.lab.collectives.provenance import made

    require_packages()
    from mltcp_tools.lab.collectives.bench import BenchPlan

    wrong = [size for size in sizes if size < 4 or size % 4]
    if wrong:
        raise UsageError(f"{wrong[0]} bytes aren't a whole number of float32; use a multiple of 4.")
    if not all(0 < density <= 1 for density in densities):
        raise UsageError("A --density is a share above 0% and up to 100%.")
    if len(rates) > 2:
        raise UsageError("--rate takes one rate, or two: the first rank's, and that of the others.")
    plan = BenchPlan(
        algorithms or tuple(collectives()), list(sizes), repeats, densities, block, value_type
    )
    document: dict[str, Any] = {"schema": SCHEMA, "block": block, "type": value_type}
    document["made"] = made()
    if namespaces:
        from mltcp_tools.lab.collectives.bench_here import bench_here

        links = [rates[0]] + [rates[-1]] * (namespaces - 1)
        document |= {"rates": links} | bench_here(plan, links)
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


def _as_rank(plan: Any) -> list[dict[str, Any]]:
    """Return the rows at rank 0 of a torchrun, none at the others."""
    from dataclasses import asdict

    import torch.distributed as dist

    from mltcp_tools.lab.collectives.bench import run_rank

    if "RANK" not in os.environ:
        raise UsageError(
            "Add --namespaces N to compare on this host alone, or start the command on each host:"
            " torchrun --nnodes N … --no-python mltcp collectives bench"
        )
    dist.init_process_group("gloo")
    rows = [asdict(row) for row in run_rank(plan)]
    rank = dist.get_rank()
    dist.destroy_process_group()
    return rows if rank == 0 else []
