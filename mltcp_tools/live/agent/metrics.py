# SPDX-License-Identifier: BSD-2-Clause
"""The agent's metrics for Prometheus: per job, never per port, by prometheus_client.

Names and units follow Prometheus's conventions (prometheus.io/docs/practices/naming): base units,
`_total` for what only grows, `_ratio` for shares of 1.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from mltcp_tools.base.errors import HostError, UsageError
from mltcp_tools.base.installation import how_to_bring
from mltcp_tools.kernel.backends.base import Backend, Flow
from mltcp_tools.kernel.host.closing import Closing
from mltcp_tools.live.observe.iterations import JobIteration
from mltcp_tools.live.observe.view import JobView

if TYPE_CHECKING:
    from prometheus_client.metrics import MetricWrapperBase

_BUCKETS = tuple(round(0.01 * 2 ** (step / 2), 4) for step in range(28))
"""Upper ends of the histogram's buckets, seconds: 10 ms to 2 minutes, each 41 % above the last."""

_BUILD_EVERY_S = 60.0

_LABELS = ("training_job",)
"""Not `job`, which Prometheus itself gives to what it scrapes."""


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `127.0.0.1:9477` or `[::]:9477`; UsageError for anything else."""
    host, colon, port = text.rpartition(":")
    try:
        address = str(ipaddress.ip_address(host.removeprefix("[").removesuffix("]")))
        if colon and port.isdecimal() and 0 < int(port) < 65536:
            return address, int(port)
    except ValueError:
        pass
    raise UsageError(f"{text!r} is no address and port; write it like 127.0.0.1:9477 or [::]:9477.")


class Metrics(Closing):
    """The metrics that the agent serves at an address. A context manager."""

    def __init__(self, address: str, backend: Backend) -> None:
        host, port = parse_address(address)
        try:
            import prometheus_client as prometheus
        except ModuleNotFoundError as error:
            raise HostError(
                f"Metrics need the Python package {error.name}, which is not installed;"
                f" {how_to_bring('metrics')}."
            ) from error
        self._backend = backend
        self._build_at_s = 0.0
        self.registry = prometheus.CollectorRegistry()
        self._iteration = prometheus.Histogram(
            "mltcp_job_iteration_seconds",
            "Duration of the iterations of a job on this host.",
            _LABELS,
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._sent, self._again, self._yields = (
            prometheus.Counter(f"mltcp_job_{name}_total", text, _LABELS, registry=self.registry)
            for name, text in _COUNTERS.items()
        )
        self._gauges = {
            name: prometheus.Gauge(f"mltcp_job_{name}", text, _LABELS, registry=self.registry)
            for name, text in _GAUGES.items()
        }
        self._lost = prometheus.Counter(
            "mltcp_agent_events_lost_total",
            "Iterations of flows that were lost before they were read.",
            registry=self.registry,
        )
        self._updated = prometheus.Gauge(
            "mltcp_agent_last_update_timestamp_seconds",
            "Unix time of the agent's latest update.",
            registry=self.registry,
        )
        self._updated.set_to_current_time()
        self._info = prometheus.Gauge(
            "mltcp_backend_info",
            "1; the build of MLTCP in the kernel, and the agent's.",
            ("backend", "build", "agents_build"),
            registry=self.registry,
        )
        self._sockets = prometheus.Gauge(
            "mltcp_backend_sockets",
            "Sockets of each loaded congestion control.",
            ("congestion_control",),
            registry=self.registry,
        )
        self._stale = prometheus.Gauge(
            "mltcp_backend_stale",
            "1 if the build in the kernel isn't the agent's, or none is.",
            registry=self.registry,
        )
        self._known: set[str] = set()
        self._yielded: dict[int, int] = {}
        try:
            self._server, self._thread = prometheus.start_http_server(port, host, self.registry)
        except OSError as error:
            raise HostError(f"{address} can't serve metrics: {error.strerror}.") from error

    def iterated(self, iterations: Iterable[JobIteration], names: Mapping[int, str]) -> None:
        """These have ended. names: of jobs by id; those of others don't count."""
        for each in iterations:
            if (name := names.get(each.job_id)) is None:
                continue
            self._iteration.labels(name).observe(each.duration_s)
            self._sent.labels(name).inc(each.bytes)
            self._again.labels(name).inc(sum(event.retransmits for event in each.events))
            if each.duration_s > 0:
                share = min(1.0, each.comm_s / each.duration_s)
                self._gauges["communication_ratio"].labels(name).set(share)

    def lost(self, count: int) -> None:
        """So many events were lost since the last call."""
        self._lost.inc(count)

    def show(self, views: Sequence[JobView], flows: Sequence[Flow], now_s: float) -> None:
        """The jobs as they stand; those that are no longer there are no longer published."""
        self._updated.set_to_current_time()
        names = {view.id: view.name for view in views}
        for view in views:
            gain = view.gain
            values = {
                "flows": float(view.flows),
                "overlap_ratio": view.overlap,
                "confidence_ratio": view.metadata.confidence if view.metadata else None,
                "gain_ratio": gain.mean if gain else None,
                "gain_low_ratio": gain.low if gain else None,
                "gain_high_ratio": gain.high if gain else None,
                "gain_rounds": float(gain.rounds) if gain else None,
            }
            for name, value in values.items():
                if value is not None:
                    self._gauges[name].labels(view.name).set(value)
                else:  # what was known is no longer so
                    _remove(self._gauges[name], view.name)
        self._count_yields(flows, names)
        for name in self._known - set(names.values()):
            self._forget(name)
        self._known = set(names.values())
        if now_s >= self._build_at_s:
            self._build_at_s = now_s + _BUILD_EVERY_S
            self._show_build()

    def _count_yields(self, flows: Sequence[Flow], names: Mapping[int, str]) -> None:
        """Add what each flow yielded since the last look; a flow's own count ends with it."""
        for flow in flows:
            if (name := names.get(flow.job_id)) is not None:
                more = flow.yields - self._yielded.get(flow.cookie, 0)
                self._yields.labels(name).inc(max(0, more))
        self._yielded = {flow.cookie: flow.yields for flow in flows}

    def _show_build(self) -> None:
        status, own = self._backend.status(), self._backend.build_here()
        self._info.clear()
        self._info.labels(self._backend.name, status.build, own).set(1)
        self._stale.set(float(status.build != own))
        self._sockets.clear()
        for name in status.loaded:
            self._sockets.labels(name).set(status.sockets.get(name, 0))

    def _forget(self, name: str) -> None:
        counters = (self._iteration, self._sent, self._again, self._yields)
        for metric in (*self._gauges.values(), *counters):
            _remove(metric, name)

    def close(self) -> None:
        """Serve no longer; closing twice is fine."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _remove(metric: MetricWrapperBase, name: str) -> None:
    """Publish the job's metric no longer."""
    with contextlib.suppress(KeyError):  # older versions mind what isn't there
        metric.remove(name)


_COUNTERS = {
    "acknowledged_bytes": "Bytes acknowledged in the job's iterations.",
    "retransmitted_segments": "Segments retransmitted in the job's iterations.",
    "yields": "Times that the job's flows yielded.",
}
_GAUGES = {
    "flows": "Connections of the job on this host.",
    "communication_ratio": "Share of the latest iteration in which the job communicated.",
    "overlap_ratio": "Share of its communication that overlaps with another job's.",
    "confidence_ratio": "Confidence in the job's known period, between 0 and 1.",
    "gain_ratio": "Share by which iterations are shorter than without mltcp.",
    "gain_low_ratio": "Lower end of the gain's 95 % confidence interval.",
    "gain_high_ratio": "Upper end of the gain's 95 % confidence interval.",
    "gain_rounds": "Valid rounds that the gain was computed from.",
}
