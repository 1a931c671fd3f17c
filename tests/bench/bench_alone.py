# SPDX-License-Identifier: BSD-2-Clause
"""Simulates one job alone: by how much are its iterations longer under mltcp than under its bases?

    PYTHONPATH=tests nice -n 5 .venv/bin/python tests/bench/bench_alone.py
        [--into tests/bench/RESULTS.md]

Four ranks over two racks and two spines, all links of 200 Mbit/s, 2.5 MB, and one sender on one
link, for each pattern, number of connections between two ranks, and queue. The table has the change
against the better of Reno and CUBIC in percent, with its 95 % interval over the seeds (Student's
t).
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import multiprocessing
from pathlib import Path

import numpy as np
from bench_rules import BASES, ITERATIONS, SEEDS, means_s, percent
from support.result_tables import show_simulated

from mltcp_tools.lab.experiments.experiment import Experiment
from mltcp_tools.lab.experiments.fabric import Fabric
from mltcp_tools.lab.experiments.jobs import ExperimentJob
from mltcp_tools.lab.experiments.links import Link
from mltcp_tools.lab.experiments.reading import find_experiment, load_experiment
from mltcp_tools.lab.simulator.variants import SimulationSettings

PIECES = {"one link": 1, "ring": 1, "tree": 4, "experts": 2, "pipeline": 8, "sharded": 8}
QUEUES = (60_000, 300_000)
CONNECTIONS = (1, 2, 4, 16)


def alone(pattern: str, queue: int, connections: int) -> Experiment:
    """One job; queue: bytes of each link."""
    experiment = load_experiment(find_experiment("two-jobs"))
    link = Link(queue=queue)
    job = ExperimentJob("a", 2_500_000, 0.25, jitter=0.05, flows=connections)
    if pattern == "one link":
        return dataclasses.replace(experiment, link=link, jobs=(job,))
    fabric = Fabric(racks=2, hosts=2, spines=2, access=link, uplink=link)
    hosts = ("r1h1", "r2h1", "r1h2", "r2h2")
    job = dataclasses.replace(job, pattern=pattern, pieces=PIECES[pattern], hosts=hosts)
    return dataclasses.replace(
        experiment, link=link, links=fabric.links(), fabric=fabric, jobs=(job,)
    )


def cell(case: tuple[str, int, int]) -> str:
    """The change against the better base in percent, and which that is."""
    own, *bases = (
        np.log(means_s(alone(*case), SimulationSettings(), cc, SEEDS)) for cc in ("mltcp", *BASES)
    )
    best = min(range(len(bases)), key=lambda number: bases[number].mean())
    change, half = percent(own - bases[best])
    return f"{change:+.1f} ± {half:.1f} ({BASES[best]})"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--into", type=Path, metavar="FILE", help="page whose table is replaced")
    options = parser.parse_args()
    rows = list(itertools.product(PIECES, QUEUES))
    cases = [(*row, connections) for row in rows for connections in CONNECTIONS]
    with multiprocessing.get_context("spawn").Pool() as pool:
        cells = pool.imap(cell, cases, chunksize=1)
        lines = [f"| | queue | {' | '.join(map(str, CONNECTIONS))} |", "| --- " * 6 + "|"]
        for pattern, queue in rows:
            found = " | ".join(itertools.islice(cells, len(CONNECTIONS)))
            lines.append(f"| {pattern} | {queue // 1000} kB | {found} |")
            print(lines[-1], flush=True)
    by = f"`bench_alone.py`, seeds {SEEDS[0]} to {SEEDS[-1]}, {ITERATIONS} iterations each"
    show_simulated("alone", "\n".join(lines), by, options.into)


if __name__ == "__main__":
    main()
