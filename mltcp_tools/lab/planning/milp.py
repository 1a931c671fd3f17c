# SPDX-License-Identifier: BSD-2-Clause
"""The best rotations by mixed-integer programming, with a proof of how good they can be at most.

One 0-1 variable per job and rotation, of which each job takes one; one excess per link and step.
HiGHS solves it: it improves its solution and lowers its bound until they meet or time is up.
"""

from __future__ import annotations

from collections.abc import Sequence

import highspy
import numpy as np

from mltcp_tools.base.errors import MltcpError
from mltcp_tools.lab.planning.rotations import Ints, Problem, turned
from mltcp_tools.lab.profiling.profile import Floats

_POLL_S = 0.1


def solve(
    problem: Problem, start: Sequence[int], time_limit_s: float
) -> tuple[tuple[int, ...], float]:
    """The best rotations found within the time, and a score that none exceed.

    start: rotations to begin with. KeyboardInterrupt ends the search early, with what there is.
    """
    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    highs.silent()
    highs.setOptionValue("time_limit", time_limit_s)
    highs.setOptionValue("mip_rel_gap", 0.0)
    highs.setOptionValue("mip_abs_gap", 1e-7)
    highs.HandleUserInterrupt = True  # what cancelSolve() needs
    highs.passModel(_model(problem))
    highs.setSolution(_solution(problem, start))
    _run(highs)
    info = highs.getInfo()
    values = np.asarray(highs.getSolution().col_value)
    found = _shifts(problem, values) if values.size else tuple(start)
    if problem.score(found) < problem.score(start):
        found = tuple(start)
    bound = min(problem.bound(), 1.0 - info.mip_dual_bound)
    return found, max(bound, problem.score(found))


def _run(highs: highspy.Highs) -> None:
    """Solve in a thread of HiGHS, so that Ctrl-C gets its turn."""
    highs.startSolve()
    while True:
        try:
            if highs.wait(_POLL_S)[0]:
                break
        except KeyboardInterrupt:
            highs.cancelSolve()  # type: ignore[no-untyped-call]
    if highs.getModelStatus() == highspy.HighsModelStatus.kSolveError:
        raise MltcpError("HiGHS could not solve the model; allow more --tolerance.")


def _model(problem: Problem) -> highspy.HighsLp:
    """Columns: the rotations of each job, then the excess of each link in each step, in capacities.

    Rows: the demand of each link in each step less its excess is the capacity at most; then one
    rotation for each job.
    """
    steps = sum(problem.steps)
    jobs, choices = len(problem.ranges), sum(problem.ranges)
    model = highspy.HighsLp()
    model.num_col_ = choices + steps
    model.num_row_ = steps + jobs
    weights = [
        np.full(count, weight / count)
        for count, weight in zip(problem.steps, problem.weights, strict=True)
    ]
    model.col_cost_ = np.concatenate([np.zeros(choices), *weights])
    model.col_lower_ = np.zeros(choices + steps)
    model.col_upper_ = np.r_[np.ones(choices), np.full(steps, highspy.kHighsInf)]
    model.row_lower_ = np.r_[np.full(steps, -highspy.kHighsInf), np.ones(jobs)]
    model.row_upper_ = np.ones(steps + jobs)
    columns = [_columns(problem, job) for job in range(jobs)]
    excess = np.arange(steps)
    lengths = np.concatenate([each[0] for each in columns] + [np.ones(steps, dtype=np.int64)])
    model.a_matrix_.start_ = np.r_[0, np.cumsum(lengths)]
    model.a_matrix_.index_ = np.concatenate([each[1] for each in columns] + [excess])
    model.a_matrix_.value_ = np.concatenate([each[2] for each in columns] + [np.full(steps, -1.0)])
    whole, continuous = highspy.HighsVarType.kInteger, highspy.HighsVarType.kContinuous
    model.integrality_ = [whole] * choices + [continuous] * steps
    return model


def _columns(problem: Problem, job: int) -> tuple[Ints, Ints, Floats]:
    """A job's columns, one per rotation: how many entries each has, and their rows and values."""
    offsets = np.r_[0, np.cumsum(problem.steps)]
    shifts = np.arange(problem.ranges[job])
    blocks, rows = [], []
    for number, link in enumerate(problem.links):
        if job in link.jobs:
            demand = problem.rotated(number, link.jobs.index(job), shifts)
            blocks.append(demand / link.capacity)
            rows.append(np.arange(offsets[number], offsets[number + 1]))
    # Last the row that has the job take one rotation.
    block = np.hstack([*blocks, np.ones((shifts.size, 1))])
    row = np.concatenate([*rows, [offsets[-1] + job]])
    rotation, place = np.nonzero(block)
    return np.bincount(rotation, minlength=shifts.size), row[place], block[rotation, place]


def _solution(problem: Problem, shifts: Sequence[int]) -> highspy.HighsSolution:
    """Rotations as values of the columns."""
    turns = turned(problem, shifts)
    choices = [np.arange(n) == turn for n, turn in zip(problem.ranges, turns, strict=True)]
    excess = [
        np.maximum(0.0, problem.load(number, turns) / link.capacity - 1.0)
        for number, link in enumerate(problem.links)
    ]
    solution = highspy.HighsSolution()
    solution.col_value = np.concatenate([*choices, *excess]).astype(float).tolist()
    return solution


def _shifts(problem: Problem, values: Floats) -> tuple[int, ...]:
    """Values of the columns as rotations."""
    ends = np.cumsum(problem.ranges)
    return tuple(
        int(values[end - count : end].argmax())
        for end, count in zip(ends, problem.ranges, strict=True)
    )
