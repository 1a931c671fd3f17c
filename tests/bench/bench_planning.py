# SPDX-License-Identifier: BSD-2-Clause
"""Measures planning and profiling: how long, how good, how much memory.

    PYTHONPATH=tests .venv/bin/python tests/bench/bench_planning.py [--captures]

Links of 8 and of 32 jobs, and a cluster of 1,000 jobs on 5,000 links; with `--captures` two
captures of 1 GB each, one of whole packets and one cut to 96 bytes, written to a temporary folder.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from support.captures import MSS, segments, write_capture

from mltcp_tools.lab.emulator.job import JobSpec
from mltcp_tools.lab.planning.cluster import plan_cluster
from mltcp_tools.lab.planning.link import score_link
from mltcp_tools.lab.planning.network import Link
from mltcp_tools.lab.planning.topology import Cluster, Placement
from mltcp_tools.lab.profiling.profile import Phase, Profile

LOAD = 0.94
RATE_BPS = 10e9
PERIOD_S = 0.4
LINK_BPS = 1e9
BURST = 2_500_000


def equal(count: int) -> list[Profile]:
    """Jobs of one phase each that together need LOAD of a link."""
    phase = Phase(0.0, LOAD * PERIOD_S / count, RATE_BPS)
    return [Profile(f"job-{number}", PERIOD_S, (phase,)) for number in range(count)]


def random_jobs(count: int, seed: int) -> list[Profile]:
    """Jobs of one to three phases of random lengths and rates."""
    generator = np.random.default_rng(seed)
    jobs = []
    for number in range(count):
        edges = np.sort(generator.uniform(0, PERIOD_S, 2 * generator.integers(1, 4)))
        phases = tuple(
            Phase(float(start), float(end - start), float(generator.uniform(1e9, 5e9)))
            for start, end in edges.reshape(-1, 2)
        )
        jobs.append(Profile(f"job-{number}", PERIOD_S, phases))
    return jobs


def show_link(what: str, jobs: Sequence[Profile], angle_deg: float = 5.0) -> None:
    """Plan a link that the jobs need LOAD of."""
    start_s = time.monotonic()
    needed_bps = sum(sum(phase.bytes for phase in job.phases) * 8 / job.period_s for job in jobs)
    plan = score_link(jobs, needed_bps / LOAD, angle_deg=angle_deg)
    print(
        f"{what}: {time.monotonic() - start_s:.2f} s, score {plan.score:.4f} of at most"
        f" {plan.optimum.bound:.4f}{', proven' if plan.optimum.proven else ''}",
        flush=True,
    )


def cluster(jobs: int, links: int, seed: int = 1) -> Cluster:
    """A cluster whose affinity graph has no loop: shared links of three jobs, joined in threes."""
    generator = np.random.default_rng(seed)
    rates = [RATE_BPS] * links
    crossings: dict[str, dict[str, int]] = {f"job-{n}": {} for n in range(jobs)}
    link = 0
    for first in range(0, jobs - 6, 7):  # a - b - c, c - d - e, e - f - g
        for place in (0, 2, 4):
            for job in range(first + place, first + place + 3):
                crossings[f"job-{job}"][f"link-{link}"] = 1
            link += 1
    for number in range(link, links):  # the others belong to one job each
        crossings[f"job-{generator.integers(jobs)}"][f"link-{number}"] = 1
    profiles = {}
    for job in crossings:
        length_s = float(generator.uniform(0.2, 0.4)) * PERIOD_S
        period_s = PERIOD_S * float(generator.choice([0.5, 1.0, 1.5]))
        phase = Phase(0.0, length_s * period_s / PERIOD_S, RATE_BPS)
        profiles[job] = Profile(job, period_s, (phase,))
    return Cluster(
        {f"link-{n}": Link(f"link-{n}", rate, None) for n, rate in enumerate(rates)},
        profiles,
        (Placement("all", crossings),),
    )


def show_cluster() -> None:
    """Plan a cluster of 1,000 jobs on 5,000 links."""
    made = cluster(1000, 5000)
    start_s = time.monotonic()
    plan = plan_cluster(made)[0]
    print(
        f"1,000 jobs on 5,000 links, {len(plan.links)} of them shared:"
        f" {time.monotonic() - start_s:.1f} s, mean score {plan.score:.4f} of at most"
        f" {plan.bound:.4f}",
        flush=True,
    )


def show_capture(folder: Path, snaplen: int) -> None:
    """Profile a capture of about 1 GB with two jobs, by the command."""
    packets = 1e9 / (min(snaplen, 1514) + 16)
    iterations = round(packets * MSS / 2 / BURST)
    specs = [
        JobSpec(
            bytes_per_iteration=BURST,
            compute_s=0.34,
            iterations=iterations,
            start_delay_s=0.2 * number,
            jitter=0.05,
            seed=number,
        )
        for number in (1, 2)
    ]
    path = folder / f"{snaplen}.pcap"
    sent = [
        segment
        for number, spec in enumerate(specs, 1)
        for segment in segments(spec, LINK_BPS, f"10.0.{number}.1")
    ]
    write_capture(path, sent, snaplen=snaplen)
    start_s = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "mltcp_tools.cli.main", "lab", "profile", "--pcap", str(path)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    took_s = time.monotonic() - start_s
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(
        f"capture of {path.stat().st_size / 1e9:.2f} GB, cut to {snaplen} bytes: {took_s:.1f} s,"
        f" {most / 1e3:.0f} MB of memory",
        flush=True,
    )
    path.unlink()


def main() -> None:
    """Measure what the options name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--captures", action="store_true", help="profile captures of 1 GB, too")
    args = parser.parse_args()
    show_link("8 equal jobs at 5 degrees", equal(8))
    for seed in range(10):
        show_link(f"8 random jobs, seed {seed}", random_jobs(8, seed))
    show_link("32 equal jobs at 5 degrees", equal(32))
    show_link("32 equal jobs at 1 degree", equal(32), angle_deg=1.0)
    show_cluster()
    if args.captures:
        with tempfile.TemporaryDirectory() as folder:
            for snaplen in (1514, 96):
                show_capture(Path(folder), snaplen)


if __name__ == "__main__":
    main()
