"""What going on without late ranks would gain on iteration times as they were measured.

A job's ranks compute for the times of a trace and reduce; the rules are those of the coordinator,
the collective takes as long as it is said to. No time passes.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mltcp_tools.collectives.adaptive.coordination import MOST_BEHIND
from mltcp_tools.collectives.adaptive.coordinator import Costs, decide
from mltcp_tools.collectives.adaptive.links import Floats
from mltcp_tools.errors import UsageError

Lateness = npt.NDArray[np.bool_]

COLUMNS = ("worker", "time", "batch_time_norm")
"""Of a trace: the rank, the iteration, and what it computed for, in any unit."""


@dataclass(frozen=True)
class Straggling:
    """Mean times of an iteration, in the trace's unit.

    waiting: for all ranks each time. going_on: without the late where that is worth it. late: share
    of ranks' values that came a step later. none_late: as if every rank took the iteration's mean.
    """

    waiting: float
    going_on: float
    none_late: float
    late: float

    @property
    def gain(self) -> float:
        """How many times faster it is to go on."""
        return self.waiting / self.going_on

    @property
    def most_gain(self) -> float:
        """How many times faster it would be if no rank was late: no rule gains more."""
        return self.waiting / self.none_late


def read_times(path: Path) -> Floats:
    """Iterations x ranks, from a CSV file with COLUMNS; without iterations that lack a rank."""
    times: dict[float, dict[str, float]] = {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                worker, when, took = (row[column] for column in COLUMNS)
                times.setdefault(float(when), {})[worker] = float(took)
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise UsageError(
            f"{path} is not a table of iteration times ({error}); it needs the columns"
            f" {', '.join(COLUMNS)}."
        ) from None
    workers = sorted({worker for row in times.values() for worker in row})
    whole = [row for _, row in sorted(times.items()) if len(row) == len(workers)]
    if len(workers) < 2 or not whole:
        raise UsageError(f"{path} has no iteration of at least two ranks.")
    return np.array([[row[worker] for worker in workers] for row in whole])


def straggling(compute: Floats, collective: float) -> Straggling:
    """compute: iterations x ranks. collective: what a whole one takes, in the same unit."""
    waiting, _ = run_waiting(compute, collective)
    sooner, late = run_going_on(compute, collective)
    none_late = float(compute.mean()) + collective
    return Straggling(waiting, sooner, none_late, float(late.mean()))


def run_waiting(compute: Floats, collective: float) -> tuple[float, Lateness]:
    """Mean time of an iteration, and no late values."""
    return _run(compute, collective, max)


def run_going_on(compute: Floats, collective: float) -> tuple[float, Lateness]:
    """Mean time of an iteration, and whose values came late, iterations x ranks."""
    costs = Costs(collective, compute.shape[1])

    def start(arrivals: Sequence[float]) -> float:
        return decide(arrivals, costs, silent_s=float("inf")).start_s

    return _run(compute, collective, start)


def _run(
    compute: Floats, collective: float, start: Callable[[Sequence[float]], float]
) -> tuple[float, Lateness]:
    """As run_going_on. start: of the ranks' arrivals."""
    ranks = compute.shape[1]
    finished = np.zeros(ranks)
    arrivals: list[Floats] = []
    done, late = 0.0, np.zeros(compute.shape, dtype=bool)
    for number, row in enumerate(compute):
        arrived = finished + row
        arrivals.append(arrived)
        begin = max(start(list(arrived)), done)
        if len(arrivals) > MOST_BEHIND:  # ranks further behind are waited for
            begin = max(begin, float(arrivals[-1 - MOST_BEHIND].max()))
        late[number] = arrived > begin
        done = begin + collective
        finished = np.maximum(arrived, done)
    return float(finished.max()) / len(compute), late
