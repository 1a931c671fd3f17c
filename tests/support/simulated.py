# SPDX-License-Identifier: BSD-2-Clause
"""The results of simulated experiments."""

from __future__ import annotations

from mltcp_tools.lab.experiments.experiment import Experiment
from mltcp_tools.lab.simulator.variants import simulate_variant


def mean_ms(experiment: Experiment, variant: str, repetitions: int = 3) -> float:
    """Mean iteration time over jobs and repetitions."""
    times = [
        iteration["end"] - iteration["start"]
        for repetition in range(1, repetitions + 1)
        for _, document in simulate_variant(
            experiment, experiment.variant(variant), repetition
        ).documents
        for iteration in document["iterations"]
    ]
    return 1e3 * sum(times) / len(times)
