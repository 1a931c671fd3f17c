# SPDX-License-Identifier: BSD-2-Clause
"""Two unmodified training jobs on one bottleneck, attached and detached while they run."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

import pytest
from train.conftest import Report
from train.jobs import Place, Rank, finish, gradient_bytes, training, wait_for_more
from train.mltcp import MLTCP, bottleneck, loaded, mltcp_json

from mltcp_tools.lab.experiments.links import Link
from mltcp_tools.lab.testbed.network import RECEIVER_ADDRESS, Dumbbell

pytestmark = pytest.mark.bpf

LINK = Link(40_000_000, 30_000)
WIDTH, IDLE_S = 320, 0.35
PORTS = {"first": 29721, "second": 29722}
SETTLE = 4
"""Iterations after a change that count neither as before nor as after."""


@contextlib.contextmanager
def two_jobs(network: Dumbbell, iterations: int) -> Iterator[dict[str, list[Rank]]]:
    """Each has a rank in a namespace of its own and one at the other end of the bottleneck."""
    with contextlib.ExitStack() as stack:
        yield {
            name: stack.enter_context(
                training(
                    [Place(network.receiver, "to-router"), Place(sender, "to-router")],
                    *(RECEIVER_ADDRESS, port, iterations, WIDTH, IDLE_S),
                )
            )
            for (name, port), sender in zip(PORTS.items(), network.senders, strict=True)
        }


def losses_without(iterations: int) -> list[list[str]]:
    """The losses of the same training on a network of its own, by rank."""
    with training([Place(None, "lo")] * 2, "127.0.0.1", 29720, iterations, WIDTH, 0.0) as ranks:
        finish(ranks)
    return [rank.losses for rank in ranks]


def iteration_s(ranks: list[Rank], since_s: float, until_s: float) -> float:
    return mean(ranks[0].durations_s(since_s, until_s))


def all_ranks(jobs: dict[str, list[Rank]]) -> list[Rank]:
    return [rank for ranks in jobs.values() for rank in ranks]


def congestion_controls(jobs: dict[str, list[Rank]]) -> set[str]:
    """Return what `mltcp connections` reads of the jobs' Gloo connections."""
    return {
        sock["congestion_control"]
        for process in mltcp_json("connections", *(rank.pid for rank in all_ranks(jobs)))
        for sock in process["sockets"]
        if sock["kind"] == "gloo"
    }


def test_attach_and_detach_while_they_run(report: Report) -> None:
    with bottleneck(2, LINK) as network, loaded(), two_jobs(network, 10_000) as jobs:
        began_s = wait_for_more(all_ranks(jobs), SETTLE)
        before_s = wait_for_more(all_ranks(jobs), 16)
        default = congestion_controls(jobs)
        assert "mltcp" not in default
        for name, ranks in jobs.items():
            done = mltcp_json(
                *("attach", *(rank.pid for rank in ranks), "--job", name, "--kind", "gloo"),
                *("--burst-bytes", f"{gradient_bytes(WIDTH)}B", "--gap", "100ms"),
            )
            assert {change["outcome"] for change in done["changes"]} == {"switched"}
            assert {change["socket"]["process"]["pid"] for change in done["changes"]} == {
                rank.pid for rank in ranks
            }
            # The store's connections are left alone.
            assert "store" in {verdict["kind"] for verdict in done["left_alone"]}
        assert congestion_controls(jobs) == {"mltcp"}
        attached_s = wait_for_more(all_ranks(jobs), SETTLE)
        after_s = wait_for_more(all_ranks(jobs), 24)
        flows = mltcp_json("status", "flows")
        assert len(flows) == 4
        assert all(flow["active"] and flow["iteration"] > 20 for flow in flows)
        restored = mltcp_json("detach", "--all")
        assert [each["outcome"] for each in restored] == ["restored"] * 4
        assert congestion_controls(jobs) == default
        assert mltcp_json("status", "flows") == []
        wait_for_more(all_ranks(jobs), SETTLE)
        for name, ranks in jobs.items():
            report.line(
                f"job {name}: {iteration_s(ranks, began_s, before_s):.3f} s per iteration under"
                f" {', '.join(default)}, {iteration_s(ranks, attached_s, after_s):.3f} s attached"
            )
    losses = [[rank.losses for rank in ranks] for ranks in jobs.values()]
    expected = losses_without(max(len(each) for job in losses for each in job))
    for job in losses:
        for each, wanted in zip(job, expected, strict=True):
            assert each == wanted[: len(each)]


def test_agent_learns_from_gloos_calls(report: Report, tmp_path: Path) -> None:
    """Nothing is told but which processes belong to which job."""
    with bottleneck(2, LINK) as network, loaded(), two_jobs(network, 1000) as jobs:
        wait_for_more(all_ranks(jobs), 2)
        config = tmp_path / "agent.yaml"
        rules = [
            {"job": name, "pid": [rank.pid for rank in ranks], "burst_bytes": "auto", "gap": "auto"}
            for name, ranks in jobs.items()
        ]
        config.write_text(json.dumps({"on_stop": "detach", "rules": rules}))
        agent = subprocess.Popen(
            [MLTCP, "agent", "--config", config], stderr=subprocess.PIPE, text=True
        )
        try:
            wait_for_more(all_ranks(jobs), 24)
            found = {job["name"]: job for job in mltcp_json("status", "jobs")}
            attached = congestion_controls(jobs)
        finally:
            agent.send_signal(signal.SIGTERM)
            _, said = agent.communicate(timeout=60)
        assert agent.returncode == 0, said
        assert attached == {"mltcp"}, said
        assert "mltcp" not in congestion_controls(jobs)
    for name, ranks in jobs.items():
        job, durations = found[name], sorted(ranks[0].durations_s()[-20:])
        assert job["flows"] == 2, said
        assert job["metadata"]["source"] == "gloo", said
        assert job["metadata"]["bytes_per_iteration"] == gradient_bytes(WIDTH)
        assert durations[0] * 0.8 < job["metadata"]["period_s"] < durations[-1] * 1.2
        assert job["params"]["burst_bytes"] == pytest.approx(gradient_bytes(WIDTH), rel=0.11)
        assert 0 < job["params"]["gap_s"] < durations[-1]
        report.line(
            f"job {name} as the agent knows it: {job['metadata']['period_s']:.3f} s,"
            f" {job['metadata']['bytes_per_iteration']} bytes, gap {job['params']['gap_s']:.3f} s"
        )
    report.line(f"the agent: {' / '.join(said.splitlines())}")
