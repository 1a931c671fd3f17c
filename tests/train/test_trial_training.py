# SPDX-License-Identifier: BSD-2-Clause
"""A trial of two real training jobs that share a bottleneck."""

from __future__ import annotations

import json
import subprocess

import pytest
from train.conftest import Report
from train.jobs import Place, gradient_bytes, training, wait_for_more
from train.mltcp import MLTCP, bottleneck, loaded

from mltcp_tools.lab.experiments.links import Link
from mltcp_tools.lab.testbed.network import RECEIVER_ADDRESS

pytestmark = pytest.mark.bpf

WIDTH, IDLE_S, EVERY_S = 160, 0.08, 8


def test_a_trial_of_real_training(report: Report) -> None:
    with bottleneck(2, Link(40_000_000, 30_000)) as network, loaded():
        here, there = (Place(each, "to-router") for each in (network.receiver, network.senders[0]))
        other = Place(network.senders[1], "to-router")
        with (
            training([here, there], RECEIVER_ADDRESS, 29751, 100_000, WIDTH, IDLE_S) as first,
            training([here, other], RECEIVER_ADDRESS, 29752, 100_000, WIDTH, IDLE_S) as second,
        ):
            began_s = wait_for_more([*first, *second], 5)
            jobs = [
                word
                for name, ranks in (("first", first), ("second", second))
                for rank in ranks
                for word in ("--job", f"{name}={rank.pid}")
            ]
            done = subprocess.run(
                [
                    MLTCP,
                    "trial",
                    *jobs,
                    "--phase-time",
                    f"{EVERY_S}s",
                    "--abort-if-slower",
                    "300%",
                    "--json",
                ],
                capture_output=True,
                text=True,
            )
            ended_s = wait_for_more([*first, *second], 1)
            found = json.loads(done.stdout)
            # What else runs on this host may make too many rounds discarded.
            assert found["ended"] in ("", "Too many rounds were discarded."), done.stderr
            assert [each["job"] for each in found["jobs"]] == ["first", "second"]
            for each, ranks in zip(found["jobs"], (first, second), strict=True):
                own = sorted(ranks[0].durations_s(began_s, ended_s))
                # Iterations are what the ranks themselves call so, with and without mltcp.
                for variant in ("base", "mltcp"):
                    assert own[0] < each[variant]["p50_s"] < own[-1]
                    assert each[variant]["p50_s"] == pytest.approx(own[len(own) // 2], rel=0.35)
            report.line(f"trial, {gradient_bytes(WIDTH)} B an iteration: {found['in_short']}")
            for rank in (*first, *second):
                assert rank.process.poll() is None
