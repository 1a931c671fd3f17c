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

from mltcp_tools.errors import UsageError
from mltcp_tools.lab.collectives.star import Star

LEAST_SHARE = 0.01
"""Of its rate, that a link always has: a qdisc without any would hold packets for ever."""


@dataclass(frozen=True)
class Replay:
    """shares: of a link's rate, one after the other and from the start again. step_s: of each.

    every_link: whether all links change, each from another place of the trace on; else the first.
    """

    shares: Sequence[float]
    step_s: float
    every_link: bool = False

    def at(self, elapsed_s: float, link: int = 0, links: int = 1) -> float:
        """The share of a link, of so many that change, so many seconds after the start."""
        ahead = link * len(self.shares) // links
        return self.shares[(int(elapsed_s / self.step_s) + ahead) % len(self.shares)]

    def rates(self, elapsed_s: float, whole: Sequence[int]) -> list[int]:
        """Of all links in bit/s, whose rates are `whole`."""
        links = len(whole) if self.every_link else 1
        changed = [round(whole[k] * self.at(elapsed_s, k, links)) for k in range(links)]
        return [*changed, *whole[links:]]


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
def replayed(star: Star, replay: Replay | None) -> Iterator[list[tuple[float, list[int]]]]:
    """Change the links as long as the context lasts.

    Yields what they were: from which second of the monotonic clock on, and each link's bit/s.
    """
    history: list[tuple[float, list[int]]] = []
    if replay is None:
        yield history
        return
    whole, over = list(star.rates), threading.Event()
    failed: list[BaseException] = []

    def set_rates(rates: Sequence[int]) -> None:
        for worker, rate in enumerate(rates):
            if rate != star.rates[worker]:
                star.set_rate(worker, rate)

    def change() -> None:
        begin = time.monotonic()
        while True:
            now = time.monotonic()
            rates = replay.rates(now - begin, whole)
            try:
                set_rates(rates)
            except BaseException as error:
                failed.append(error)
                return
            history.append((now, rates))
            if over.wait(replay.step_s - (time.monotonic() - begin) % replay.step_s):
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
        set_rates(whole)
