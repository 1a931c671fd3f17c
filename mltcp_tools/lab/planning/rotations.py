# SPDX-License-Identifier: BSD-2-Clause
"""The optimisation behind every plan: rotations of jobs, and the excess demand they leave.

Cassini, section 4.2: every job is rotated by some steps; wherever the jobs of a link together ask
for more than its capacity, the rest is excess; score = 1 - mean excess / capacity. Times here are
whole steps of a circle, so that whatever is said of rotations is exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from mltcp_tools.lab.planning.profile import Floats

Ints = npt.NDArray[np.int64]

# Scores this close are equal: sums of rates in another order differ in their last bits.
EQUAL = 1e-9
# Numbers held at a time for one job on one link.
_TABLE = 2_000_000


@dataclass(frozen=True)
class SharedLink:
    """One direction of a link of `capacity`, and the numbers of the jobs on it.

    Units are those of the demands. times: how often what each of them sends crosses it. back: how
    often what comes back to each does; never, without any. weight: what its score counts for.
    """

    capacity: float
    jobs: tuple[int, ...]
    times: tuple[int, ...]
    back: tuple[int, ...] = ()
    weight: float = 1.0


@dataclass(frozen=True)
class Problem:
    """Jobs, by number, that are rotated together because links connect them.

    demand: for each job its rate in each step of one iteration. links: each with two or more jobs.
    back: as `demand`, of what comes back to the job; needed where a link's `back` names it.
    """

    demand: Sequence[Floats]
    links: Sequence[SharedLink]
    back: Sequence[Floats] = ()

    @cached_property
    def weights(self) -> tuple[float, ...]:
        """The share of the score that each link decides on."""
        total = sum(link.weight for link in self.links)
        return tuple(link.weight / total for link in self.links)

    def demand_on(self, link: int, place: int) -> Floats:
        """Return the demand of a link's job number `place` in each step of its iteration."""
        on, job = self.links[link], self.links[link].jobs[place]
        there = self.demand[job] * on.times[place]
        return there + self.back[job] * on.back[place] if on.back else there

    @cached_property
    def periods(self) -> tuple[int, ...]:
        """Steps per iteration, for each job."""
        return tuple(len(each) for each in self.demand)

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """Steps of each link's circle: the least common multiple of its jobs' iterations."""
        return tuple(math.lcm(*(self.periods[j] for j in link.jobs)) for link in self.links)

    @cached_property
    def ranges(self) -> tuple[int, ...]:
        """Return the number of different rotations of each job, given those of the jobs
        before it.

        One iteration at most (Cassini's bound). Turning all jobs together changes nothing, which
        leaves the first job one rotation; turning by a common multiple of the iterations of the
        jobs before leaves these as they are, which leaves the others no more than the common
        divisor.
        """
        found: list[int] = []
        common = 1
        for period in self.periods:
            found.append(math.gcd(period, common) if found else 1)
            common = math.lcm(common, period)
        return tuple(found)

    @cached_property
    def _tables(self) -> dict[tuple[int, int], Floats]:
        """`rotated` of every rotation, by link and place, for those that are small."""
        return {}

    def rotated(self, link: int, place: int, shifts: Ints) -> Floats:
        """Demand of a link's job number `place` at `shifts`: shape (shifts, steps of the link)."""
        table = self._table(link, place)
        if table is None:
            return self._rotate(link, place, shifts)
        found: Floats = table[shifts % len(table)]
        return found

    def _table(self, link: int, place: int) -> Floats | None:
        """All rotations of a link's job, unless they are too much to keep."""
        period = self.periods[self.links[link].jobs[place]]
        if period * self.steps[link] > _TABLE:
            return None
        if (link, place) not in self._tables:
            self._tables[link, place] = self._rotate(link, place, np.arange(period))
        return self._tables[link, place]

    def _rotate(self, link: int, place: int, shifts: Ints) -> Floats:
        own = self.demand_on(link, place)
        at = np.arange(self.steps[link])[None, :] - shifts[:, None]
        demand: Floats = own[at % len(own)]
        return demand

    def load(self, link: int, shifts: Sequence[int], without: int | None = None) -> Floats:
        """Demand of the link in each step, without job number `without`."""
        total = np.zeros(self.steps[link])
        for place, job in enumerate(self.links[link].jobs):
            if job != without:
                total += self.rotated(link, place, np.array([shifts[job]]))[0]
        return total

    def link_score(self, link: int, shifts: Sequence[int]) -> float:
        """The score of one link."""
        excess = np.maximum(0.0, self.load(link, shifts) / self.links[link].capacity - 1.0)
        return 1.0 - float(excess.mean())

    def score(self, shifts: Sequence[int]) -> float:
        """The mean of the links' scores, each counting for its weight."""
        return float(sum(w * self.link_score(n, shifts) for n, w in enumerate(self.weights)))

    @cached_property
    def links_of(self) -> list[list[int]]:
        """Numbers of the links that each job is on."""
        found: list[list[int]] = [[] for _ in self.demand]
        for number, link in enumerate(self.links):
            for job in link.jobs:
                found[job].append(number)
        return found

    def scores_of(self, job: int, shifts: Sequence[int], candidates: int) -> Floats:
        """Return the job's own links' part of the score at its rotations 0 to `candidates` - 1.

        The other jobs are at `shifts`. Rounded, so that equal ones are.
        """
        total = np.zeros(candidates)
        for number in self.links_of[job]:
            link = self.links[number]
            rest = self.load(number, shifts, without=job) - link.capacity
            place = link.jobs.index(job)
            table = self._table(number, place)
            block = candidates if table is not None else max(1, _TABLE // self.steps[number])
            for first in range(0, candidates, block):
                last = min(candidates, first + block)
                if table is not None:
                    excess = table[:last] + rest
                else:
                    excess = self._rotate(number, place, np.arange(first, last)) + rest
                np.maximum(excess, 0.0, out=excess)
                score = 1.0 - excess.mean(axis=1) / link.capacity
                total[first:last] += score * self.weights[number]
        return np.asarray(np.round(total, 12))

    def bound(self) -> float:
        """A score that no rotations exceed: as if demand could be spread evenly over each circle.

        What the jobs need beyond the capacity on average is excess wherever it ends up, and so is
        what one job asks for beyond the capacity all by itself.
        """
        scores = []
        for number, link in enumerate(self.links):
            own = [self.demand_on(number, place) / link.capacity for place in range(len(link.jobs))]
            spread = sum(float(each.mean()) for each in own) - 1.0
            alone = max(float(np.maximum(0.0, each - 1.0).mean()) for each in own)
            scores.append(1.0 - max(0.0, spread, alone))
        return float(np.dot(self.weights, scores))


def turned(problem: Problem, shifts: Sequence[int]) -> tuple[int, ...]:
    """The same rotations, all turned together until each lies within its `ranges`."""
    found = list(shifts)
    common = 1
    for job, period in enumerate(problem.periods):
        divisor = math.gcd(period, common) if job else 1
        # turn by `times` * common, which the jobs before don't notice, to get into the range
        distance = (found[job] % divisor - found[job]) // divisor
        times = distance * pow(common // divisor, -1, period // divisor)
        found = [shift + times * common for shift in found]
        common = math.lcm(common, period)
    return tuple(shift % period for shift, period in zip(found, problem.periods, strict=True))
