"""How long iterations of real DDP jobs on one bottleneck take under each congestion control.

    PYTHONPATH=tests .venv/bin/python tests/bench/bench_ddp.py --repetitions 3

As root. Two jobs of two ranks (tests/train/ddp.py) share a link whose both directions are limited.
An arm is a congestion control, which their sockets are switched to: nothing is told or tagged.
Arms take turns. `alone` is one of the jobs with the link to itself; from it come the bound (one
burst at a time) and the captured gain over cubic, as in mltcp_tools/analysis.
"""

from __future__ import annotations

import argparse
import contextlib
from statistics import mean, quantiles

import numpy as np
from train.jobs import Place, Rank, switch, training, wait_for_more
from train.mltcp import bottleneck, mltcp

from mltcp_tools.simulator.schedules import ScheduledJob, simulate
from mltcp_tools.testbed.network import RECEIVER_ADDRESS

PORT = 29800


def bound(alone_s: float, options: argparse.Namespace) -> float:
    """The mean of two jobs of which one communicates at a time, in seconds per iteration."""
    rng = np.random.default_rng(1)
    means = []
    for _ in range(20):
        draws = rng.normal(options.idle, options.jitter * options.idle, (2, 300)).clip(0)
        starts = rng.uniform(0, alone_s, 2)
        jobs = [
            ScheduledJob(str(number), start, list(compute), alone_s - options.idle, 1)
            for number, (start, compute) in enumerate(zip(starts, draws, strict=True))
        ]
        bursts = simulate("bound", jobs)
        means.append(draws.mean() + (bursts["end_s"] - bursts["start_s"]).mean())
    return mean(means)


def run(arm: str, jobs: int, options: argparse.Namespace) -> list[float]:
    """Durations of the iterations, in seconds, of all jobs, the first ones left out."""
    cc = "cubic" if arm == "alone" else arm
    with bottleneck(jobs, options.rate, options.queue) as network, contextlib.ExitStack() as stack:
        running: list[list[Rank]] = []
        for number, sender in enumerate(network.senders):
            places = [Place(network.receiver, "bottleneck"), Place(sender, "to-router")]
            running.append(
                stack.enter_context(
                    training(
                        *(places, RECEIVER_ADDRESS, PORT + number, 10_000),
                        *(options.width, options.idle, options.jitter),
                    )
                )
            )
        switch([rank for ranks in running for rank in ranks], cc)
        first = [ranks[0] for ranks in running]
        begin = wait_for_more(first, options.settle)
        end = wait_for_more(first, options.iterations)
        return [each for ranks in running for each in ranks[0].durations_s(begin, end)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--arms", default="alone,cubic,reno,mltcp_reno,mltcp")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=50, help="per job, after settling")
    parser.add_argument("--settle", type=int, default=10, help="iterations left out")
    parser.add_argument("--rate", type=int, default=40_000_000, help="bit/s, in each direction")
    parser.add_argument("--queue", type=int, default=30_000, help="bytes")
    parser.add_argument("--width", type=int, default=512, help="of the model's layers")
    parser.add_argument("--idle", type=float, default=0.45, help="seconds of computing")
    parser.add_argument("--jitter", type=float, default=0.05, help="of it, standard deviation")
    options = parser.parse_args()
    arms = options.arms.split(",")
    means: dict[str, list[float]] = {arm: [] for arm in arms}
    mltcp("load")
    try:
        for repetition in range(options.repetitions):
            for arm in arms:
                took = run(arm, 1 if arm == "alone" else 2, options)
                means[arm].append(mean(took))
                p99 = quantiles(took, n=100)[98]
                print(
                    f"{repetition + 1} {arm:12} mean {mean(took):.3f} s, p99 {p99:.3f} s, "
                    f"{len(took)} iterations",
                    flush=True,
                )
    finally:
        mltcp("unload", "--force")
    report(means, options)


def report(means: dict[str, list[float]], options: argparse.Namespace) -> None:
    best = bound(mean(means["alone"]), options) if "alone" in means else None
    for arm, values in means.items():
        gain = ""
        if best is not None and "cubic" in means and arm not in ("alone", "cubic"):
            cubic = mean(means["cubic"])
            gain = f", captured gain {(cubic - mean(values)) / (cubic - best):.2f}"
        spread = f"({min(values):.3f} to {max(values):.3f})"
        print(f"{arm:12} {mean(values):.3f} s {spread}{gain}")
    if best is not None:
        print(f"{'bound':12} {best:.3f} s")


if __name__ == "__main__":
    main()
