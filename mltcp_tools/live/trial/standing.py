# SPDX-License-Identifier: BSD-2-Clause
"""The standing proof of an agent: now and then all its jobs run their base for a period.

Each round compares a period of the base with one of mltcp beside it, in an order that is tossed. A
job's gain over all rounds is published with its interval; it is judged after 8 rounds, 16, 32 and
64, and anew from there, as who looks after each round finds something sooner or later.
"""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from mltcp_tools.base.errors import MltcpError
from mltcp_tools.kernel.backends.base import Backend
from mltcp_tools.kernel.host.closing import Closing
from mltcp_tools.live.attach.state import StateFiles
from mltcp_tools.live.observe.meter import Meter
from mltcp_tools.live.observe.passive import NoIterations
from mltcp_tools.live.observe.view import Gain
from mltcp_tools.live.trial.adapters import LiveWorld
from mltcp_tools.live.trial.evidence import Difference, difference, share
from mltcp_tools.live.trial.order import Order
from mltcp_tools.live.trial.period import BASE, MLTCP, Ended, log_ratio
from mltcp_tools.live.trial.rollback import Lease
from mltcp_tools.live.trial.subjects import find_subjects
from mltcp_tools.live.trial.surroundings import Interrupted, JobEnded, World
from mltcp_tools.live.trial.trial import LEAST_ITERATIONS, periods_of, take_period, what_changed

JUDGED = (8, 16, 32, 64)
"""Rounds after which a job is judged."""

_PATIENCE_S = 60.0
"""For which a job's iterations are looked for."""

_RETRY_S = 60.0


@dataclass(frozen=True)
class Standing:
    """The rule. share: of the time that jobs run their base. slower: a job that is proven slower
    with mltcp, by this share or more, is detached if `detach`, else only reported. period_s: length
    of a period, longer where 40 iterations take longer.
    """

    share: float
    slower: float
    detach: bool
    period_s: float


@dataclass
class Proof:
    """A job's rounds so far. tosses: whether mltcp came first in each; values: log ratios."""

    tosses: list[bool] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def add(self, mltcp_first: bool, value: float) -> None:
        """One round more; after the last that is judged it begins anew."""
        if len(self.values) == JUDGED[-1]:
            self.tosses, self.values = [], []
        self.tosses.append(mltcp_first)
        self.values.append(value)

    def longer(self) -> Difference:
        """Return the difference of iterations with mltcp."""
        order = Order(tuple(self.tosses), planned=0)
        return difference(self.values, order, range(len(self.values)))

    def gain(self) -> Gain:
        """The same as a gain: by which share they are shorter."""
        longer = self.longer()
        low, high = (
            -share(each) if math.isfinite(each) else None for each in (longer.high, longer.low)
        )
        return Gain(-share(longer.mean), low, high, longer.p, longer.rounds)

    def is_slower(self, by: float) -> bool:
        """Return whether mltcp is to be taken off: at a round at which it is judged."""
        if len(self.values) not in JUDGED:
            return False
        longer = self.longer()
        return longer.proven and share(longer.mean) >= by


@dataclass(frozen=True)
class RoundResult:
    """The result of one round: log ratios by job. discarded: why there are none."""

    mltcp_first: bool
    values: Mapping[str, float]
    discarded: str = ""


def compare(world: World, period_s: float, mltcp_first: bool) -> RoundResult:
    """One round in the world, whose jobs run mltcp in the end."""
    try:
        world.switch(MLTCP)
        periods_s = periods_of(world.learn())
        every_s = max(period_s, LEAST_ITERATIONS * max(periods_s.values()))
        variants = (MLTCP, BASE) if mltcp_first else (BASE, MLTCP)
        periods = {
            variant: take_period(world, variant, every_s, periods_s, {}) for variant in variants
        }
    except NoIterations:
        raise
    except (Ended, JobEnded, MltcpError) as error:
        return RoundResult(mltcp_first, {}, str(error))
    if changed := what_changed(list(periods.values()), world):
        return RoundResult(mltcp_first, {}, " ".join(changed))
    values = {
        job: log_ratio(periods[BASE].jobs[job], periods[MLTCP].jobs[job]) for job in periods_s
    }
    return RoundResult(mltcp_first, values)


class Prover(Closing):
    """Runs rounds beside the agent, in a thread, and keeps what they prove. A context manager."""

    def __init__(
        self, rule: Standing, backend: Backend, say: Callable[[str], None], now_s: float
    ) -> None:
        self.rule = rule
        self.proofs: dict[str, Proof] = {}
        self._backend = backend
        self._say = say
        self._source = random.Random()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._done: list[RoundResult] = []
        self._next_s = now_s
        self._without: set[str] = set()
        """Jobs whose iterations can't be seen."""
        self._warned: set[str] = set()

    def close(self) -> None:
        """End the round that runs, whose jobs are attached again; closing twice is fine."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def step(self, jobs: Sequence[str], now_s: float) -> list[str]:
        """Begin a round where one is due, and take what the last one gave.

        jobs: those attached that the agent follows. Returns those that mltcp is to be taken off.
        """
        if self._thread is not None:
            if self._thread.is_alive():
                return []
            self._thread = None
            return self._take(now_s)
        self.proofs = {job: proof for job, proof in self.proofs.items() if job in jobs}
        self._without &= set(jobs)
        wanted = [job for job in jobs if job not in self._without]
        if wanted and now_s >= self._next_s:
            self._thread = threading.Thread(target=self._round, args=(wanted,), daemon=True)
            self._thread.start()
        return []

    def gains(self) -> dict[str, Gain]:
        """Of each job with a round, what it gains."""
        return {job: proof.gain() for job, proof in self.proofs.items() if proof.values}

    def _take(self, now_s: float) -> list[str]:
        done, self._done = self._done, []
        if not done:
            self._next_s = now_s + _RETRY_S
            return []
        # A period of the base in each of these; when in it is drawn, lest it keeps step with a job.
        cycle_s = self.rule.period_s / self.rule.share
        self._next_s = now_s + self._source.uniform(0.5, 1.5) * cycle_s - 2 * self.rule.period_s
        (found,) = done
        if found.discarded:
            self._say(f"A round of the standing proof is discarded: {found.discarded}")
        slower = []
        for job, value in found.values.items():
            proof = self.proofs.setdefault(job, Proof())
            proof.add(found.mltcp_first, value)
            if proof.is_slower(self.rule.slower):
                slower.append(job)
        return slower

    def _round(self, jobs: Sequence[str]) -> None:
        """A round of these jobs, of those among them that have iterations; in its own thread."""
        left = list(jobs)
        try:
            while left:
                try:
                    self._done.append(self._compare(left))
                    return
                except NoIterations as error:
                    self._say(f"The standing proof leaves {error.job} out. {error}")
                    self._without.add(error.job)
                    left.remove(error.job)
        except Interrupted:  # the agent stops
            return
        except MltcpError as error:
            self._warn(f"No round of the standing proof: {error}")

    def _warn(self, sentence: str) -> None:
        """Say it, unless it was said already."""
        if sentence not in self._warned:
            self._warned.add(sentence)
            self._say(sentence)

    def _compare(self, jobs: Sequence[str]) -> RoundResult:
        attached = {state.job.name for state in StateFiles().read()}
        subjects = find_subjects({job: () for job in jobs if job in attached})
        (name, *others) = {
            record.new for each in subjects if each.before for record in each.before.sockets
        }
        if others:
            raise MltcpError("its jobs run several congestion controls of MLTCP.")
        with Meter() as meter, Lease(subjects) as lease:
            world = LiveWorld(
                subjects, name, self._backend, lease, meter, self._stop.is_set, _PATIENCE_S
            )
            return compare(world, self.rule.period_s, self._source.random() < 0.5)
