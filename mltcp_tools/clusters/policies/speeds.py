# SPDX-License-Identifier: BSD-2-Clause
"""The speed of a job with another number of GPUs than it asked for.

A job with k GPUs instead of its own number takes k times as many samples per second, less what
synchronising costs and less what larger batches lose in statistical efficiency: with the noise
scale phi, that is (1 + phi) / (k / k0 + phi) of what as many small batches would have brought
(McCandlish et al. 2018, formula 2.11, in units of the job's own batch).
"""

from __future__ import annotations

from mltcp_tools.clusters.view import JobState, View
from mltcp_tools.clusters.workload import alone_s

NOISE_SCALE = 4.0


def efficiency(factor: float) -> float:
    """Work per sample with `factor` times the job's own batch, at most 1."""
    return (1 + NOISE_SCALE) / (max(1.0, factor) + NOISE_SCALE)


def speed(view: View, state: JobState, gpus: int) -> float:
    """Share of the job's own speed with so many GPUs, 1 with those it asked for.

    Its performance model is that of a job alone on neighbouring servers: nothing is sent inside
    one server, and beyond a leaf the network is as narrow as it is.
    """
    if gpus < 1:
        return 0.0
    factor = gpus / state.job.gpus
    iteration_s = alone_s(state.job.model, min(gpus, view.topology.total_gpus), view.topology)
    return factor * efficiency(factor) * state.isolated_s / iteration_s
