# SPDX-License-Identifier: BSD-2-Clause
"""Measures what a flow of MLTCP's takes of a link beside others, and what is left to it, simulated.

    PYTHONPATH=tests .venv/bin/python tests/bench/bench_share.py [--into tests/bench/RESULTS.md]

One flow sends beside one or four bulk flows of Reno or CUBIC (BBR isn't simulated), as anyone may,
and for comparison as one in a job. It learns its iterations, unless it is told. What it sends:

    bulk       all the time
    periodic   5 MB, and 300 ms of nothing
    breathless 5 MB, and 2 ms of nothing: so short a pause ends an iteration, and yielding with it
    small      1 MB, and 20 ms of nothing
    lying      2 MB, and 2 ms of nothing, but every fifth time twice as much: what is beyond the
               iteration that was learned is sent at the most that MLTCP allows
    told       4 MB, and 2 ms of nothing, of a job whose iterations are said to have 2 MB and any
               pause, as whoever has a network namespace of its own may say

What counts is the share that the flow has of what the link carries while the flow sends. The fair
share is the link by the number of flows or, where that is more, what the flow's base gets in the
flow's place (shorter round trips get more). For each congestion control and way of sending the
table has the largest share over the fair one, and the smallest over what the base gets, each the
mean of the seeds, over all neighbours, queues (one bandwidth-delay product, and five) and round
trips (4 ms, and 8 ms of the flow, or of the others). In parentheses: the flow's share and its
base's, an equal one being 1, and where. 100 Mbit/s.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

import numpy as np
from support.result_tables import show_simulated

from mltcp_tools.kernel.backends.base import JobParams
from mltcp_tools.kernel.backends.params import params_fields
from mltcp_tools.kernel.native.uapi import TRUSTED
from mltcp_tools.lab.simulator.inputs import PacketJob, SimulatedLink
from mltcp_tools.lab.simulator.library import simulate
from mltcp_tools.lab.simulator.modelled import with_mechanisms

RATE_BPS = 100e6
RTT_S = 0.004
BDP = int(RATE_BPS * RTT_S / 8)
ENDLESS = 10**13
SAMPLE_S = 0.005
LEARNT_S = 10.0
"""Until then slow start and learning are over."""

JOB = "mltcp, in a job"
"""With what flows have of whom the host's administrator has said that they train."""

BASES = {"mltcp": "reno", "mltcp_reno": "reno", "mltcp_cubic": "cubic", JOB: "reno"}


@dataclass(frozen=True)
class Sending:
    """size bytes, and a pause of pause_s; every fifth time `stretched` times as much.

    params: of the flow's job.
    """

    size: int
    pause_s: float
    stretched: int = 1
    params: JobParams = field(default_factory=JobParams)

    def bursts(self, seconds: float) -> tuple[list[float], list[list[int]]]:
        """The pauses before each burst, and the bursts, more than a link can carry in that time."""
        count = int(seconds * RATE_BPS / 8 / self.size) + 2
        sizes = [self.size * (self.stretched if n % 5 == 4 else 1) for n in range(count)]
        return [self.pause_s] * count, [[size] for size in sizes]


SENDINGS = {
    "bulk": Sending(ENDLESS, 0.0),
    "periodic": Sending(5_000_000, 0.3),
    "breathless": Sending(5_000_000, 0.002),
    "small": Sending(1_000_000, 0.02),
    "lying": Sending(2_000_000, 0.002, stretched=2),
    "told": Sending(4_000_000, 0.002, params=JobParams(burst_bytes=2_000_000, gap_s=1e-6)),
}


@dataclass(frozen=True)
class Place:
    """The link that the flow shares. rtts: seconds, the flow's and the others'; queue: bytes."""

    others: str
    count: int
    rtts: tuple[float, float]
    queue: int


PLACES = [
    Place(*each)
    for each in itertools.product(
        ("reno", "cubic"),
        (1, 4),
        ((RTT_S, RTT_S), (2 * RTT_S, RTT_S), (RTT_S, 2 * RTT_S)),
        (BDP, 5 * BDP),
    )
]


def share(name: str, sending: Sending, place: Place, seed: int, seconds: float) -> float:
    """The flow's share of what is carried while it sends, over the fair one."""
    links = [SimulatedLink(RATE_BPS, place.queue, 0.0)]
    links += [SimulatedLink(10 * RATE_BPS, 10**7, rtt_s) for rtt_s in place.rtts]
    pauses, bursts = sending.bursts(seconds)
    params = None
    if name in BASES:
        own = with_mechanisms(sending.params, name.partition(",")[0])
        params = params_fields(own)
        if name == JOB:
            params["mechanisms"] |= TRUSTED
    flow = PacketJob(
        start=0.5,
        compute=pauses,
        bytes=bursts,
        params=params,
        base=BASES.get(name, name),
        ahead=(1, 0),
        neighbour=True,
        trace=SAMPLE_S,
    )
    others = [
        PacketJob(
            start=0.1 * number,
            compute=[0.0],
            bytes=[[ENDLESS]],
            base=place.others,
            ahead=(2, 0),
            neighbour=True,
            trace=SAMPLE_S,
        )
        for number in range(place.count)
    ]
    clock = PacketJob(start=0.0, compute=[seconds], bytes=[[1000]], ahead=(1, 0))
    result = simulate(links, [clock, flow, *others], seed=seed)
    before = np.concatenate([[0], np.cumsum([size for (size,) in bursts])])

    def carried(job: int) -> Callable[[float], float]:
        samples = result.samples[result.samples["job"] == job]
        times = samples["time_ns"] * 1e-9
        earlier = before[samples["iteration"].astype(int) - 1] if job == 1 else 0
        order = np.argsort(times, kind="stable")
        total = (earlier + samples["acked"]).astype(float)
        return lambda at: float(np.interp(at, times[order], total[order]))

    starts, ends = (result.bursts[1][field] * 1e-9 for field in ("start_ns", "end_ns"))
    spans = [
        (max(start, LEARNT_S), end or seconds)
        for start, end in zip(starts, ends, strict=True)
        if (start or end) and (end or seconds) > LEARNT_S
    ]
    own = carried(1)
    theirs = [carried(2 + number) for number in range(place.count)]
    got = sum(own(end) - own(start) for start, end in spans)
    rest = sum(each(end) - each(start) for start, end in spans for each in theirs)
    return got / (got + rest) * (1 + place.count)


def table(seeds: Sequence[int], seconds: float) -> str:
    """The most and the least, of each congestion control and way of sending."""
    names = [*BASES, *dict.fromkeys(BASES.values())]
    runs = list(itertools.product(names, SENDINGS, PLACES))

    def measured(run: tuple[str, str, Place]) -> float:
        name, sending, place = run
        return mean(share(name, SENDINGS[sending], place, seed, seconds) for seed in seeds)

    with ThreadPoolExecutor(2) as pool:
        found = dict(zip(runs, pool.map(measured, runs), strict=True))
    lines = ["| | | most, of the fair share | least, of its base's |", "| --- | --- | --- | --- |"]
    for name, sending in itertools.product(BASES, SENDINGS):
        own = {place: found[name, sending, place] for place in PLACES}
        base = {place: found[BASES[name], sending, place] for place in PLACES}
        of_fair = {place: own[place] / max(1.0, base[place]) for place in PLACES}
        of_base = {place: own[place] / base[place] for place in PLACES}
        most, least = max(PLACES, key=of_fair.__getitem__), min(PLACES, key=of_base.__getitem__)
        cells = [
            f"{over[place]:.2f} ({own[place]:.2f}, {base[place]:.2f}: {_said(place)})"
            for over, place in ((of_fair, most), (of_base, least))
        ]
        lines.append(f"| {name} | {sending} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def _said(place: Place) -> str:
    own, others = (f"{rtt_s * 1e3:.0f}" for rtt_s in place.rtts)
    queue = place.queue // BDP
    return f"{place.count} {place.others}, {own} and {others} ms, queue {queue} BDP"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1, help="how many (default: %(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="of each (default: %(default)s)"
    )
    parser.add_argument("--into", type=Path, metavar="FILE", help="whose table is made anew")
    options = parser.parse_args()
    made = table(range(1, options.seeds + 1), options.seconds)
    by = f"`bench_share.py --seeds {options.seeds} --seconds {options.seconds:g}`"
    show_simulated("share", made, by, options.into)


if __name__ == "__main__":
    main()
