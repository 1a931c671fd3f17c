# SPDX-License-Identifier: BSD-2-Clause
"""FaPES against rivals that lack a part of it: training and inference on one pool of servers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mltcp_tools.base.errors import UsageError
from mltcp_tools.clusters.fapes.inference import (
    Kpa,
    Predictive,
    Request,
    Scaler,
    Served,
    Service,
    serve,
    tuned,
)
from mltcp_tools.clusters.intervals import interval
from mltcp_tools.clusters.outcome import Outcome
from mltcp_tools.clusters.policies.plan import Elastic
from mltcp_tools.clusters.rules import treatment
from mltcp_tools.clusters.simulate import ClusterSimulator
from mltcp_tools.clusters.workload import Workload

VARIANTS = ("static-elastic", "fapes-kpa", "fapes-fixed", "fapes")


@dataclass(frozen=True)
class Result:
    """A variant: its training outcome and what its requests waited."""

    variant: str
    training: Outcome
    served: Served

    def summary(self) -> dict[str, float | str | int]:
        """Times in seconds."""
        return {
            "variant": self.variant,
            **{k: v for k, v in self.training.summary().items() if k != "policy"},
            "slo_attainment": self.served.slo_attainment,
            "wait_p99_s": float(np.percentile(self.served.waits_s, 99)),
            "inference_gpus_mean": float(np.mean(self.served.replicas)),
            "batch_mean": float(np.mean([job.batch for job in self.training.jobs])),
            "learning_rate_mean": float(np.mean([job.learning_rate for job in self.training.jobs])),
        }


def compare(
    workload: Workload,
    requests: Sequence[Request],
    service: Service,
    inference_servers: int,
) -> list[Result]:
    """All variants; each rival lacks a part of `fapes`.

    fapes: training may have all but one server that inference doesn't need, by prediction, and the
    reverse. fapes-kpa: a tuned KPA (`tuned`) instead of prediction. fapes-fixed: jobs keep the
    batch that each GPU has. static-elastic: inference keeps its own `inference_servers`.
    """
    topology = workload.topology
    if not 0 < inference_servers < topology.servers:
        raise UsageError(
            f"inference can have 1 to {topology.servers - 1} servers, not {inference_servers}."
        )
    own = inference_servers * topology.gpus
    wide = topology.total_gpus - topology.gpus
    mean_s = float(np.mean([service.seconds(each) for each in requests]))
    scalers: dict[str, tuple[Scaler, int]] = {
        "static-elastic": (Kpa(), own),
        "fapes-kpa": (tuned(requests, service, wide), wide),
        "fapes": (Predictive(mean_s), wide),
    }
    served = {
        name: serve(requests, scaler, service, limit) for name, (scaler, limit) in scalers.items()
    }
    served["fapes-fixed"] = served["fapes"]
    results = []
    for variant in VARIANTS:
        needs = list(served[variant].needs(topology.gpus))
        if variant == "static-elastic":
            needs = [(0.0, inference_servers)]
        outcome = ClusterSimulator(
            _fixed(workload) if variant == "fapes-fixed" else workload,
            Elastic(),
            treatment("mltcp"),
            needs=needs,
        ).run()
        results.append(Result(variant, outcome, served[variant]))
    return results


def _fixed(workload: Workload) -> Workload:
    """The same, with the batch of a GPU as the only one whose computing time is known."""
    jobs = [replace(job, model=replace(job.model, step_s=None)) for job in workload.jobs]
    return replace(workload, jobs=tuple(jobs))


@dataclass(frozen=True)
class Saved:
    """The share of a rival's mean completion time that FaPES saves, with half of its 95 % interval
    over draws (NaN for one), and the share of requests that meet their objective in addition."""

    rival: str
    completion: float
    half: float
    slo: float
    slo_half: float


def saved(draws: Sequence[Sequence[Result]]) -> list[Saved]:
    """FaPES against each rival; each draw has all variants."""
    variants = [{each.variant: each for each in draw} for draw in draws]
    found = []
    for rival in VARIANTS[:-1]:
        pairs = [(draw["fapes"], draw[rival]) for draw in variants]
        time = interval([1 - _completion_s(own) / _completion_s(other) for own, other in pairs])
        slo = interval([a.served.slo_attainment - b.served.slo_attainment for a, b in pairs])
        found.append(Saved(rival, *time, *slo))
    return found


def _completion_s(result: Result) -> float:
    return float(result.training.summary()["completion_mean_s"])
