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

from mltcp_tools.profiling.profile import Floats

Ints = npt.NDArray[np.int64]

# Scores this close are equal: sums of rates in another order differ in their last bits.
EQUAL = 1e-9
# Numbers held at a time for one job on one link.
_TABLE = 2_000_000


@dataclass(frozen=True)
class SharedLink:
    """A link of `capacity` and the numbers of the jobs on it. Units are those of the demands.

    times: how often the traffic of each of them crosses it in one direction.
    """

    capacity: float
    jobs: tuple[int, ...]
    times: tuple[int, ...]


@dataclass(frozen=True)
class Problem:
    """Jobs, by number, that are rotated together because links connect them.

    demand: for each job its rate in each step of one iteration. links: each with two or more jobs.
    """

    demand: Sequence[Floats]
    links: Sequence[SharedLink]

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
        """How many rotations of each job differ from each other, given those of the jobs before it.

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
        job = self.links[link].jobs[place]
        at = np.arange(self.steps[link])[None, :] - shifts[:, None]
        demand: Floats = self.demand[job][at % self.periods[job]]
        return demand * self.links[link].times[place]

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
        """The mean of the links' scores."""
        return float(np.mean([self.link_score(n, shifts) for n in range(len(self.links))]))

    @cached_property
    def links_of(self) -> list[list[int]]:
        """Numbers of the links that each job is on."""
        found: list[list[int]] = [[] for _ in self.demand]
        for number, link in enumerate(self.links):
            for job in link.jobs:
                found[job].append(number)
        return found

    def scores_of(self, job: int, shifts: Sequence[int], candidates: int) -> Floats:
        """What the job's own links add to the score at its rotations 0 to `candidates` - 1.

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
                total[first:last] += 1.0 - excess.mean(axis=1) / link.capacity
        return np.asarray(np.round(total / len(self.links), 12))

    def bound(self) -> float:
        """A score that no rotations exceed: as if demand could be spread evenly over each circle.

        What the jobs need beyond the capacity on average is excess wherever it ends up, and so is
        what one job asks for beyond the capacity all by itself.
        """
        scores = []
        for link in self.links:
            own = [
                t * self.demand[j] / link.capacity
                for j, t in zip(link.jobs, link.times, strict=True)
            ]
            spread = sum(float(each.mean()) for each in own) - 1.0
            alone = max(float(np.maximum(0.0, each - 1.0).mean()) for each in own)
            scores.append(1.0 - max(0.0, spread, alone))
        return float(np.mean(scores))


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
