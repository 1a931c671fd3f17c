# SPDX-License-Identifier: BSD-2-Clause
"""The agent's metrics, as Prometheus reads them; its own programs run where they are installed."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest
from support.watched_backend import WatchedBackend, event

from mltcp_tools.base.errors import HostError
from mltcp_tools.cli.main import main
from mltcp_tools.kernel.backends.base import Flow, Job, Status
from mltcp_tools.live.agent.dashboard import dashboard
from mltcp_tools.live.agent.learning import Learning
from mltcp_tools.live.agent.metrics import Metrics, parse_address
from mltcp_tools.live.agent.notices import Notices
from mltcp_tools.live.observe.iterations import JobIteration
from mltcp_tools.live.observe.view import Gain, JobView
from mltcp_tools.live.sources.metadata import Metadata

ALERTS = resources.files("mltcp_tools.live.agent") / "alerts.yaml"
NAMES = {1: "gpt2"}


def own_address() -> str:
    return f"127.0.0.1:{free_port()}"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
    return port


def view(name: str = "gpt2") -> JobView:
    gain = Gain(0.05, 0.02, 0.08, 0.01, 9)
    known = Metadata("learned", 0.5, 1_000_000, 0.2, 0.75, 20)
    return JobView(1, name, 4, 20, 0.5, 0.6, 0.4, 0.25, known, gain=gain)


def flow(yields: int) -> Flow:
    empty = {each.name: "" if each.type == "str" else 0 for each in dataclasses.fields(Flow)}
    return Flow(**empty | {"cookie": 7, "job_id": 1, "yields": yields})  # type: ignore[arg-type]


def iteration(number: int) -> JobIteration:
    ends = ("10.0.0.1", "10.0.0.2")
    return JobIteration(
        1, number, 10.0, 10.25, 10.5, 1_000_000, (event(1, 7, 1, 10.25, 10.5, 1_000_000, ends),)
    )


class Loaded(WatchedBackend):
    """As if an older build were in the kernel."""

    def status(self) -> Status:
        return Status("bpf", ("mltcp",), {"mltcp": 4}, (), {}, build="1+old")

    def build_here(self) -> str:
        return "1+new"


@pytest.fixture
def served() -> Iterator[tuple[Metrics, str]]:
    address = own_address()
    with Metrics(address, Loaded([Job(1, "gpt2")], [], [])) as metrics:
        metrics.iterated([iteration(n) for n in (1, 2, 3)], NAMES)
        metrics.lost(2)
        metrics.show([view()], [flow(yields=3)], now_s=1.0)
        yield metrics, address


def page(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        text: str = answer.read().decode()
    return text


def test_every_metric_of_a_job_is_there(served: tuple[Metrics, str]) -> None:
    text = page(served[1])
    for line in (
        'mltcp_job_iteration_seconds_count{training_job="gpt2"} 3.0',
        'mltcp_job_iteration_seconds_sum{training_job="gpt2"} 1.5',
        'mltcp_job_acknowledged_bytes_total{training_job="gpt2"} 3e+06',
        'mltcp_job_communication_ratio{training_job="gpt2"} 0.5',
        'mltcp_job_overlap_ratio{training_job="gpt2"} 0.25',
        'mltcp_job_iteration_seconds_bucket{le="0.64",training_job="gpt2"} 3.0',
        'mltcp_job_retransmitted_segments_total{training_job="gpt2"} 0.0',
        'mltcp_job_yields_total{training_job="gpt2"} 3.0',
        'mltcp_job_confidence_ratio{training_job="gpt2"} 0.75',
        'mltcp_job_flows{training_job="gpt2"} 4.0',
        'mltcp_job_gain_ratio{training_job="gpt2"} 0.05',
        'mltcp_job_gain_low_ratio{training_job="gpt2"} 0.02',
        'mltcp_job_gain_high_ratio{training_job="gpt2"} 0.08',
        'mltcp_job_gain_rounds{training_job="gpt2"} 9.0',
        "mltcp_agent_events_lost_total 2.0",
        'mltcp_backend_info{agents_build="1+new",backend="told",build="1+old"} 1.0',
        'mltcp_backend_sockets{congestion_control="mltcp"} 4.0',
        "mltcp_backend_stale 1.0",
    ):
        assert line in text.splitlines()
    assert "port=" not in text


def test_an_agent_that_no_longer_looks_is_seen_by_its_timestamp(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "mltcp_agent_last_update_timestamp_seconds"
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    with Metrics(own_address(), Loaded([], [], [])) as metrics:
        assert metrics.registry.get_sample_value(name) == 1000.0
        monkeypatch.setattr(time, "time", lambda: 1001.0)
        metrics.lost(1)
        assert metrics.registry.get_sample_value(name) == 1000.0
        metrics.show([], [], now_s=5.0)
        assert metrics.registry.get_sample_value(name) == 1001.0


def test_what_was_unloaded_is_published_as_stale() -> None:
    class Gone(Loaded):
        def is_present(self) -> bool:
            return False

    backend = Gone([Job(1, "gpt2")], [], [])
    with Metrics(own_address(), backend) as metrics:
        metrics.show([view()], [], now_s=1.0)
        learning = Learning({}, backend, Notices(print))
        learning.metrics = metrics
        assert learning.show(now_s=2.0) is None
        assert b"gpt2" not in generate_latest(metrics.registry)


def test_a_job_that_has_ended_is_published_no_more(served: tuple[Metrics, str]) -> None:
    metrics, address = served
    metrics.show([], [], now_s=2.0)
    assert 'training_job="gpt2"' not in page(address)
    metrics.show([], [], now_s=3.0)


def test_what_is_no_longer_known_is_published_no_more(served: tuple[Metrics, str]) -> None:
    metrics, address = served
    metrics.show([dataclasses.replace(view(), overlap=None, gain=None)], [], now_s=2.0)
    text = page(address)
    assert "mltcp_job_overlap_ratio{" not in text
    assert "mltcp_job_gain_ratio{" not in text
    assert 'mltcp_job_flows{training_job="gpt2"} 4.0' in text


def test_an_address_that_is_taken_is_said(served: tuple[Metrics, str]) -> None:
    assert parse_address("[::1]:9477") == ("::1", 9477)
    with pytest.raises(HostError, match="can't serve metrics"):
        Metrics(served[1], Loaded([], [], []))


needs_prometheus = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")),
    reason="Prometheus isn't installed (scripts/test web)",
)


@needs_prometheus
def test_promtool_has_nothing_to_say_about_names_and_units(served: tuple[Metrics, str]) -> None:
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=page(served[1]), capture_output=True, text=True
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@needs_prometheus
def test_a_real_prometheus_scrapes_it_and_takes_the_alerts(
    served: tuple[Metrics, str], tmp_path: Path
) -> None:
    (tmp_path / "alerts.yaml").write_text(ALERTS.read_text())
    scrape = {"job_name": "mltcp", "static_configs": [{"targets": [served[1]]}]}
    with prometheus(tmp_path, scrape) as port:
        for query in ("mltcp_job_iteration_seconds_count", "mltcp_backend_info", "up"):
            (found,) = asked(port, query)
            assert found["metric"]["job"] == "mltcp"
        assert asked(port, "mltcp_job_flows")[0]["metric"]["training_job"] == "gpt2"
        for panel, query in queries().items():
            served[0].iterated([iteration(9)], NAMES)
            assert float(asked(port, query)[0]["value"][1]) >= 0, panel


class Well(Loaded):
    def build_here(self) -> str:
        return self.status().build


@needs_prometheus
def test_prometheus_fires_each_alert_for_its_own_fault_only(tmp_path: Path) -> None:
    """The rules as they are shipped, but that they wait for seconds instead of minutes."""
    rules = yaml.safe_load(ALERTS.read_text())
    for rule in rules["groups"][0]["rules"]:
        rule["for"] = "2s"
    (tmp_path / "alerts.yaml").write_text(json.dumps(rules))
    well, ill, nobody = (own_address() for _ in range(3))
    scrape = {"job_name": "mltcp", "static_configs": [{"targets": [well, ill, nobody]}]}
    backend = Well([Job(1, "gpt2")], [], [])
    slower = dataclasses.replace(view(), overlap=0.8, gain=Gain(-0.05, -0.08, -0.02, 0.01, 8))
    with (
        Metrics(well, backend) as quiet,
        Metrics(ill, Loaded([Job(1, "gpt2")], [], [])) as loud,
        prometheus(tmp_path, scrape) as port,
    ):
        quiet.show([view()], [], now_s=1.0)
        loud.show([slower], [], now_s=1.0)
        deadline = time.monotonic() + 120
        firing: set[tuple[str, str]] = set()
        while {name for name, _ in firing} != set(ALERTS_OF):
            assert time.monotonic() < deadline, firing
            loud.lost(1)
            loud._updated.set(1.0)
            quiet.show([view()], [], now_s=1.0)
            time.sleep(0.2)
            expr = 'ALERTS{alertstate="firing"}'
            found = [each["metric"] for each in asked(port, f"{expr} or on() vector(0)")]
            firing = {(each["alertname"], each["instance"]) for each in found if each}
    assert firing == {(name, nobody if name == "MltcpAgentDown" else ill) for name in ALERTS_OF}


@contextlib.contextmanager
def prometheus(folder: Path, scrape: dict[str, Any]) -> Iterator[int]:
    """The port of a Prometheus that scrapes every second, with the rules in the folder."""
    port = free_port()
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["alerts.yaml"],
        "scrape_configs": [scrape],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    command = ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data"]
    command.append(f"--web.listen-address=127.0.0.1:{port}")
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL) as server:
        try:
            yield port
        finally:
            server.terminate()


def asked(port: int, query: str) -> list[dict[str, Any]]:
    """The query's answer, once there is one."""
    words = urllib.parse.urlencode({"query": query})
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            url = f"http://127.0.0.1:{port}/api/v1/query?{words}"
            with urllib.request.urlopen(url, timeout=10) as answer:
                found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
            if found:
                return found
        except OSError:
            pass  # it has only begun
        time.sleep(0.2)
    raise AssertionError(f"{query} gives nothing")


def queries() -> dict[str, str]:
    """Every query of the dashboard, as Grafana would ask it for all hosts and jobs."""
    given = {"$__rate_interval": "10s", "$training_job": ".*", "$instance": ".*"}
    found = {}
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            query = target["expr"]
            for name, value in given.items():
                query = query.replace(name, value)
            found[f"{panel['title']} {target['refId']}"] = query
    return found


def test_the_dashboard_shows_every_metric(
    served: tuple[Metrics, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["agent", "--print", "dashboard"]) == 0
    printed = capsys.readouterr().out
    names = [each.name for each in served[0].registry.collect()]
    assert len(names) > 10
    names.remove("mltcp_agent_last_update_timestamp_seconds")  # an alert has it
    assert [each for each in names if each not in printed] == []


ALERTS_OF = (
    "MltcpAgentDown",
    "MltcpAgentSilent",
    "MltcpBackendStale",
    "MltcpEventsLost",
    "MltcpJobSlower",
    "MltcpJobCollides",
)
