# SPDX-License-Identifier: BSD-2-Clause
"""FaPES against rivals that lack a part of it: training and inference on one pool of servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mltcp_tools.base.errors import UsageError
from mltcp_tools.clusters.fapes.inference import (
    Kpa,
    Predictive,
    Request,
    Scaler,
    serve,
    tuned,
)
from mltcp_tools.clusters.fapes.policies import Lyra
from mltcp_tools.clusters.outcome import interval
from mltcp_tools.clusters.policies.plan import Elastic
from mltcp_tools.clusters.rules import treatment
from mltcp_tools.clusters.simulate import ClusterSimulator
from mltcp_tools.clusters.workload import Workload

VARIANTS = ("static-elastic", "lyra", "fapes-kpa", "fapes-fixed", "fapes")


def compare(
    workload: Workload,
    requests: Sequence[Request],
    inference_servers: int,
) -> list[dict[str, Any]]:
    """Summaries of all VARIANTS, times in seconds; each rival lacks a part of `fapes`.

    fapes: training may have all but one server that inference doesn't need, by prediction, and the
    reverse. fapes-kpa: a tuned KPA (`tuned`) instead of prediction. fapes-fixed: jobs keep the
    batch that each GPU has. lyra: Lyra's scheduler on what a plain KPA leaves of inference's own
    `inference_servers`. static-elastic: nothing is lent.
    """
    topology = workload.topology
    if not 0 < inference_servers < topology.servers:
        raise UsageError(
            f"inference can have 1 to {topology.servers - 1} servers, not {inference_servers}."
        )
    own = inference_servers * topology.gpus
    wide = topology.total_gpus - topology.gpus
    mean_s = float(np.mean([each.service_s for each in requests]))
    scalers: dict[str, tuple[Scaler, int]] = {
        "static-elastic": (Kpa(), own),
        "fapes-kpa": (tuned(requests, wide), wide),
        "fapes": (Predictive(mean_s), wide),
    }
    served = {name: serve(requests, scaler, limit) for name, (scaler, limit) in scalers.items()}
    served |= {"lyra": served["static-elastic"], "fapes-fixed": served["fapes"]}
    results = []
    for variant in VARIANTS:
        needs = list(served[variant].needs(topology.gpus))
        if variant == "static-elastic":
            needs = [(0.0, inference_servers)]
        outcome = ClusterSimulator(
            _fixed(workload) if variant == "fapes-fixed" else workload,
            Lyra() if variant == "lyra" else Elastic(),
            treatment("mltcp"),
            needs=needs,
        ).run()
        results.append(
            {"variant": variant}
            | {name: each for name, each in outcome.summary().items() if name != "policy"}
            | {
                "slo_attainment": served[variant].slo_attainment,
                "wait_p99_s": float(np.percentile(served[variant].waits_s, 99)),
                "inference_gpus_mean": float(np.mean(served[variant].replicas)),
                "batch_mean": float(np.mean([job.batch for job in outcome.jobs])),
                "learning_rate_mean": float(np.mean([job.learning_rate for job in outcome.jobs])),
            }
        )
    return results


def _fixed(workload: Workload) -> Workload:
    """The same, with the batch of a GPU as the only one whose computing time is known."""
    jobs = [replace(job, model=replace(job.model, step_s=None)) for job in workload.jobs]
    return replace(workload, jobs=tuple(jobs))


def saved(draws: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """FaPES against each rival, in mean over draws of all VARIANTS: the share of the rival's mean
    completion time that it saves (`completion`), and the share of requests that meet their
    objective in addition (`slo`), each with half of its 95 % interval."""
    found = []
    for number, rival in enumerate(VARIANTS[:-1]):
        pairs = [(draw[-1], draw[number]) for draw in draws]
        time, half = interval(
            [1 - own["completion_mean_s"] / other["completion_mean_s"] for own, other in pairs]
        )
        slo, slo_half = interval(
            [own["slo_attainment"] - other["slo_attainment"] for own, other in pairs]
        )
        found.append(
            {"rival": rival, "completion": time, "half": half, "slo": slo, "slo_half": slo_half}
        )
    return found
