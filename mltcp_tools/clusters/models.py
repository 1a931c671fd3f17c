# SPDX-License-Identifier: BSD-2-Clause
"""Jobs as models: what they compute and send in an iteration, and over which links.

Sizes are the models' parameters in single precision; seconds are of one iteration with the given
batch on one V100-class GPU, as their public implementations report them, and are meant to be
overridden where better ones are known (`models` of a workload, a trace's own durations).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from mltcp_tools.base.errors import UsageError
from mltcp_tools.clusters.engine.library import Iteration
from mltcp_tools.clusters.topology import Topology


@dataclass(frozen=True)
class Model:
    """compute_s: seconds of an iteration on one GPU. size: bytes that a ring adds up in it.

    flows: connections between two servers. step_s: the part of `compute_s` that doesn't depend on
    the batch. noise: gradient noise scale, in batches (McCandlish et al. 2018). Each of the two is
    None where it isn't known.
    """

    name: str
    compute_s: float
    size: int
    flows: int = 4
    step_s: float | None = None
    noise: float | None = None

    def __post_init__(self) -> None:
        if not self.compute_s > 0:
            raise UsageError(f"model {self.name} must compute for more than 0 s.")
        if self.step_s is not None and not 0 <= self.step_s < self.compute_s:
            raise UsageError(f"model {self.name}: step is 0 s or more, and less than compute.")


MODELS: dict[str, Model] = {
    model.name: model
    for model in (
        Model("resnet50", 0.180, 102_000_000),
        Model("vgg16", 0.230, 553_000_000),
        Model("inception", 0.210, 95_000_000),
        Model("bert", 0.420, 1_340_000_000),
        Model("gpt2", 0.900, 3_000_000_000),
        Model("cifar10", 0.050, 45_000_000),
        Model("deepspeech2", 0.250, 230_000_000),
        Model("yolov3", 0.350, 248_000_000),
        Model("ncf", 0.030, 120_000_000),
        Model("imagenet", 0.180, 102_000_000),
    )
}

Allocation = Mapping[int, int]
"""Server -> GPUs of it that a job has."""


def lag_s(topology: Topology, allocation: Allocation) -> float:
    """Seconds of an iteration in which nothing is sent, as the steps of a ring wait for each other:
    an RTT for each."""
    servers = sum(gpus > 0 for gpus in allocation.values())
    return 2 * max(0, servers - 1) * topology.rtt_s


def iteration_of(model: Model, topology: Topology, allocation: Allocation, job: int) -> Iteration:
    """The job's iteration where it is placed. In a ring, each server sends 2 (n - 1) / n of the
    gradients to the next (Patarasuk and Yuan 2009); inside a server nothing is counted."""
    servers = sorted(server for server, gpus in allocation.items() if gpus)
    n, crossed = len(servers), Counter[int]()
    if n < 2 or not model.size:
        return Iteration(model.compute_s, 0, {})
    for source, target in zip(servers, [*servers[1:], servers[0]], strict=True):
        crossed.update(topology.path(source, target, job))
    crossings = {link: float(times) for link, times in sorted(crossed.items())}
    return Iteration(model.compute_s, math.ceil(2 * (n - 1) / n * model.size), crossings)
