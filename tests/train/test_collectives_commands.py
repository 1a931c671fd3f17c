# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp collectives` as people run it: the documents it prints."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

COMMAND = (sys.executable, "-m", "mltcp_tools.cli.main", "collectives")
ALGORITHMS = ["gloo", "aggregated", "sparse", "adaptive"]


def run(*arguments: str) -> str:
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=550)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _bound_s(algorithm: str, ranks: int) -> float:
    """400 kB once over 200 Mbit/s where an aggregator helps, else 2(n-1)/n times."""
    crossings = 1 if algorithm.startswith("aggregated") else 2 * (ranks - 1) / ranks
    return 400_000 * 8 / 200e6 * crossings


@pytest.mark.parametrize("ranks", [2, 3])
def test_all_algorithms_are_compared_and_right(ranks: int) -> None:
    words = f"bench --namespaces {ranks} --rate 200mbit --size 400kB --repeats 1 --json"
    document = json.loads(run(*words.split()))
    assert document["schema"] == "mltcp-collectives-bench/5"
    assert document["rates"] == [200_000_000] * ranks
    assert [row["algorithm"] for row in document["rows"]] == ALGORITHMS
    # Three times, and what joining sends.
    assert document["aggregator"]["bytes"] >= 3 * ranks * 400_000
    assert document["aggregator"]["busy_s"] > 0
    for row in document["rows"]:
        assert row["correct"]
        assert row["identical"]
        assert row["bytes"] == 400_000
        assert row["ranks"] == ranks
        assert row["bound_s"] == pytest.approx(_bound_s(row["algorithm"], ranks))


def test_short_floats_are_compared() -> None:
    words = "bench --namespaces 3 --rate 200mbit --size 200kB --repeats 1 --json --type bfloat16"
    rows = json.loads(run(*words.split()))["rows"]
    assert all(row["correct"] and row["identical"] for row in rows)


@pytest.mark.parametrize("block", [32, 352])
def test_zeros_are_left_out(block: int) -> None:
    words = "bench --namespaces 2 --rate 200mbit --size 800kB --repeats 1 --json"
    words += f" -a gloo,sparse,aggregated --density 5%,20% --block {block}"
    rows = json.loads(run(*words.split()))["rows"]
    assert [row["density"] for row in rows] == [0.05] * 3 + [0.2] * 3
    for row in rows:
        assert row["correct"]
        assert row["identical"]
        share = 1 if row["algorithm"] == "gloo" else row["density"]
        assert row["bound_s"] == pytest.approx(800_000 * 8 / 200e6 * share)
