# SPDX-License-Identifier: BSD-2-Clause
"""Pairs of a trace's jobs that no time shift can help: Cassini's score of each pair on one link.

    python tests/bench/bench_pairs.py KIND:FILE...

Of each trace PAIRS random pairs of jobs are drawn, as if they met. Both are rings that send their
gradients once in each direction over a link of that rate, and compute as the trace says.
"""

from __future__ import annotations

import sys
from pathlib import PurePath

import numpy as np

from mltcp_tools.clusters.engine.library import Iteration
from mltcp_tools.clusters.text import table
from mltcp_tools.clusters.time_shifts import FITS, group_plan
from mltcp_tools.clusters.topology import regular
from mltcp_tools.clusters.traces import read_jobs

PAIRS = 1000
RATES_GBPS = (10, 25, 100)


def scores(trace: str, rate_gbps: float) -> list[float | None]:
    """Score of each pair; None where their iterations have no common period."""
    topology = regular(servers=64, rate_bps=1e9 * rate_gbps)
    models = [job.model for job in read_jobs(trace, topology)]
    draw, found = np.random.default_rng(1), []
    for _ in range(PAIRS):
        pair = (models[n] for n in draw.choice(len(models), 2, replace=False))
        jobs = [Iteration(model.compute_s, model.size, {0: 1.0}) for model in pair]
        plan = group_plan(topology, jobs)
        found.append(plan and plan[0])
    return found


def main(traces: list[str]) -> None:
    """Print a line for each trace and rate."""
    rows = [["trace", "link", "no shift fits", "no common period", "a shift fits", "median score"]]
    for trace in traces:
        for rate_gbps in RATES_GBPS:
            found = scores(trace, rate_gbps)
            known = [score for score in found if score is not None]
            fits = sum(score >= FITS for score in known)
            shares = (len(known) - fits, len(found) - len(known), fits)
            shown = (f"{each / len(found):.0%}" for each in shares)
            name = PurePath(trace).stem
            rows.append([name, f"{rate_gbps} Gbit/s", *shown, f"{np.median(known):.2f}"])
    print(table(rows), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
