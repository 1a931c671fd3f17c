# SPDX-License-Identifier: BSD-2-Clause
"""Facts that a log gives by arithmetic alone, before anything is simulated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mltcp_tools.base.units import counted
from mltcp_tools.clusters.text import long
from mltcp_tools.clusters.workload import Workload, computing_s, servers_of


def facts(workload: Workload) -> dict[str, Any]:
    """Facts of a workload of observed jobs; jobs without a duration don't count.

    jobs, gpus, hours: how many jobs and GPUs there are, and for how long. gpu_hours: that jobs
    held, `parts` of them by what isn't simulated. utilisation: the others' share of all, as servers
    that had only parts aren't known. wait_mean_s, wait_median_s: from submission to start.

    Shares of gpu_hours: several: of jobs on several servers; leaves: of those on several leaves, or
    that may be; unplaced: of jobs whose nodes aren't known. several_network, leaves_network: of the
    time in which these don't compute. fitted: how long they compute follows from iterations.
    """
    topology = workload.topology
    jobs = [job for job in workload.jobs if job.took_s is not None]
    starts = np.array([job.arrival_s if job.start_s is None else job.start_s for job in jobs])
    arrivals = np.array([job.arrival_s for job in jobs])
    took = np.array([job.took_s for job in jobs], dtype=float)
    held = took * np.array([job.gpus for job in jobs])
    several = np.array([servers_of(job, topology.gpus) > 1 for job in jobs])
    unplaced = np.array([not job.placement for job in jobs])
    if "topology" in workload.assumed:
        leaves = several
    else:
        leaves = (several & unplaced & (topology.leaves > 1)) | np.array(
            [len(topology.leaves_of(dict(job.placement))) > 1 for job in jobs]
        )
    span_s = float((starts + took).max() - arrivals.min())
    computes = np.array([computing_s(job) * job.gpus for job in jobs])
    idle = np.maximum(0.0, held - computes)
    all_s = held.sum() + 3600 * workload.parts[1]
    networks = [float(idle[which].sum() / all_s) for which in (several, leaves)]
    shares = [float(held[which].sum() / all_s) for which in (several, leaves, unplaced)]
    return {
        "jobs": len(jobs) + workload.parts[0],
        "gpus": topology.total_gpus,
        "hours": span_s / 3600,
        "gpu_hours": float(all_s / 3600),
        "parts": workload.parts[1],
        "utilisation": float(held.sum() / (topology.total_gpus * span_s)),
        "wait_mean_s": float((starts - arrivals).mean()),
        "wait_median_s": float(np.median(starts - arrivals)),
        "several": shares[0],
        "leaves": shares[1],
        "unplaced": shares[2],
        "several_network": networks[0],
        "leaves_network": networks[1],
        # Of an assumed iteration, too, counters measure the share of communication.
        "fitted": bool(workload.fitted) and "iteration" not in workload.assumed,
    }


def sentences(found: Mapping[str, Any]) -> list[str]:
    """Facts in words."""
    said = [
        f"{counted(found['jobs'], 'job')} on {found['gpus']} GPUs in {long(3600 * found['hours'])}:"
        f" {found['gpu_hours']:,.1f} GPU hours held, a utilisation of {found['utilisation']:.1%}."
        f" Jobs waited {long(found['wait_mean_s'])} in the mean, {long(found['wait_median_s'])} in"
        " the median.",
        f"Jobs on several servers have {found['several']:.1%} of these GPU hours, those on several"
        f" leaves {found['leaves']:.1%}.",
        f"The network can save at most {found['several_network']:.1%} of the GPU hours, uplinks at"
        f" most {found['leaves_network']:.1%}: the time in which those jobs don't compute"
        + (", by computing times that follow from iterations." if found["fitted"] else "."),
    ]
    if found["parts"]:
        said.append(
            f"{found['parts']:,.1f} GPU hours are of jobs on parts of GPUs, or of runs before"
            " evictions, which aren't simulated, nor part of the utilisation."
        )
    if found["unplaced"]:
        said.append(
            f"The log doesn't say where {found['unplaced']:.1%} of the GPU hours were: jobs larger"
            " than a server count as on several servers and leaves."
        )
    return said
