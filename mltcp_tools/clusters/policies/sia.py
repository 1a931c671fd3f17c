"""Sia: in every round, an integer program gives each job one of its configurations or none (Jayaram
Subramanya et al., SOSP 2023).

A configuration costs (r s)^-0.5: s is the job's speed in it over that in its slowest one, and r,
below 1 where it isn't the one that the job has, says how much of the job's time restarts take. No
GPUs cost a little more than the slowest configuration, and a change a little more than none. As all
GPUs here are of one kind, configurations differ in their number alone. Speeds are those that the
other policies use, too.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from mltcp_tools.clusters.models import Allocation
from mltcp_tools.clusters.policies.marginal import speed
from mltcp_tools.clusters.policies.placing import place_counts
from mltcp_tools.clusters.policies.plan import sizes
from mltcp_tools.clusters.view import RESTART_S, Decision, JobState, View

POWER, NONE, CHANGE = -0.5, 1.1, 0.01
"""The exponent of speeds; the costs of no GPUs and of a change."""


class Sia:
    """Jobs start, change and stop in rounds only."""

    name = "sia"
    round_s: float | None = 60.0

    def __init__(self) -> None:
        self._round = -1
        self._restarts: Counter[int] = Counter()

    def decide(self, view: View) -> Decision:
        """The round's counts of GPUs; jobs whose count stays keep their place."""
        assert self.round_s is not None
        kept: dict[int, Allocation] = {state.number: state.allocation for state in view.running}
        this = int(view.now_s / self.round_s + 1e-6)
        if this == self._round:
            return kept
        self._round = this
        states = sorted((*view.running, *view.waiting), key=lambda state: state.number)
        counts = self._counts(view, states)
        for state in view.running:
            if counts[state.number] != sum(state.allocation.values()):
                del kept[state.number]
                self._restarts[state.number] += 1
        states.sort(key=lambda state: (-counts[state.number], state.number))
        return place_counts(view, kept, states, counts)

    def _counts(self, view: View, states: list[JobState]) -> dict[int, int]:
        """The configurations that cost least together."""
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import coo_array

        chosen, costs = [], []
        for row, state in enumerate(states):
            speeds = {gpus: speed(view, state, gpus) for gpus in sizes(view, state)}
            for gpus, own in speeds.items():
                chosen.append((row, gpus))
                costs.append(self._cost(view, state, gpus, own / min(speeds.values())))
        counts = dict.fromkeys((state.number for state in states), 0)
        if not chosen:
            return counts
        rows, gpus = np.array(chosen).T
        places = np.arange(len(chosen))
        once = coo_array((np.ones(len(chosen)), (rows, places)), shape=(len(states), len(chosen)))
        found = milp(
            np.array(costs) - NONE,
            integrality=np.ones(len(chosen)),
            bounds=Bounds(0, 1),
            constraints=[
                LinearConstraint(once.tocsr(), ub=1),
                LinearConstraint(gpus[np.newaxis], ub=int(view.free_without({}).sum())),
            ],
        )
        for place in np.flatnonzero(found.x > 0.5):
            counts[states[rows[place]].number] = int(gpus[place])
        return counts

    def _cost(self, view: View, state: JobState, gpus: int, faster: float) -> float:
        if not state.running or gpus == sum(state.allocation.values()):
            return float(faster**POWER)
        age_s = view.now_s - (state.first_start_s or 0.0)
        left = (age_s - self._restarts[state.number] * RESTART_S) / (age_s + RESTART_S)
        return float((max(left, 1e-3) * faster) ** POWER) + CHANGE
