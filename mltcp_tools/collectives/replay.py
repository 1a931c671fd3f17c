"""A link whose rate changes over time as measured elsewhere (the traces of AdapCC, ICDCS'24)."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from mltcp_tools.collectives.star import Star
from mltcp_tools.errors import UsageError

LEAST_SHARE = 0.01
"""Of its rate, that a link always has: a qdisc without any would hold packets for ever."""


@dataclass(frozen=True)
class Replay:
    """shares: of the link's rate, one after the other and from the start again. step_s: of each."""

    shares: Sequence[float]
    step_s: float

    def at(self, elapsed_s: float) -> float:
        """The share so many seconds after the start."""
        return self.shares[int(elapsed_s / self.step_s) % len(self.shares)]


def read_shares(path: Path, first: int = 0) -> list[float]:
    """From a JSON list of bandwidths in any unit: each as a share of their median, from `first` on.

    A link is at its nominal rate where the trace is at its median; higher bandwidths count as that,
    for the emulated links have no more.
    """
    try:
        values = [float(each) for each in json.loads(path.read_text())]
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(f"{path} is no JSON list of bandwidths ({error}).") from None
    if not values or min(values) < 0 or max(values) <= 0:
        raise UsageError(f"{path} needs bandwidths that aren't negative, and one above 0.")
    if first >= len(values):
        raise UsageError(f"{path} has {len(values)} bandwidths; none is number {first}.")
    typical = median(value for value in values if value > 0)
    shares = [min(1.0, max(LEAST_SHARE, value / typical)) for value in values]
    return shares[first:] + shares[:first]


@contextlib.contextmanager
def replayed(star: Star, worker: int, replay: Replay | None) -> Iterator[list[tuple[float, int]]]:
    """Change a worker's link as long as the context lasts; what it was, as (seconds, bit/s)."""
    history: list[tuple[float, int]] = []
    if replay is None:
        yield history
        return
    whole, over = star.rates[worker], threading.Event()
    failed: list[BaseException] = []

    def change() -> None:
        begin = time.monotonic()
        while True:
            elapsed = time.monotonic() - begin
            rate = round(whole * replay.at(elapsed))
            try:
                if rate != star.rates[worker]:
                    star.set_rate(worker, rate)
            except BaseException as error:
                failed.append(error)
                return
            history.append((elapsed, rate))
            if over.wait(replay.step_s - elapsed % replay.step_s):
                return

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield history
    finally:
        over.set()
        thread.join()
        if failed:
            raise failed[0]
        star.set_rate(worker, whole)
