# SPDX-License-Identifier: BSD-2-Clause
"""Record what flows of jobs on one bottleneck send, for tests/support/traces.py.

    PYTHONPATH=tests .venv/bin/python tests/train/record_traces.py [NAME]...

As root, after `scripts/setup --train`; a minute or less each. The jobs are the emulator's, or torch
DDP, FSDP, pipelines or experts over Gloo, under cubic or with MLTCP that learns. tcpdump runs where
they send. Of every flow that carries their data NAME.csv gets a row for each time that it sent
without a moment (50 microseconds) at which nothing was outstanding: the job's iteration (0: before
the first one) by the emulator's report or the training loop's own clock, when sending began, when
the first and the last ACK came (microseconds since the recording began), and the bytes
acknowledged.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import math
from bisect import bisect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from support.wire import Capture, Sent, captured
from train.jobs import Place, Rank, switch, training, wait_for_more
from train.mltcp import bottleneck, loaded

from mltcp_tools.kernel.host.signals import Signals
from mltcp_tools.lab.experiments.experiment import Experiment
from mltcp_tools.lab.experiments.links import Link
from mltcp_tools.lab.experiments.reading import parse_experiment
from mltcp_tools.lab.experiments.tasks import tasks_of
from mltcp_tools.lab.testbed import emulators
from mltcp_tools.lab.testbed.network import RECEIVER_ADDRESS, Network

TRACES = Path(__file__).parent.parent / "unit" / "data" / "traces"
QUEUE = 30_000
PORT = 29840
WARM_UP = 10
"""Iterations of training before its flows are given their congestion control."""

SHORT_S = 50e-6
"""Shorter moments without anything outstanding are the sending process's own, and left out."""

ONE = "job-1-rank-1"
"""Of ranks that are alike one is enough: this one sends to rank 0, over the link."""

CARRIES_DATA = 0.05
"""Share of the busiest flow's bytes below which a flow is not one of the job's data."""


@dataclass
class Recorded:
    """The bursts that the flows of a sender's namespace sent.

    begins_s: when its job's iterations began (CLOCK_MONOTONIC). What is sent from then on belongs
    to them.
    """

    name: str
    flows: list[list[Sent]]
    begins_s: list[float]


def of_address(
    name: str, capture: Capture, begins_s: list[float], until_s: float = math.inf
) -> Recorded:
    """The flows that carry data, in the order in which they began. until_s: where to cut them."""
    size = {c: sum(each.bytes for each in sent) for c, sent in capture.flows.items()}
    flows = [
        joined([each for each in sent if each.send_s < until_s])
        for c, sent in capture.flows.items()
        if size[c] > CARRIES_DATA * max(size.values())
    ]
    return Recorded(name, sorted(flows, key=lambda sent: sent[0].send_s), begins_s)


def joined(flow: list[Sent]) -> list[Sent]:
    """Without the shortest gaps, of which there are thousands and which say nothing."""
    whole = [replace(flow[0])]
    for each in flow[1:]:
        if each.send_s - whole[-1].last_ack_s < SHORT_S:
            whole[-1].last_ack_s = each.last_ack_s
            whole[-1].bytes += each.bytes
        else:
            whole.append(replace(each))
    return whole


@contextlib.contextmanager
def captured_senders(network: Network) -> Iterator[list[Capture]]:
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(captured(sender, "to-router", f"10.0.{number}.1"))
            for number, sender in enumerate(network.senders, 1)
        ]


def emulated(jobs: str, cc: str, iterations: int = 40) -> list[Recorded]:
    """The emulator's jobs, given in an experiment's terms, on 200 Mbit/s."""
    experiment: Experiment = parse_experiment(
        f"""
        name: recorded
        link: {{rate: 200mbit, queue: {QUEUE}}}
        jobs: {jobs}
        variants: {{variant: {{cc: {cc}}}}}
        baseline: variant
        iterations: {iterations}
        """,
        "record_traces.py",
    )
    tasks = tasks_of(experiment, experiment.variants[0], 1)[0]
    with contextlib.ExitStack() as stack:
        if cc.startswith("mltcp"):
            stack.enter_context(loaded())
        network = stack.enter_context(bottleneck(len(tasks), experiment.link))
        interrupts = stack.enter_context(Signals())
        place = emulators.Place(network.senders, network.receiver, RECEIVER_ADDRESS)
        with captured_senders(network) as captures:
            running = emulators.Emulators(
                place, interrupts, prepare=lambda *_: None, on_iteration=lambda _: None
            )
            with running:
                measured = running.run(tasks)
            if measured.failure is not None:
                raise measured.failure
    return [
        of_address(
            task.name,
            capture,
            [each["start"] for each in measured.documents[task.name]["iterations"]],
        )
        for task, capture in zip(tasks, captures, strict=True)
    ]


def trained(
    cc: str,
    jobs: int,
    ranks: int,
    width: int,
    rate: int,
    idle_s: float,
    iterations: int,
    program: Sequence[str] = ("ddp.py",),
    kept: str = "",
) -> list[Recorded]:
    """Training jobs; each rank but a job's first one has a sender's namespace of its own.

    kept: how the names of the ranks begin whose flows are kept.
    """
    with contextlib.ExitStack() as stack:
        if cc.startswith("mltcp"):
            stack.enter_context(loaded())
        network = stack.enter_context(bottleneck(jobs * (ranks - 1), Link(rate, QUEUE)))
        with captured_senders(network) as captures:
            running: list[list[Rank]] = []
            with contextlib.ExitStack() as trainings:
                for number in range(jobs):
                    own = network.senders[number * (ranks - 1) :][: ranks - 1]
                    places = [Place(network.receiver, "to-router")]
                    places += [Place(sender, "to-router") for sender in own]
                    running.append(
                        trainings.enter_context(
                            training(
                                *(places, RECEIVER_ADDRESS, PORT + number, 10_000),
                                *(width, idle_s, 0.05, program),
                            )
                        )
                    )
                everybody = [rank for job in running for rank in job]
                wait_for_more(everybody, WARM_UP)
                switch(everybody, cc)
                wait_for_more(everybody, iterations)
    senders = [
        (f"job-{number}-rank-{rank}", job)
        for number, job in enumerate(running, 1)
        for rank in range(1, ranks)
    ]
    return [
        of_address(name, capture, *known_iterations(job))
        for (name, job), capture in zip(senders, captures, strict=True)
        if name.startswith(kept)
    ]


def known_iterations(ranks: list[Rank]) -> tuple[list[float], float]:
    """Return when a job's iterations began to communicate, with its first rank, and when all
    ended.
    """
    known = min(len(rank.ends_s) for rank in ranks)
    begins_s = [min(rank.computed_s[k] for rank in ranks) for k in range(known)]
    return begins_s, max(rank.ends_s[known - 1] for rank in ranks)


FOUR = "[{count: 4, bytes: 2.5MB, compute: 340ms, jitter: 5%, start: random}]"
MANY = "[{count: 2, bytes: 2.5MB, compute: 125ms, jitter: 5%, start: random, flows: 8}]"
IRREGULAR = (
    "[{count: 3, bytes: 2.5MB, compute: 240ms, jitter: 20%, start: random,"
    " straggler: {every: 10, factor: 2}}]"
)
SCENARIOS: dict[str, Callable[[], list[Recorded]]] = {
    "four-jobs-cubic": lambda: emulated(FOUR, "cubic"),
    "four-jobs-mltcp": lambda: emulated(FOUR, "mltcp"),
    "eight-flows-cubic": lambda: emulated(MANY, "cubic"),
    "irregular-cubic": lambda: emulated(IRREGULAR, "cubic"),
    "irregular-mltcp": lambda: emulated(IRREGULAR, "mltcp"),
    "ddp-cubic": lambda: trained("cubic", 2, 2, 512, 40_000_000, 0.45, 30),
    "ddp-ring-cubic": lambda: trained("cubic", 1, 3, 1024, 200_000_000, 0.4, 30),
    "fsdp-cubic": lambda: trained(
        "cubic", 2, 2, 256, 40_000_000, 0.6, 20, ("shapes.py", "fsdp"), ONE
    ),
    "experts-cubic": lambda: trained(
        "cubic", 1, 4, 512, 100_000_000, 0.6, 20, ("shapes.py", "experts"), ONE
    ),
    "pipeline-cubic": lambda: trained(
        "cubic", 1, 4, 1024, 100_000_000, 0.6, 20, ("shapes.py", "pipeline")
    ),
    "pipeline-two-cubic": lambda: trained(
        "cubic", 2, 2, 1024, 40_000_000, 0.6, 20, ("shapes.py", "pipeline")
    ),
}
SHAPES: dict[str, tuple[int, tuple[str, ...]]] = {
    "ddp": (512, ("ddp.py",)),
    "fsdp": (288, ("shapes.py", "fsdp")),
    "pipeline": (128, ("shapes.py", "pipeline:4096")),
    "experts": (128, ("shapes.py", "experts:512")),
}
"""The width of each framework's model, and its program."""


def with_mltcp(shape: str, jobs: int, ranks: int) -> list[Recorded]:
    """One job with a link to itself, or two that need it for most of their iterations."""
    width, program = SHAPES[shape]
    rate = 100_000_000 if ranks == 2 else 150_000_000
    return trained("mltcp", jobs, ranks, width, rate, 0.3, 25, program, ONE)


SCENARIOS |= {
    f"{shape}-{name}-{beside}-mltcp": partial(with_mltcp, shape, jobs, ranks)
    for shape in SHAPES
    for name, ranks in (("two", 2), ("four", 4))
    for beside, jobs in (("alone", 1), ("beside", 2))
}


def write(path: Path, recorded: Sequence[Recorded]) -> None:
    """One table of all flows."""
    zero_s = min(flow[0].send_s for each in recorded for flow in each.flows)
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("flow", "iteration", "send_us", "first_ack_us", "last_ack_us", "bytes"))
        for each in recorded:
            for number, flow in enumerate(each.flows, 1):
                for sent in flow:
                    times = (sent.send_s, sent.first_ack_s, sent.last_ack_s)
                    table.writerow(
                        (
                            f"{each.name}/{number}",
                            bisect(each.begins_s, sent.send_s),
                            *(round((time_s - zero_s) * 1e6) for time_s in times),
                            sent.bytes,
                        )
                    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "names", metavar="NAME", nargs="*", help=f"{', '.join(SCENARIOS)}; without any, all"
    )
    names = parser.parse_args().names or list(SCENARIOS)
    if unknown := set(names) - SCENARIOS.keys():
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(SCENARIOS)}")
    TRACES.mkdir(parents=True, exist_ok=True)
    for name in names:
        recorded = SCENARIOS[name]()
        write(TRACES / f"{name}.csv", recorded)
        rows = sum(len(flow) for each in recorded for flow in each.flows)
        print(f"{name}: {sum(len(each.flows) for each in recorded)} flows, {rows} rows", flush=True)


if __name__ == "__main__":
    main()
