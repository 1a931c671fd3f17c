# SPDX-License-Identifier: BSD-2-Clause
"""Traces of flows, made by hand and recorded, and their replay through the core's learning.

    PYTHONPATH=tests .venv/bin/python tests/support/traces.py [--into FILE]

It prints a table of the recorded ones; --into puts it between the marks of a document.
"""

from __future__ import annotations

import argparse
import csv
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count, groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

from support.core_flows import MS, ack, ffi, lib
from support.result_tables import put_between

from mltcp_tools.base.cells import markdown
from mltcp_tools.base.files import replace_file
from mltcp_tools.kernel.native.csources import algorithm

MSS = 1448
RECORDED = Path(__file__).parents[1] / "unit" / "data" / "traces"
COLUMNS = ("iteration", "send_us", "last_ack_us", "bytes")


@dataclass(frozen=True)
class Piece:
    """Bytes that are sent without a gap, and the gap before them. first: it is an iteration's first
    one.
    """

    gap_ms: float
    bytes: int
    length_ms: float
    first: bool
    stall_ms: float = 0.0  # a retransmission timeout in the middle


@dataclass
class Outcome:
    """The result of a replay.

    learned_after: whole iterations that had been seen when the flow had learned what it knew in the
    end; None: never. found, missed, false: boundaries from then on. acting, acting_pieces: share of
    the iterations, and of the pieces, at whose end the flow acted. total, confidence: in the end.
    """

    iterations: int = 0
    learned_after: int | None = None
    found: int = 0
    missed: int = 0
    false: int = 0
    acting: float = 0.0
    acting_pieces: float = 0.0
    total: int = 0
    confidence: int = 0


def replay(pieces: Iterable[Piece], params: Any = None, acks_per_piece: int = 20) -> Outcome:
    """The pieces through the C core. params: of the job; None: nothing is known of it."""
    params = params or ffi.new("struct mltcp_params *", {"slope": 7 << 14, "intercept": 1 << 14})
    flow = ffi.new("struct mltcp_flow *")
    lib.mltcp_reset(flow, 1, 0, 0)
    now, acked = 10**15, 0
    seen: list[tuple[Piece, bool, int]] = []  # with whether a boundary was found, and the total
    for piece in pieces:
        now += round(piece.gap_ms * MS)
        lib.mltcp_on_send(flow, now, 0)
        boundary, total = False, lib.mltcp_total(flow)
        for k in range(1, acks_per_piece + 1):
            if k == acks_per_piece // 2:
                now += round(piece.stall_ms * MS)
            now += max(1, round(piece.length_ms * MS / acks_per_piece))
            acked += piece.bytes * k // acks_per_piece - piece.bytes * (k - 1) // acks_per_piece
            boundary |= ack(flow, params, now, acked)
        seen.append((piece, boundary, total))
    return _outcome(seen, lib.mltcp_total(flow), flow.confidence)


def _outcome(seen: list[tuple[Piece, bool, int]], total: int, confidence: int) -> Outcome:
    outcome = Outcome(total=total, confidence=confidence)
    acting = 0
    for piece, boundary, known in seen:
        right = known and abs(known - total) <= total / 50
        outcome.iterations += piece.first
        acting += bool(known and piece.first)
        outcome.acting_pieces += bool(known) / len(seen)
        if outcome.learned_after is None:
            if right:
                # The gap before this piece isn't the one at which it was learned.
                outcome.learned_after = outcome.iterations - 1
            continue
        outcome.found += boundary and piece.first
        outcome.missed += piece.first and not boundary
        outcome.false += boundary and not piece.first
    outcome.acting = acting / max(1, outcome.iterations)
    return outcome


def around(rng: random.Random, mean: float, share: float) -> float:
    """Normally distributed, never less than a fifth of the mean."""
    return max(mean / 5, rng.gauss(mean, share * mean))


def burst(
    rng: random.Random,
    size: int,
    *,
    gap_ms: float = 340,
    length_ms: float = 100,
    jitter: float = 0.05,
    pieces: int = 1,
    inner_ms: float = 0,
    stretch: float = 1.0,
    first: bool = True,
    keep_inner: float = 1.0,
) -> Iterator[Piece]:
    """One burst, in pieces of which the last one is the smallest. keep_inner: share of inner gaps
    that are there; the others vanish, as they do when the network is behind the job.
    """
    sizes = [size // pieces] * (pieces - 1)
    sizes.append(size - sum(sizes))
    if pieces > 2:
        sizes[0] += sizes[-1] // 3
        sizes[-1] -= sizes[-1] // 3
    joined = 0
    gap, is_first = around(rng, gap_ms, jitter), first
    for each, last in zip(sizes, [False] * (pieces - 1) + [True], strict=True):
        joined += each
        if not last and rng.random() > keep_inner:
            continue
        yield Piece(gap, joined, length_ms * stretch * joined / size, is_first)
        joined, is_first = 0, False
        gap = around(rng, inner_ms, jitter)


Maker = Callable[[random.Random], Iterator[Piece]]
MADE: dict[str, Maker] = {}
FIRST_BYTES: dict[str, int] = defaultdict(lambda: 2_500_000)
"""Bytes of an iteration of each."""
FIRST_BYTES |= {
    "tiny bursts": 60_000,
    "5 GB bursts": 5_000_000_000,
    "40 GiB bursts": 40 << 30,
    "two_bursts_in_chunks": 3_000_000,
    "three_bursts": 3_100_000,
}


def made(function: Maker) -> Maker:
    MADE[function.__name__] = function
    return function


def bursts(size: int = 2_500_000, **options: Any) -> Maker:
    def make(rng: random.Random) -> Iterator[Piece]:
        while True:
            yield from burst(rng, size, **options)

    return make


MADE["plain"] = bursts()
MADE["jitter of 20 %"] = bursts(jitter=0.2)
MADE["tiny bursts"] = bursts(size=60_000, length_ms=3)
MADE["5 GB bursts"] = bursts(size=5_000_000_000, length_ms=900)
MADE["40 GiB bursts"] = bursts(size=40 << 30, gap_ms=60_000, length_ms=30_000)
MADE["gaps of 40 minutes"] = bursts(gap_ms=2_400_000)
MADE["two minutes, in buckets"] = bursts(gap_ms=100_000, length_ms=15_000, pieces=20, inner_ms=250)
MADE["ten minutes, in buckets"] = bursts(gap_ms=200_000, length_ms=400_000, pieces=100, inner_ms=50)
MADE["communication 90 %"] = bursts(gap_ms=40, length_ms=360)
MADE["10 buckets, 15 ms apart"] = bursts(pieces=10, inner_ms=15)
MADE["5 buckets, 40 ms apart"] = bursts(pieces=5, inner_ms=40, jitter=0.1)
MADE["60 chunks, 2 ms apart"] = bursts(pieces=60, inner_ms=2)
MADE["40 buckets, some joined"] = bursts(pieces=40, inner_ms=5, keep_inner=0.6)
MADE["90 %, 60 chunks"] = bursts(gap_ms=40, length_ms=240, pieces=60, inner_ms=2)


@made
def two_bursts(rng: random.Random) -> Iterator[Piece]:
    """Forward and backward pass, of different size."""
    while True:
        yield from burst(rng, 1_000_000, gap_ms=160, jitter=0.1)
        yield from burst(rng, 1_500_000, gap_ms=90, jitter=0.1, first=False)


@made
def two_bursts_in_chunks(rng: random.Random) -> Iterator[Piece]:
    while True:
        yield from burst(rng, 1_000_000, gap_ms=160, pieces=20, inner_ms=3)
        yield from burst(rng, 2_000_000, gap_ms=90, pieces=40, inner_ms=3, first=False)


@made
def three_bursts(rng: random.Random) -> Iterator[Piece]:
    while True:
        yield from burst(rng, 1_000_000, gap_ms=150, jitter=0.1)
        yield from burst(rng, 600_000, gap_ms=100, jitter=0.1, first=False)
        yield from burst(rng, 1_500_000, gap_ms=90, jitter=0.1, first=False)


def stretched(pieces: int, inner_ms: float) -> Maker:
    def make(rng: random.Random) -> Iterator[Piece]:
        while True:
            stretch = rng.choice([1.0, 1.0, 1.5, 2.0, 3.0])
            keep = 1.0 if stretch == 1.0 else 0.3
            yield from burst(
                rng,
                2_500_000,
                pieces=pieces,
                inner_ms=inner_ms,
                stretch=stretch,
                keep_inner=keep,
                jitter=0.1,
            )

    return make


MADE["stretched up to 3 times"] = stretched(1, 0)
MADE["10 buckets, stretched"] = stretched(10, 15)


@made
def last_words(rng: random.Random) -> Iterator[Piece]:
    """A burst in turns, and soon after it a few bytes, such as a loss that ranks sum up."""
    while True:
        yield from burst(rng, 2_500_000, gap_ms=112, pieces=12, inner_ms=5, jitter=0.1)
        yield Piece(around(rng, 5, 0.3), 48, 1, False)


@made
def timeouts(rng: random.Random) -> Iterator[Piece]:
    """One burst in three has a retransmission timeout, half of these longer than the gap."""
    for k in count():
        stall = (200, 0, 0, 800, 0, 0)[k % 6]
        yield Piece(around(rng, 340, 0.05), 2_500_000, 100, True, stall_ms=stall)


@made
def straggler(rng: random.Random) -> Iterator[Piece]:
    """One iteration in 20 takes twice as long."""
    for k in count():
        gap = 340 if k % 20 else 340 + 444
        yield from burst(rng, 2_500_000, gap_ms=gap)


@made
def checkpoints(rng: random.Random) -> Iterator[Piece]:
    """A pause of 10 s after each 100th iteration."""
    for k in count():
        yield from burst(rng, 2_500_000, gap_ms=10_000 if k % 100 == 99 else 340)


@made
def slow_start_of_the_job(rng: random.Random) -> Iterator[Piece]:
    """Rendezvous, a compiler at work, a model broadcast in chunks, a slow first iteration."""
    for size in (300, 40, 900, 40):
        yield Piece(around(rng, 500, 0.5), size, 1, False)
    yield Piece(30_000, 300, 1, False)
    for _ in range(30):
        yield Piece(around(rng, 2, 0.3), 900_000, 40, False)
    yield Piece(20_000, 500, 1, False)
    yield from burst(rng, 2_500_000, gap_ms=3000)
    yield from bursts()(rng)


@made
def attached_within_a_burst(rng: random.Random) -> Iterator[Piece]:
    yield from islice(burst(rng, 2_500_000, pieces=20, inner_ms=5), 13, None)
    yield from bursts(pieces=20, inner_ms=5)(rng)


@made
def now_and_then_no_gap(rng: random.Random) -> Iterator[Piece]:
    """One gap in eight is missing: the next burst came before the last one's end."""
    for _ in count():
        joined = 2 if rng.random() < 1 / 8 else 1
        yield from burst(rng, 2_500_000 * joined, length_ms=100 * joined)


CHANGES: dict[str, tuple[Maker, Maker, int]] = {
    "half the batch": (bursts(), bursts(gap_ms=170), 2_500_000),
    "an eighth of the batch": (bursts(), bursts(gap_ms=42), 2_500_000),
    "four times the batch": (bursts(), bursts(gap_ms=1360), 2_500_000),
    "eight times the batch": (bursts(), bursts(gap_ms=2720), 2_500_000),
    "half the bytes": (bursts(), bursts(size=1_250_000, length_ms=50), 1_250_000),
    "1.5 times the bytes": (bursts(), bursts(size=3_750_000, length_ms=150), 3_750_000),
    "0.6 times the bytes": (bursts(), bursts(size=1_500_000, length_ms=60), 1_500_000),
    "one burst to two": (bursts(size=2_000_000), two_bursts, 2_500_000),
}
"""The pieces of a job before it changes and after, and the bytes of an iteration then."""

NOT_PERIODIC: dict[str, Maker] = {}


def not_periodic(function: Maker) -> Maker:
    NOT_PERIODIC[function.__name__] = function
    return function


@not_periodic
def greedy(rng: random.Random) -> Iterator[Piece]:
    """A transfer that its reader stops now and then."""
    while True:
        yield Piece(rng.expovariate(1 / 20), round(rng.expovariate(1 / 5e6)), 200, False)


@not_periodic
def requests(rng: random.Random) -> Iterator[Piece]:
    while True:
        yield Piece(rng.expovariate(1 / 50), round(rng.paretovariate(1.2) * 2000), 2, False)


@not_periodic
def terminal(rng: random.Random) -> Iterator[Piece]:
    while True:
        yield Piece(rng.expovariate(1 / 300), rng.randrange(30, 200), 1, False)


def recorded() -> dict[str, list[Piece]]:
    """The flows of RECORDED, by trace and flow."""
    found: dict[str, list[Piece]] = {}
    for path in sorted(RECORDED.glob("*.csv")):
        with path.open(encoding="utf-8") as file:
            rows = [(row["flow"], [int(row[c]) for c in COLUMNS]) for row in csv.DictReader(file)]
        for flow, own in groupby(rows, itemgetter(0)):
            found[f"{path.stem} {flow}"] = list(_pieces(numbers for _, numbers in own))
    return found


def _pieces(rows: Iterable[list[int]]) -> Iterator[Piece]:
    """Rows of one flow, each with the values of COLUMNS."""
    before, ended_us = 0, None
    for iteration, send_us, last_ack_us, size in rows:
        gap_us = send_us - (send_us if ended_us is None else ended_us)
        yield Piece(gap_us / 1000, size, (last_ack_us - send_us) / 1000, iteration > before)
        before, ended_us = iteration, last_ack_us


def recorded_table(outcomes: dict[str, Outcome]) -> str:
    """A row for each recorded trace with the sums of its flows, in Markdown.

    outcomes: by trace and flow, as recorded() has them. before: iterations that were over when a
    flow had learned, all of one that never did.
    """
    lines = [["trace", "flows", "iterations", "before", "found", "missed", "false"]]
    for trace, names in groupby(outcomes, lambda name: name.partition(" ")[0]):
        own = [outcomes[name] for name in names]
        found, missed = sum(o.found for o in own), sum(o.missed for o in own)
        iterations = sum(o.iterations for o in own)
        before = iterations - found - missed
        numbers = (len(own), iterations, before, found, missed, sum(o.false for o in own))
        lines.append([f"`{trace}`", *map(str, numbers)])
    return f"{markdown(lines)}\n\nMade with algorithm {algorithm()}."


def main() -> None:
    """Print the table, or put it in its place."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--into", type=Path, metavar="FILE", help="whose table is made anew")
    into = parser.parse_args().into
    table = recorded_table({name: replay(pieces) for name, pieces in recorded().items()})
    if into is None:
        print(table)
    else:
        page = into.read_text(encoding="utf-8")
        replace_file(into, put_between(page, "traces", table).encode())


if __name__ == "__main__":
    main()
