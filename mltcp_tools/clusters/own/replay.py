# SPDX-License-Identifier: BSD-2-Clause
"""Recorded jobs where and when they ran, simulated, and held against what was observed.

Computing times that nobody gave are fitted to iterations of the first half of each model's jobs,
and iterations that nobody counted to how long a job ran; all other jobs are predicted. What is off
there says how far to trust the rest.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from mltcp_tools.clusters.outcome import Outcome
from mltcp_tools.clusters.policies import policy
from mltcp_tools.clusters.reading import LEAST_COMPUTE
from mltcp_tools.clusters.rules import treatment
from mltcp_tools.clusters.simulate import ClusterSimulator
from mltcp_tools.clusters.workload import ClusterJob, Workload, computing_s, servers_of

BASE = "reno"
"""The congestion control that jobs are taken to run over."""
JITTER = 0.03
"""Of computing, where a job doesn't say: without any, jobs would stay as they happen to begin, and
keep out of each other's way or not for ever."""
OVERRUN = 1.1
"""Times the log's GPU hours that its simulation may hold; more says that an input is wrong."""
_ROUNDS = 4
_FACTORS = (0.1, 0.25, 0.5, 0.75, 1.25, 1.5)
"""Of fitted computing times, tried for whether they fit as well."""
_FITS = 0.05
"""A fitted computing time is as good as another if predictions are within this share."""


def by_start(workload: Workload) -> Workload:
    """The same jobs, arriving when they started, with JITTER where they have none."""
    jobs = [
        replace(
            job,
            arrival_s=job.arrival_s if job.start_s is None else job.start_s,
            jitter=job.jitter or JITTER,
        )
        for job in workload.jobs
    ]
    return replace(workload, jobs=tuple(sorted(jobs, key=lambda job: job.arrival_s)))


def shortened(workload: Workload, iterations: int = 1_000_000, least: int = 20) -> Workload:
    """The same cluster and overlap with about so many iterations between servers: every time and
    every number of iterations is divided by one factor; no job that sends has fewer than `least`.
    Other jobs have one long iteration, as only how long they hold their GPUs counts."""
    gpus = workload.topology.gpus
    sends = [servers_of(job, gpus) > 1 and job.model.size > 0 for job in workload.jobs]
    total = sum(job.iterations for job, own in zip(workload.jobs, sends, strict=True) if own)
    factor, jobs = max(1.0, total / iterations), []
    for job, own in zip(workload.jobs, sends, strict=True):
        short = replace(job, arrival_s=job.arrival_s / factor)
        if own:
            number = max(min(least, job.iterations), round(job.iterations / factor))
            jobs.append(replace(short, iterations=number))
        else:
            compute_s = job.iterations * job.model.compute_s / factor
            model = replace(job.model, compute_s=compute_s, step_s=None)
            jobs.append(replace(short, iterations=1, model=model))
    return replace(workload, jobs=tuple(jobs))


def simulated(workload: Workload, name: str = "replay", how: str = BASE) -> Outcome:
    """The outcome under a policy and a treatment."""
    return ClusterSimulator(workload, policy(name, workload.seed), treatment(how)).run()


def calibrated(workload: Workload) -> tuple[Workload, set[str]]:
    """The workload with computing times that fit observed iterations, where nobody gave them, and
    with as many iterations as make observed durations, where nobody said how many; and names of
    the jobs that nothing was fitted to."""
    observed = {job.name for own in _observed(workload).values() for job in own}
    fitted = [job.name for job in _to_fit(workload)]
    for _ in range(_ROUNDS if fitted or any(job.guessed for job in workload.jobs) else 0):
        found = compare(workload)
        off = found.observed_s / found.predicted_s
        own = found.loc[fitted]
        missing_s = ((own.observed_s - own.predicted_s) / own.iterations).groupby(own.model)
        before_s = own.groupby("model").compute_s.first()
        times_s = (before_s + missing_s.median()).clip(lower=LEAST_COMPUTE * before_s)
        workload = _computing(workload, {str(name): each for name, each in times_s.items()})
        jobs = (
            replace(job, iterations=max(1, round(job.iterations * off[job.name])))
            if job.guessed
            else job
            for job in workload.jobs
        )
        workload = replace(workload, jobs=tuple(jobs))
    return workload, observed - {*fitted}


def plausible(workload: Workload) -> list[Workload]:
    """The workload, and those with the shortest and the longest computing times, of those that
    nobody gave, that predict the observed jobs as well: on a saturated link many do."""
    own = [job.name for job in _to_fit(workload)]
    times_s = {job.model.name: job.model.compute_s for job in _to_fit(workload)}
    found = [workload]
    for factors in (_FACTORS[:4], _FACTORS[:3:-1]) if own else ():
        for factor in factors:
            other = _computing(workload, {name: factor * each for name, each in times_s.items()})
            if (compare(other).loc[own].ratio - 1).abs().median() <= _FITS:
                found.append(other)
                break
    return found


def _to_fit(workload: Workload) -> list[ClusterJob]:
    """The first half of each model's observed jobs, of models whose computing time nobody gave."""
    observed = _observed(workload)
    halves = [own[: math.ceil(len(own) / 2)] for own in observed.values()]
    return [job for own in halves for job in own if job.model.name in workload.fitted]


def _observed(workload: Workload) -> dict[str, list[ClusterJob]]:
    """Jobs of each model of which the log says iterations; only those on several servers where
    there are any, as inside a server what is sent counts as computing."""
    found: dict[str, list[ClusterJob]] = defaultdict(list)
    for job in by_start(workload).jobs:
        if job.took_s is not None and not job.guessed:
            found[job.model.name].append(job)
    return {
        model: [job for job in own if len(job.placement) != 1] or own
        for model, own in found.items()
    }


def _computing(workload: Workload, times_s: Mapping[str, float]) -> Workload:
    """The workload with the models' computing times, in seconds."""
    jobs = (
        replace(job, model=replace(job.model, compute_s=times_s[job.model.name]))
        if job.model.name in times_s
        else job
        for job in workload.jobs
    )
    return replace(workload, jobs=tuple(jobs))


def compare(workload: Workload, held_out: Collection[str] = ()) -> pd.DataFrame:
    """A row for each job of which the log says how long it ran: seconds, predicted and observed,
    and their ratio; held_out: nothing was fitted to it. A log of many iterations is simulated
    `shortened`, and times are as many times as long again."""
    whole = by_start(workload)
    short = shortened(whole)
    ran = {done.name: done for done in simulated(short).jobs}
    rows = []
    for job, own in zip(whole.jobs, short.jobs, strict=True):
        if job.took_s is not None:
            done, factor = ran[job.name], computing_s(job) / computing_s(own)
            rows.append(
                {
                    "name": job.name,
                    "model": job.model.name,
                    "compute_s": job.model.compute_s,
                    "iterations": job.iterations,
                    "guessed": job.guessed,
                    "gpus": job.gpus,
                    "predicted_s": done.running_s * factor,
                    "observed_s": job.took_s,
                    "ratio": done.running_s * factor / job.took_s,
                    "held_out": job.name in held_out,
                }
            )
    return pd.DataFrame(rows).set_index("name")


def trust(compared: pd.DataFrame) -> list[dict[str, Any]]:
    """Predicted over observed on jobs of each model that nothing was fitted to: how many, the
    median, and where 80 % of them lie."""
    return [
        {"model": str(model), "jobs": len(own), "median": float(own.median())}
        | {"low": float(own.quantile(0.1)), "high": float(own.quantile(0.9))}
        for model, own in compared[compared.held_out].groupby("model").ratio
    ]


def error(compared: pd.DataFrame) -> float | None:
    """By how much a mean over many jobs may be off, as a share: what predictions of held-out jobs
    are off in mean, and twice its standard error. None with fewer than two such jobs."""
    off = compared[compared.held_out].ratio.to_numpy(dtype=float) - 1
    if len(off) < 2:
        return None
    return float(abs(off.mean()) + 2 * off.std(ddof=1) / len(off) ** 0.5)


def overrun(compared: pd.DataFrame) -> float:
    """GPU hours that the jobs hold in their simulation, over those that they held."""
    held_s = compared.gpus * compared.observed_s
    return float((compared.ratio * held_s).sum() / held_s.sum())
