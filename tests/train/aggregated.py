# SPDX-License-Identifier: BSD-2-Clause
"""Trainings of aggregated_rank.py over links of namespaces."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mltcp_tools.kernel.host.lifetime import die_with_parent
from mltcp_tools.lab.collectives.star import WORKER_INTERFACE, Star
from mltcp_tools.lab.testbed.leftovers import RunLock
from mltcp_tools.lab.testbed.namespaces import inside

RANK = Path(__file__).with_name("aggregated_rank.py")
WORLD = 3
STEPS = 30


@contextmanager
def star(rates: Sequence[int] = (200_000_000,) * WORLD) -> Iterator[tuple[Star, str]]:
    with RunLock() as lock, Star(lock.id, rates) as net:
        yield net, f"test-{lock.id}"


def start(net: Star, algorithm: str, steps: int = STEPS, **environment: str) -> list[Any]:
    ranks = []
    for rank, worker in enumerate(net.workers):
        arguments = (rank, len(net.workers), net.address(0), WORKER_INTERFACE, algorithm, steps)
        with inside(worker):
            ranks.append(
                subprocess.Popen(
                    [sys.executable, RANK, *map(str, arguments)],
                    env=os.environ | {"AGGREGATOR": net.gateway(rank)} | environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    preexec_fn=die_with_parent,
                )
            )
    return ranks


def finish(ranks: list[Any]) -> tuple[list[list[dict[str, Any]]], list[str]]:
    """The lines of JSON that each rank printed, and the text of its errors."""
    lines, errors = [], []
    for process in ranks:
        out, err = process.communicate(timeout=120)
        lines.append([json.loads(line) for line in out.splitlines() if line.startswith("{")])
        errors.append(err)
    return lines, errors


def train(net: Star, algorithm: str, **environment: str) -> list[list[dict[str, Any]]]:
    ranks = start(net, algorithm, **environment)
    lines, errors = finish(ranks)
    assert not any(process.returncode for process in ranks), errors
    return lines


def assert_alike(lines: list[list[dict[str, Any]]], steps: int = STEPS) -> None:
    """All ranks did all steps, with the same gradients bit for bit, and end with one model."""
    for each in lines:
        assert len(each) == steps + 1
        assert [line.get("gradients") for line in each] == [
            line.get("gradients") for line in lines[0]
        ]
    assert len({each[-1]["parameters"] for each in lines}) == 1


def losses(lines: list[list[dict[str, Any]]], steps: int = STEPS) -> list[float]:
    return [sum(each[step]["loss"] for each in lines) / len(lines) for step in range(steps)]
