# SPDX-License-Identifier: BSD-2-Clause
"""FaPES against a static split under KPA and against Lyra: training and inference on one pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
from mltcp_tools.clusters.fapes.policies import Fapes, Lyra
from mltcp_tools.clusters.intervals import interval
from mltcp_tools.clusters.outcome import Outcome
from mltcp_tools.clusters.policies.orders import Fifo
from mltcp_tools.clusters.policies.plan import Elastic
from mltcp_tools.clusters.rules import treatment
from mltcp_tools.clusters.simulate import ClusterSimulator
from mltcp_tools.clusters.view import Policy
from mltcp_tools.clusters.workload import Workload

VARIANTS = ("static", "static-elastic", "lyra", "fapes-kpa", "fapes")


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
            **{k: v for k, v in self.training.summary().items() if k not in ("policy",)},
            "slo_attainment": self.served.slo_attainment,
            "wait_p99_s": float(np.percentile(self.served.waits_s, 99)),
            "inference_gpus_mean": float(np.mean(self.served.replicas)),
        }


def compare(
    workload: Workload,
    requests: Sequence[Request],
    service: Service,
    inference_servers: int,
    said: Callable[[str], None] = lambda variant: None,
) -> list[Result]:
    """All variants. In `static` inference owns `inference_servers` and training the others, which
    go to jobs first come first served, in `static-elastic` as FaPES gives them; in `lyra` training
    borrows what KPA leaves of them; in `fapes` each may have all but one of the other's, and
    `fapes-kpa` has a tuned KPA (`tuned`) in place of its prediction.
    """
    topology = workload.topology
    if not 0 < inference_servers < topology.servers:
        raise UsageError(
            f"inference can have 1 to {topology.servers - 1} servers, not {inference_servers}."
        )
    own = inference_servers * topology.gpus
    mean_s = float(np.mean([service.seconds(each) for each in requests]))
    results = []
    for variant in VARIANTS:
        said(variant)
        wide = topology.total_gpus - topology.gpus
        limit = wide if variant.startswith("fapes") else own
        scaler: Scaler = Predictive(mean_s) if variant == "fapes" else Kpa()
        if variant == "fapes-kpa":
            scaler = tuned(requests, service, limit)
        served = serve(requests, scaler, service, limit)
        split = variant.startswith("static")
        needs = [(0.0, inference_servers)] if split else list(served.needs(topology.gpus))
        policy = _POLICIES[variant]()
        outcome = ClusterSimulator(workload, policy, treatment("mltcp"), needs=needs).run()
        results.append(Result(variant, outcome, served))
    return results


_POLICIES: dict[str, Callable[[], Policy]] = {
    "static": lambda: Fifo("static"),
    "static-elastic": Elastic,
    "lyra": Lyra,
    "fapes-kpa": Fapes,
    "fapes": Fapes,
}


KEPT = 0.95
"""The least share of requests within the objective with which it counts as kept."""


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


def objective(draws: Sequence[Sequence[Result]]) -> str:
    """A sentence where inference is overloaded: even FaPES doesn't keep its objective."""
    met = [r.served.slo_attainment for draw in draws for r in draw if r.variant == "fapes"]
    mean = float(np.mean(met))
    if mean >= KEPT:
        return ""
    return (
        f"The objective isn't kept: {mean:.0%} of the requests meet it under FaPES; they are more"
        " than the cluster can serve."
    )


def _completion_s(result: Result) -> float:
    return float(result.training.summary()["completion_mean_s"])
