# SPDX-License-Identifier: BSD-2-Clause
"""The aggregator killed during sums of all kinds: training goes on, with one model at all ranks."""

from __future__ import annotations

import json
import time

import pytest
from train.aggregated import assert_alike, finish, star, start

from mltcp_tools.lab.collectives.bench_here import aggregator

STEPS = 12
KINDS: dict[str, dict[str, str]] = {
    "dense": {},
    "zeros": {"TOP_K": "0.2"},
    "blocks": {"BLOCKS": "1"},
    "rows": {"ROWS": "1"},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("after", range(4))
def test_whenever_it_is_killed_all_ranks_go_on_alike(kind: str, after: int) -> None:
    """Rows of an embedding go by the job's own group, between sums at the aggregator."""
    with star() as (net, name):
        with aggregator(net, name, "xdp"):
            ranks = start(net, "aggregated", steps=STEPS, PAUSE="0.01", **KINDS[kind])
            begun = [ranks[0].stdout.readline() for _ in range(3)]
            time.sleep(0.004 * after)
        lines, errors = finish(ranks)
    assert not any(process.returncode for process in ranks), errors
    lines[0] = [json.loads(line) for line in begun] + lines[0]
    assert_alike(lines, STEPS)
    assert lines[0][-2]["algorithm"] == "gloo"
