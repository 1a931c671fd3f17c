"""A host as its agent's metrics show it (live/agent/metrics.py), and what is wrong there."""

from __future__ import annotations

import http.client
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from mltcp_tools.errors import HostError, MltcpError
from mltcp_tools.installation import how_to_bring

PORT = 9477
_TIMEOUT_S = 10.0
_LARGEST = 1 << 24
_ROUNDS = 8
_COLLIDES = 0.5
"""As in the alert rules (live/agent/alerts.yaml), which wait until it lasts; a look can't."""


@dataclass(frozen=True)
class PublishedJob:
    """A job. flows: connections. iteration_s: mean of all iterations, None before the first.

    gain, low, high: of the standing proof, shares, None without one. overlap: share of its
    communication during which others of the host communicate, None where that isn't known.
    """

    name: str
    flows: int
    iteration_s: float | None
    overlap: float | None
    gain: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class PublishedHost:
    """A host. build: of what is in its kernel, empty for nothing. alarms: a sentence each."""

    host: str
    backend: str = ""
    build: str = ""
    jobs: tuple[PublishedJob, ...] = ()
    alarms: tuple[str, ...] = ()


def fetch(host: str) -> str:
    """The metrics of the agent at HOST or HOST:PORT. MltcpError says why there are none."""
    last = host.rpartition("]")[2]  # of [::1]:9477
    address = host if ":" in last else f"{host}:{PORT}"
    try:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=_TIMEOUT_S) as answer:
            text: str = answer.read(_LARGEST).decode()
    except (OSError, ValueError, http.client.HTTPException) as error:
        why = getattr(error, "reason", error)
        raise MltcpError(getattr(why, "strerror", None) or str(why)) from None
    return text


def read(host: str, text: str) -> PublishedHost:
    """The host as the text of metrics has it. MltcpError where it is no agent's."""
    samples = _Samples(text)
    try:
        return _host(host, samples)
    except (KeyError, ValueError, OverflowError):  # labels that lack, numbers that are none
        raise MltcpError("what answers publishes other metrics than agents do") from None


def _host(host: str, samples: _Samples) -> PublishedHost:
    infos = list(samples.all("mltcp_backend_info"))
    if not infos:
        raise MltcpError("what answers is no agent of MLTCP")
    labels, _ = infos[0]
    build = labels["build"]
    alarms = []
    if samples.value("mltcp_backend_stale"):
        other = f"{build or 'nothing'} is loaded, and the agent has {labels['agents_build']}"
        alarms.append(f"stale: {other}")
    # What was ever lost would be an alarm until the agent's end.
    if lost := samples.value("mltcp_agent_events_lost_lately"):
        alarms.append(f"lost: {lost:.0f} iterations in 5 minutes came faster than they were read")
    jobs = []
    for found, flows in samples.all("mltcp_job_flows"):
        name = found["training_job"]
        job = _job(samples, name, int(flows))
        jobs.append(job)
        rounds = samples.value("mltcp_job_gain_rounds", name) or 0
        if job.high is not None and job.high < 0 and rounds >= _ROUNDS:
            alarms.append(f"slower: {name} is slower with mltcp than without")
        if job.overlap is not None and job.overlap > _COLLIDES:
            alarms.append(f"collides: the bursts of {name} meet others'")
    return PublishedHost(host, labels["backend"], build, tuple(jobs), tuple(alarms))


def _job(samples: _Samples, name: str, flows: int) -> PublishedJob:
    count = samples.value("mltcp_job_iteration_seconds_count", name)
    total = samples.value("mltcp_job_iteration_seconds_sum", name)
    return PublishedJob(
        name,
        flows,
        total / count if total is not None and count else None,
        samples.value("mltcp_job_overlap_ratio", name),
        samples.value("mltcp_job_gain_ratio", name),
        samples.value("mltcp_job_gain_low_ratio", name),
        samples.value("mltcp_job_gain_high_ratio", name),
    )


class _Samples:
    """The values of a text of metrics by name, and by job."""

    def __init__(self, text: str) -> None:
        try:
            from prometheus_client.parser import text_string_to_metric_families
        except ModuleNotFoundError as error:
            raise HostError(
                f"This needs the Python package {error.name}, which is not installed;"
                f" {how_to_bring('metrics')}."
            ) from error
        self._found: dict[str, list[tuple[dict[str, str], float]]] = {}
        try:
            for family in text_string_to_metric_families(text):
                for each in family.samples:
                    self._found.setdefault(each.name, []).append((each.labels, each.value))
        except (ValueError, IndexError, KeyError):
            raise MltcpError("what answers publishes no metrics") from None

    def all(self, name: str) -> Iterator[tuple[dict[str, str], float]]:
        """The samples of a metric, with their labels."""
        yield from self._found.get(name, ())

    def value(self, name: str, job: str | None = None) -> float | None:
        """Return the metric's value, of a job if one is given; None where it isn't there."""
        for labels, value in self.all(name):
            if labels.get("training_job") == job:
                return value
        return None


def compared(hosts: Sequence[PublishedHost]) -> list[PublishedHost]:
    """The hosts, with an alarm for those whose build isn't that of most."""
    builds = Counter((each.backend, each.build) for each in hosts if each.build)
    if len(builds) < 2:
        return list(hosts)
    (usual, count), *_ = builds.most_common()
    return [
        each
        if not each.build or (each.backend, each.build) == usual
        else replace(
            each,
            alarms=(
                *each.alarms,
                f"differs: most hosts ({count} of {len(hosts)}) run {' '.join(usual)}",
            ),
        )
        for each in hosts
    ]
