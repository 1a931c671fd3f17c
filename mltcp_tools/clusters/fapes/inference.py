# SPDX-License-Identifier: BSD-2-Clause
"""The inference side: requests, replicas that serve them, and who decides how many there are.

A replica is a GPU with some slots; a request takes one slot for its service time, in the order of
arrival. New replicas are ready STARTUP_S after the decision; those taken away finish what they do.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

TICK_S = 2.0
STARTUP_S = 20.0
SLOTS = 8
SWING = 0.7
"""Share of noon's requests that are missing at night."""
SLO_WAIT_S = 2.0
"""A request meets its objective if it waits no longer than this for a slot."""

UTILISATIONS, WINDOWS_S = (0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.7), (30.0, 60.0, 120.0)
"""The values that KPA is tuned over."""


@dataclass(frozen=True)
class Request:
    """arrival_s: seconds since the start. context, generated: tokens."""

    arrival_s: float
    context: int
    generated: int

    @property
    def service_s(self) -> float:
        """Seconds for which it keeps a slot busy: for each token, and for a request."""
        return 0.02 + 0.0002 * self.context + 0.02 * self.generated


class Kpa:
    """Knative's pod autoscaler: a stable window of 60 s, a panic window of 6 s.

    Wanted are concurrency / (target x utilisation), which is 0.7 unless given; at twice the ready
    pods or more it panics, and while it does, for a stable window, it only scales up. At most half
    is scaled down at a time.
    """

    def __init__(self, stable_s: float = 60.0, utilisation: float = 0.7) -> None:
        self._target, self._stable_s = SLOTS * utilisation, stable_s
        self._stable: deque[float] = deque(maxlen=int(stable_s / TICK_S))
        self._panic: deque[float] = deque(maxlen=max(1, int(stable_s / 10 / TICK_S)))
        self._panic_until_s = -math.inf
        self._most = 0

    def wanted(self, now_s: float, concurrency: float, arrived: int, replicas: int) -> int:
        """Number of replicas that there should be, asked every TICK_S. concurrency: requests in
        service or waiting, mean since the last tick; arrived: since then; replicas: ready ones."""
        self._stable.append(concurrency)
        self._panic.append(concurrency)
        stable = math.ceil(float(np.mean(self._stable)) / self._target)
        panic = math.ceil(float(np.mean(self._panic)) / self._target)
        if panic >= 2 * max(1, replicas):
            if now_s >= self._panic_until_s:
                self._most = 0
            self._panic_until_s = now_s + self._stable_s
        if now_s < self._panic_until_s:
            self._most = max(self._most, panic, replicas)
            return self._most
        return max(1, stable, math.ceil(replicas / 2))


def tuned(requests: Sequence[Request], limit: int) -> Kpa:
    """KPA with the utilisation and window that meet the most objectives of the requests' first
    tenth with no more servers than prediction has there: what an operator would try."""
    first = requests[: max(1, len(requests) // 10)]
    mean_s = float(np.mean([each.service_s for each in first]))
    most = float(np.mean(serve(first, Predictive(mean_s), limit).replicas or [1]))

    def score(ways: tuple[float, float]) -> tuple[bool, float, float]:
        served = serve(first, Kpa(stable_s=ways[1], utilisation=ways[0]), limit)
        mean = float(np.mean(served.replicas or [1]))
        return mean <= most * 1.02, served.slo_attainment, -mean

    ways = [(utilisation, stable_s) for utilisation in UTILISATIONS for stable_s in WINDOWS_S]
    utilisation, stable_s = max(ways, key=score)
    return Kpa(stable_s=stable_s, utilisation=utilisation)


class Predictive:
    """FaPES' guard: what KPA wants, or more where the load of the next minutes is predicted higher.

    Predicted is the highest rate of the last `WINDOW_S`, with the trend since the window before
    (Holt's linear smoothing), times the mean service time, with room for Poisson's spread and the
    servers' start-up. Replicas leave only after the prediction has been lower for HOLD_S.
    """

    WINDOW_S = 30.0
    HOLD_S = 120.0
    SIGMAS = 3.0

    def __init__(self, service_s: float) -> None:
        self._kpa, self._service_s = Kpa(), service_s
        self._level = self._trend = 0.0
        self._counts: deque[int] = deque(maxlen=int(self.WINDOW_S / TICK_S))
        self._wishes: deque[int] = deque(maxlen=int(self.HOLD_S / TICK_S))

    def wanted(self, now_s: float, concurrency: float, arrived: int, replicas: int) -> int:
        """See Kpa."""
        self._counts.append(arrived)
        rate = sum(self._counts) / (len(self._counts) * TICK_S)
        before = self._level
        self._level = 0.3 * rate + 0.7 * (self._level + self._trend)
        self._trend = 0.1 * (self._level - before) + 0.9 * self._trend
        ahead = max(rate, self._level + self._trend * (STARTUP_S + self.WINDOW_S) / TICK_S)
        busy = max(ahead, 0.0) * self._service_s
        room = busy + self.SIGMAS * math.sqrt(busy)
        kpa = self._kpa.wanted(now_s, concurrency, arrived, replicas)
        self._wishes.append(max(math.ceil(room / SLOTS), kpa))
        return max(self._wishes)


Scaler = Kpa | Predictive


@dataclass
class Served:
    """The outcome of the requests. waits_s: of each; replicas: wanted at each tick."""

    waits_s: npt.NDArray[np.float64]
    replicas: list[int] = field(default_factory=list)

    @property
    def slo_attainment(self) -> float:
        """Share of requests that waited no longer than SLO_WAIT_S."""
        return float(np.mean(self.waits_s <= SLO_WAIT_S))

    def needs(self, gpus: int) -> Iterator[tuple[float, int]]:
        """(seconds, servers of so many GPUs that inference has from then on), at each change."""
        before = -1
        for tick, replicas in enumerate(self.replicas):
            servers = math.ceil(replicas / gpus)
            if servers != before:
                yield tick * TICK_S, servers
                before = servers


def serve(requests: Sequence[Request], scaler: Scaler, limit: int) -> Served:
    """Serve the requests with as many replicas as the scaler wants, at most `limit`."""
    first = max(1, min(limit, 2))
    free = [(0.0, number) for number in range(first * SLOTS)]  # slots by when they are free
    heapq.heapify(free)
    have, retire, serial = first, 0, first * SLOTS
    waits = np.zeros(len(requests))
    served = Served(waits)
    ending: list[float] = []  # requests in service or waiting, by when they are done
    tick_s, arrived, area, at_s = TICK_S, 0, 0.0, 0.0
    for number, request in enumerate(requests):
        while request.arrival_s >= tick_s:
            area, at_s = _leave(ending, area, at_s, tick_s)
            wanted = max(1, min(limit, scaler.wanted(tick_s, area / TICK_S, arrived, have)))
            for _ in range((wanted - have) * SLOTS):
                if retire:
                    retire -= 1
                else:
                    heapq.heappush(free, (tick_s + STARTUP_S, serial))
                    serial += 1
            retire += max(0, have - wanted) * SLOTS
            while retire and len(free) > SLOTS:
                # The slots that would be free first are the idle ones.
                heapq.heappop(free)
                retire -= 1
            have = wanted
            served.replicas.append(have)
            tick_s, arrived, area = tick_s + TICK_S, 0, 0.0
        area, at_s = _leave(ending, area, at_s, request.arrival_s)
        free_s, slot = heapq.heappop(free)
        start_s = max(free_s, request.arrival_s)
        end_s = start_s + request.service_s
        waits[number] = start_s - request.arrival_s
        heapq.heappush(free, (end_s, slot))
        heapq.heappush(ending, end_s)
        arrived += 1
    return served


def _leave(ending: list[float], area: float, since_s: float, now_s: float) -> tuple[float, float]:
    """Request seconds in the system until now, those that end meanwhile gone."""
    while ending and ending[0] <= now_s:
        end_s = heapq.heappop(ending)
        area += (len(ending) + 1) * (end_s - since_s)
        since_s = end_s
    return area + len(ending) * (now_s - since_s), now_s


def replayed(
    requests: Sequence[Request], hours: float, tenants: int, seed: int, swing: float = SWING
) -> list[Request]:
    """The requests of so many tenants, for so many hours.

    Each tenant replays the trace over and over from an instant of its own. Of noon's load, a share
    of 1 - `swing` is left at night, 6 hours later: a day of 12 hours, so that 8 hours see both.
    """
    draw = np.random.default_rng(seed)
    span_s = requests[-1].arrival_s + 1.0
    arrivals = np.array([request.arrival_s for request in requests])
    found: list[Request] = []
    for _ in range(tenants):
        shift_s = float(draw.uniform(0, span_s))
        for slot in range(-1, math.ceil(hours * 3600 / span_s)):
            at_s = arrivals + slot * span_s + shift_s
            share = 1 - swing / 2 * (1 - np.cos(2 * math.pi * at_s / 43_200))
            kept = (draw.uniform(size=len(at_s)) < share) & (at_s >= 0) & (at_s < hours * 3600)
            found += [
                Request(float(at_s[n]), requests[n].context, requests[n].generated)
                for n in np.flatnonzero(kept).tolist()
            ]
    return sorted(found, key=lambda each: each.arrival_s)
