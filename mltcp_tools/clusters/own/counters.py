# SPDX-License-Identifier: BSD-2-Clause
"""Bytes that models send, from counters of servers' network interfaces that Prometheus kept.

    curl -sG http://prometheus:9090/api/v1/query_range -d query=node_network_transmit_bytes_total \
        -d start=2026-03-01T00:00:00Z -d end=2026-03-08T00:00:00Z -d step=60 >counters.json

Read are node_exporter's counters node_network_transmit_bytes_total and, for RDMA,
node_infiniband_port_data_transmitted_bytes_total. A job's traffic is known where no other job of
several servers was on its servers meanwhile.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mltcp_tools.base.errors import UsageError
from mltcp_tools.base.units import counted, format_rate
from mltcp_tools.clusters.models import Model, iteration_of
from mltcp_tools.clusters.own.entries import LoggedJob
from mltcp_tools.clusters.own.importing import REST
from mltcp_tools.clusters.own.logs import Log
from mltcp_tools.clusters.topology import Topology
from mltcp_tools.lab.planning.reading import read_text

_METRICS = {
    "node_network_transmit_bytes_total",
    "node_infiniband_port_data_transmitted_bytes_total",
}
_NAMES = ("nodename", "node", "hostname", "host", "instance")
"""Labels that name a server, the surest first."""
_VIRTUAL = re.compile(
    r"lo|(docker|veth|cni|flannel|cali|br|virbr|bond|team|tun|tap|dummy).*|.*\..*"
)
"""Interfaces whose traffic another one has as well, or that never leaves the host."""
_COVERED = 0.5
"""Share of a job's time that samples must span."""
_FEW = 0.1
"""Share of GPU hours of jobs on several servers, of models without a measured job, up to which
these jobs are left out."""
_SILENT = 0.001
"""Share of its links' rates below which a model isn't seen to send."""
_SLACK = 1.05
"""Times a link's rate that may be measured, as instants of samples are rounded."""
_AROUND_S = 300.0
_ZONES_S = 900.0 * np.arange(-56, 57)
"""Differences between time zones."""
_FEWEST = 8
"""Instants at which jobs start or end, by which time zones can be compared."""
_BETTER = 2.0
"""Times by which traffic changes more at the instants of one time zone than at those of any other,
from which that is the counters': chance may favour one, but not by as much."""
ITERATION_S = 1.0
"""Length that an iteration is taken to have where nothing says it."""

Floats = npt.NDArray[np.float64]


class Counters:
    """Bytes sent by each server: `sent` says how many, within a span of time."""

    def __init__(self, series: Mapping[str, Sequence[Floats]]) -> None:
        """series: of each server's interfaces, times in seconds and bytes, shape (samples, 2)."""
        self._series = {name: [_grown(each) for each in own] for name, own in series.items()}
        self._short = {name.partition(".")[0]: name for name in series}

    def coverage(self, jobs: Sequence[LoggedJob]) -> str:
        """Of the jobs' servers and time, what the counters have, as a clause."""
        nodes = sorted({node for job in jobs for node in job.placement})
        missing = [node for node in nodes if self.name_of(node) is None]
        samples = np.concatenate([each for own in self._series.values() for each in own])
        spans = [
            " to ".join(f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M}" for at in each)
            for each in (
                (samples[:, 0].min(), samples[:, 0].max()),
                (min(job.start_s for job in jobs), max(job.end_s for job in jobs)),
            )
        ]
        lacks = f", not {_some(missing)} (but {_some(sorted(self._series))})" if missing else ""
        return (
            f"they have {len(nodes) - len(missing)} of the log's {counted(len(nodes), 'server')}"
            f"{lacks}, and samples from {spans[0]}, where the log has jobs from {spans[1]}"
        )

    def name_of(self, node: str) -> str | None:
        """The name that the counters have for a node of the log; None where they lack it."""
        return node if node in self._series else self._short.get(node.partition(".")[0])

    def sent(self, node: str, start_s: float, end_s: float) -> float | None:
        """Bytes that the server sent in that time; None where samples don't cover it."""
        found = []
        for samples in self._series.get(self.name_of(node) or "", ()):
            own = samples[(samples[:, 0] >= start_s) & (samples[:, 0] <= end_s)]
            if len(own) < 2 or own[-1, 0] - own[0, 0] < _COVERED * (end_s - start_s):
                return None
            spanned_s, grown = own[-1] - own[0]
            found.append(float(grown) * (end_s - start_s) / float(spanned_s))
        return sum(found) if found else None

    def changes(self, node: str, at_s: Floats) -> list[float]:
        """Bytes by which the server sent more or less in the minutes after each of these instants
        than in those before, as far as samples cover them."""
        found: list[float] = []
        for samples in self._series.get(self.name_of(node) or "", ()):
            if len(samples) > 1:
                times, grown = samples.T
                around_s = max(_AROUND_S, 3 * float(np.median(np.diff(times))))
                near = at_s[(at_s >= times[0] + around_s) & (at_s <= times[-1] - around_s)]
                before, now, after = (
                    np.interp(near + each, times, grown) for each in (-around_s, 0, around_s)
                )
                found += np.round(np.abs(after - 2 * now + before)).tolist()
        return found


def _grown(samples: Floats) -> Floats:
    """Times, and bytes since the first sample: a counter that falls began again at 0."""
    steps = np.diff(samples[:, 1], prepend=samples[:1, 1])
    grown = np.cumsum(np.where(steps < 0, samples[:, 1], steps))
    return np.column_stack([samples[:, 0], grown])


def read_counters(path: Path) -> Counters:
    """Counters of a file; a UsageError says what is missing."""
    text = read_text(path)
    series: dict[str, list[Floats]] = defaultdict(list)
    for labels, samples in _json(text, path):
        if _VIRTUAL.fullmatch(labels.get("device", "")):
            continue
        name = next((labels[each] for each in _NAMES if labels.get(each)), "")
        name = re.sub(r":[0-9]+$", "", name)
        values = np.array(sorted(samples), dtype=float).reshape(-1, 2)
        values = values[np.isfinite(values).all(axis=1)]
        falls = int((np.diff(values[:, 1]) < 0).sum())
        if (values[:, 1] < 0).any() or falls > max(2, len(values) // 10):
            raise UsageError(
                f"{path}: samples of {name} are negative, or fall {falls} times; write the counter"
                " itself, without rate(), and none of 32 bits, which wraps."
            )
        series[name].append(values)
    if not series:
        raise UsageError(
            f"{path} has no node_network_transmit_bytes_total with device and instance; write what"
            " Prometheus's /api/v1/query_range gives for the counter itself, without rate()."
        )
    return Counters(series)


def _json(text: str, path: Path) -> Iterator[tuple[Mapping[str, str], list[tuple[float, float]]]]:
    try:
        for each in json.loads(text)["data"]["result"]:
            labels: dict[str, Any] = each["metric"]
            # What a function of PromQL gives, as rate(), has no name.
            if labels.get("__name__") in _METRICS:
                yield labels, [(float(at), float(value)) for at, value in each["values"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{path} is not what Prometheus's /api/v1/query_range gives ({error})."
        ) from None


def measured(
    log: Log, counters: Counters, cluster: Topology, known: Collection[str] = ()
) -> tuple[dict[str, Any], Log, bool]:
    """Models that aren't known as a workload describes them, by what their jobs sent; the log; and
    whether iterations of some had to be taken to last ITERATION_S. Raises UsageError where the
    traffic of no job is known, a job sent more than links that it crossed carry, or jobs that hold
    a large part of the GPU hours sent almost nothing.
    """
    several = [job for job in log.jobs if len(job.placement) > 1]
    asked = [job for job in several if job.model not in known]
    if not asked:
        return {}, log, False
    _require_same_clock(several, counters)
    sent: dict[str, list[float]] = defaultdict(list)
    shares: dict[str, list[float]] = defaultdict(list)
    iteration_s: dict[str, float] = defaultdict(lambda: ITERATION_S, _iterations_s(several))
    for job in asked:
        own = [counters.sent(node, job.start_s, job.end_s) for node in job.placement]
        seen, n = [each for each in own if each is not None], len(own)
        if len(seen) == n and not any(_meet(job, other) for other in several if other is not job):
            shares[job.model].append(_share(job, seen, cluster))
            # A ring sends 2 (n - 1) / n of the gradients.
            each_s = float(np.mean(seen)) / job.took_s * n / (2 * (n - 1))
            sent[job.model].append(each_s * iteration_s[job.model])
    silent = {model for model, own in shares.items() if np.median(own) < _SILENT}
    _require_few(silent, several)
    found = {
        model: {"size": f"{max(1, round(np.median(own)))}B"}
        for model, own in sent.items()
        if model not in silent
    }
    if not found and REST in known:
        return {}, log, False
    if not found:
        raise UsageError(
            "the counters show no job that had several servers to itself:"
            f" {counters.coverage(log.jobs)}. Give both in UTC."
        )
    jobs = tuple(
        # A second of a job inside one server, which sends nothing, has more than an iteration.
        replace(job, iterations=max(1, round(job.took_s / iteration_s[job.model])))
        if job.model in found and job.iterations is None and len(job.placement) > 1
        else job
        for job in log.jobs
    )
    assumed = not found.keys() <= _iterations_s(several).keys()
    unseen = [job for job in asked if job.model not in found]
    hours = sum(job.gpu_hours for job in unseen)
    if unseen and REST not in known and hours <= _FEW * sum(job.gpu_hours for job in several):
        models = sorted({job.model for job in unseen})
        said = (
            f"{counted(len(unseen), 'job')} of models that the counters don't show"
            f" ({_some(models)}) are simulated as if they sent nothing: {hours:,.1f} GPU hours."
        )
        log = replace(log, notes=(*log.notes, said))
        found |= {model: {"size": "0B"} for model in models}
    return found, replace(log, jobs=jobs), assumed


def _require_same_clock(several: Sequence[LoggedJob], counters: Counters) -> None:
    """Raise a UsageError where traffic changes when jobs start and end in another time zone."""
    at_s: dict[str, list[float]] = defaultdict(list)
    for job in several:
        for node in job.placement:
            at_s[node] += [job.start_s, job.end_s]
    instants = {node: np.array(own) for node, own in at_s.items()}
    changes = [
        [each for node, own in instants.items() for each in counters.changes(node, own + zone_s)]
        for zone_s in _ZONES_S
    ]
    # Means of few instants are chance.
    least = max(_FEWEST, max(map(len, changes)) / 2)
    means = np.array([np.mean(own) if len(own) >= least else 0.0 for own in changes])
    best_s = float(_ZONES_S[means.argmax()])
    second, best = np.sort(means)[-2:]
    if best_s and best > _BETTER * second > 0:
        way = "after" if best_s > 0 else "before"
        raise UsageError(
            f"by the counters, traffic changes {abs(best_s) / 3600:g} h {way} jobs start and end in"
            " the log: their time zones differ; give the log's times in UTC (`TZ=UTC sacct`)."
        )


def _share(job: LoggedJob, sent: Sequence[float], cluster: Topology) -> float:
    """Share of its servers' rates at which the job sent so many bytes on each; NaN where the
    network lacks a server, which the reader of the workload names."""
    numbers = {server.name: n for n, server in enumerate(cluster.machines)}
    if not job.placement.keys() <= numbers.keys():
        return float("nan")
    lasted_s, rates_bps = job.end_s - job.start_s, cluster.network.rates_bps
    places = {numbers[node]: gpus for node, gpus in job.placement.items()}
    ring = iteration_of(Model(job.model, 1.0, 1), cluster, places, 0).crossings
    # A ring sends as much over each uplink as each server does.
    crossed = {link: float(np.mean(sent)) for link in ring}
    own = [cluster.uplink(node) for node in job.placement]
    crossed |= dict(zip(own, sent, strict=True))
    for link, size in crossed.items():
        if 8 * size > _SLACK * rates_bps[link] * lasted_s:
            raise UsageError(
                f"{job.name} sent {format_rate(8 * size / lasted_s)} in the mean over"
                f" {cluster.network.names[link].strip('<>')}, by the counters of its servers, and"
                f" that link has {format_rate(rates_bps[link])}: give the rate of all of a server's"
                " interfaces together, each interface's counter once, and the uplinks' rate."
            )
    return 8 * sum(sent) / (sum(rates_bps[link] for link in own) * lasted_s)


def _require_few(silent: Collection[str], several: Sequence[LoggedJob]) -> None:
    """Raise a UsageError where jobs of models that aren't seen to send can't be left out."""
    hours = sum(job.gpu_hours for job in several if job.model in silent)
    if hours > _FEW * sum(job.gpu_hours for job in several):
        raise UsageError(
            f"the counters show almost no bytes (below {_SILENT:.1%} of the links' rates) of jobs"
            f" on several servers ({_some(sorted(silent))}). RDMA is counted only by"
            " node_infiniband_port_data_transmitted_bytes_total; export that, too, and counters"
            " without rate(), or give these models' sizes with --models."
        )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")


def _iterations_s(jobs: Sequence[LoggedJob]) -> dict[str, float]:
    """Seconds of an iteration of each model whose jobs have them, in the median."""
    found: dict[str, list[float]] = defaultdict(list)
    for job in jobs:
        if job.iterations:
            found[job.model].append(job.took_s / job.iterations)
    return {model: float(np.median(own)) for model, own in found.items()}


def _meet(job: LoggedJob, other: LoggedJob) -> bool:
    """Return whether both were on a server for more than a twentieth of the job's time."""
    both_s = min(job.end_s, other.end_s) - max(job.start_s, other.start_s)
    return both_s > job.took_s / 20 and not job.placement.keys().isdisjoint(other.placement)
