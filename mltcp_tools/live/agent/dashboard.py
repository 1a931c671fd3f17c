# SPDX-License-Identifier: BSD-2-Clause
"""A Grafana dashboard of the agent's metrics."""

from __future__ import annotations

from typing import Any

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_HOST = '{instance=~"$instance"}'
_JOB = '{training_job=~"$training_job", instance=~"$instance"}'
_LEGEND = "{{training_job}} on {{instance}}"
_COLUMNS, _WIDTH, _HEIGHT = 2, 12, 8


def _rate(metric: str, labels: str = _JOB) -> str:
    return f"rate({metric}{labels}[$__rate_interval])"


def _quantile(share: float) -> str:
    buckets = _rate("mltcp_job_iteration_seconds_bucket")
    return f"histogram_quantile({share}, sum by (le, training_job, instance) ({buckets}))"


_MEAN = f"{_rate('mltcp_job_iteration_seconds_sum')} / {_rate('mltcp_job_iteration_seconds_count')}"
_BUILDS = f"count by (backend, build) (mltcp_backend_info{_HOST})"

_PANELS: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("Mean iteration time", "s", {_LEGEND: _MEAN}),
    (
        "Iteration time, median and p99",
        "s",
        {f"median, {_LEGEND}": _quantile(0.5), f"p99, {_LEGEND}": _quantile(0.99)},
    ),
    (
        "Gain of the standing proof, with its 95 % interval",
        "percentunit",
        {
            _LEGEND: f"mltcp_job_gain_ratio{_JOB}",
            f"low, {_LEGEND}": f"mltcp_job_gain_low_ratio{_JOB}",
            f"high, {_LEGEND}": f"mltcp_job_gain_high_ratio{_JOB}",
        },
    ),
    ("Rounds of the standing proof", "short", {_LEGEND: f"mltcp_job_gain_rounds{_JOB}"}),
    ("Overlap with other jobs", "percentunit", {_LEGEND: f"mltcp_job_overlap_ratio{_JOB}"}),
    (
        "Communication's share of an iteration",
        "percentunit",
        {_LEGEND: f"mltcp_job_communication_ratio{_JOB}"},
    ),
    ("Throughput", "Bps", {_LEGEND: _rate("mltcp_job_acknowledged_bytes_total")}),
    ("Retransmitted segments", "pps", {_LEGEND: _rate("mltcp_job_retransmitted_segments_total")}),
    ("Yields", "ops", {_LEGEND: _rate("mltcp_job_yields_total")}),
    ("Connections", "short", {_LEGEND: f"mltcp_job_flows{_JOB}"}),
    (
        "Confidence in the known period",
        "percentunit",
        {_LEGEND: f"mltcp_job_confidence_ratio{_JOB}"},
    ),
    ("Hosts by build in the kernel", "short", {"{{backend}} {{build}}": _BUILDS}),
    (
        "Hosts whose build isn't their agent's",
        "short",
        {"hosts": f"sum(mltcp_backend_stale{_HOST})"},
    ),
    (
        "Sockets by congestion control",
        "short",
        {"{{congestion_control}} on {{instance}}": f"mltcp_backend_sockets{_HOST}"},
    ),
    (
        "Lost events of iterations",
        "ops",
        {"{{instance}}": _rate("mltcp_agent_events_lost_total", _HOST)},
    ),
)
"""Title, unit and, by legend, the queries of each panel."""


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    variables: list[dict[str, Any]] = [
        {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
        _variable("instance", "Host", "label_values(mltcp_backend_info, instance)"),
        _variable("training_job", "Job", "label_values(mltcp_job_flows, training_job)"),
    ]
    return {
        "title": "MLTCP",
        "uid": "mltcp",
        "description": "What mltcp agent --metrics publishes.",
        "schemaVersion": 36,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": variables},
        "panels": [_panel(number) for number in range(len(_PANELS))],
    }


def _variable(name: str, label: str, query: str) -> dict[str, Any]:
    """A choice of some values, or all, at the top of the dashboard."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": _SOURCE,
        "query": query,
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panel(number: int) -> dict[str, Any]:
    title, unit, queries = _PANELS[number]
    row, column = divmod(number, _COLUMNS)
    return {
        "id": number + 1,
        "title": title,
        "type": "timeseries",
        "datasource": _SOURCE,
        "gridPos": {"x": column * _WIDTH, "y": row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
        "targets": [
            {"refId": "ABC"[place], "expr": query, "legendFormat": legend}
            for place, (legend, query) in enumerate(queries.items())
        ],
    }
