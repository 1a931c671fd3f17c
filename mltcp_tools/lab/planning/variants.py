# SPDX-License-Identifier: BSD-2-Clause
"""Planned time shifts of an experiment's variants: when each job communicates, from what the jobs
do alone.

The reference that MLTCP is compared with, after Cassini (Rajasekaran et al., NSDI 2024). Profiles
come from the run's own variant `alone`; the planner shifts them against each other at the rate at
which the links carry payload. Jobs that don't fit take longer than alone, whatever their shifts:
what is missing to a score of 1 is the share of the time for which the link is short, and time
shifts are longer by that share, as no job could keep shorter ones. A job's random start doesn't
count; one that comes late takes the first slot from then on.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mltcp_tools.base.errors import UsageError
from mltcp_tools.lab.emulator.time_shift import TimeShift
from mltcp_tools.lab.experiments.experiment import Experiment
from mltcp_tools.lab.experiments.jobs import ExperimentJob
from mltcp_tools.lab.experiments.tasks import ClientTask
from mltcp_tools.lab.experiments.treatments import TimeShiftSettings
from mltcp_tools.lab.experiments.variants import ALONE, Variant
from mltcp_tools.lab.planning.cluster import PlacementPlan, plan_cluster
from mltcp_tools.lab.planning.from_run import profiles_of_run
from mltcp_tools.lab.planning.network import PAYLOAD, NetworkLink
from mltcp_tools.lab.planning.profile import Profile
from mltcp_tools.lab.planning.topology import Cluster, Placement
from mltcp_tools.lab.runs.folder import PLAN, PLAN_SCHEMA
from mltcp_tools.lab.runs.run import load_run

ANGLE_DEG = 1.0
# Jobs that are equal but for their links are measured one by one; what a busy machine makes their
# iterations differ by must not pass for different periods.
TOLERANCE = 0.03
_ONLY = "link"


@dataclass(frozen=True)
class VariantPlan:
    """The times at which the jobs of a variant communicate, and how good these can be.

    score, worst: of the jobs as they are, over all shared links and on the worst of them. bound: a
    score that no shifts exceed. stretch: share by which time shifts are longer than iterations
    alone, before they get a common multiple. time_shifts: job -> its time shifts.
    """

    score: float
    worst: float
    bound: float
    stretch: float
    capacity_bps: Mapping[str, float]
    time_shifts: Mapping[str, TimeShift]

    def to_json(self) -> dict[str, Any]:
        """The variant's entry in the run folder's plan; times in seconds, rates in bit/s."""
        return dataclasses.asdict(self)


def planned_variants(experiment: Experiment) -> list[Variant]:
    """The variants that keep to a plan."""
    return [
        variant
        for variant in experiment.variants
        if variant.treatment(TimeShiftSettings) is not None
    ]


def check_plans(experiment: Experiment) -> None:
    """Raise UsageError where a variant's plan has nothing to be made of."""
    planned = planned_variants(experiment)
    if planned and experiment.alone_iterations < 2:
        raise UsageError(
            f"The plan of variant {planned[0].name} is made from the jobs' isolated runs, so"
            f" {experiment.name} needs `alone` with 2 iterations or more, and no --no-alone; or"
            " leave the variant out with --variants."
        )


def with_time_shift(
    experiment: Experiment, task: ClientTask, time_shifts: Mapping[str, TimeShift]
) -> ClientTask:
    """The task with its job's time shifts; one whose start is random then starts with its first
    slot."""
    start_s = experiment.job(task.name).start or 0.0
    spec = dataclasses.replace(task.spec, time_shifts=time_shifts[task.name], start_delay_s=start_s)
    return dataclasses.replace(task, spec=spec)


def plan_variants(experiment: Experiment, folder: Path) -> dict[str, VariantPlan]:
    """A plan for each variant that is to have one, from the variant alone in the run folder.

    Raises UsageError where the iteration times have no common multiple that can be planned with.
    """
    planned = planned_variants(experiment)
    if not planned:
        return {}
    profiles = profiles_of_run(load_run(folder), ALONE)
    return {variant.name: plan_variant(experiment, variant, profiles) for variant in planned}


def plan_variant(
    experiment: Experiment, variant: Variant, profiles: Sequence[Profile]
) -> VariantPlan:
    """The plan of one variant; `profiles` has every job's."""
    capacity_bps = _capacities(experiment, {each.name: each for each in profiles})
    fit = _plan(experiment, capacity_bps, profiles)
    stretch = variant.settings(TimeShiftSettings).room + max(0.0, 1 - fit.worst)
    kept = _plan(experiment, capacity_bps, profiles, stretch)
    return VariantPlan(
        score=fit.score,
        worst=fit.worst,
        bound=fit.bound,
        stretch=stretch,
        capacity_bps=capacity_bps,
        time_shifts={
            job: TimeShift(kept.periods[job], shift_s) for job, shift_s in kept.shifts.items()
        },
    )


def write_plans(folder: Path, plans: Mapping[str, VariantPlan]) -> None:
    """Write the variants' plans into the run folder."""
    document = {
        "schema": PLAN_SCHEMA,
        "variants": {variant: plan.to_json() for variant, plan in plans.items()},
    }
    (folder / PLAN).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _plan(
    experiment: Experiment,
    capacity_bps: Mapping[str, float],
    profiles: Iterable[Profile],
    stretch: float = 0.0,
) -> PlacementPlan:
    # Each direction of a link is a link here, so every job goes one way only.
    stretched = {
        each.name: dataclasses.replace(each, period_s=each.period_s * (1 + stretch), back=())
        for each in profiles
    }
    links = {name: NetworkLink(name, rate_bps, None) for name, rate_bps in capacity_bps.items()}
    crossings = {job.name: dict.fromkeys(_crossed(job), 1) for job in experiment.jobs}
    cluster = Cluster(links, stretched, (Placement(experiment.name, crossings),))
    (plan,) = plan_cluster(cluster, angle_deg=ANGLE_DEG, tolerance=TOLERANCE)
    return plan


def _crossed(job: ExperimentJob) -> list[str]:
    """The links that a job sends over, each direction of one a link of its own."""
    ways = ("", " back") if job.direction == "both" else ("",)
    return [name + way for name in job.links or (_ONLY,) for way in ways]


def _capacities(experiment: Experiment, profiles: Mapping[str, Profile]) -> dict[str, float]:
    """Payload in bit/s that each direction of a link in use can carry.

    Short bursts may be a little faster than the rate allows in the long run, by what the link lets
    through at once; what a job alone gets across is never too much.
    """
    rates = {name: link.rate for name, link in experiment.links.items()} or {
        _ONLY: experiment.link.rate
    }
    found: dict[str, float] = {}
    for job in experiment.jobs:
        profile = profiles[job.name]
        fastest = max(phase.rate_bps for phase in profile.phases)
        for link in _crossed(job):
            carried = rates[link.removesuffix(" back")] * PAYLOAD
            found[link] = max(found.get(link, carried), fastest)
    return found
