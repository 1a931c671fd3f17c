# SPDX-License-Identifier: BSD-2-Clause
"""DDP's options with gradients summed up at an aggregator: the same model as without."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from train.aggregated import WORLD, star

from mltcp_tools.kernel.host.lifetime import die_with_parent
from mltcp_tools.lab.collectives.bench_here import aggregator
from mltcp_tools.lab.collectives.star import WORKER_INTERFACE
from mltcp_tools.lab.testbed.namespaces import inside

RANK = Path(__file__).with_name("ddp_options_rank.py")
OPTIONS = (
    "plain amp static_graph find_unused_parameters no_sync bucket_views compile join two_models"
)


@pytest.fixture(scope="module")
def trained() -> dict[str, list[list[Any]]]:
    """Return what each rank says of each option."""
    ranks = []
    with star() as (net, name), aggregator(net, name, "auto"):
        for rank in range(WORLD):
            words = (rank, WORLD, net.address(0), WORKER_INTERFACE, net.gateway(rank))
            with inside(net.workers[rank]):
                ranks.append(
                    subprocess.Popen(
                        [sys.executable, RANK, *map(str, words)],
                        stdout=subprocess.PIPE,
                        stderr=subprocess.PIPE,
                        text=True,
                        preexec_fn=die_with_parent,
                    )
                )
        said = [process.communicate(timeout=500) for process in ranks]
    found: dict[str, list[list[Any]]] = {}
    for out, err in said:
        *lines, last = out.splitlines()
        assert last == "done", err
        for line in lines:
            name, *rest = json.loads(line)
            found.setdefault(name, []).append(rest)
    return found


@pytest.mark.parametrize("option", OPTIONS.split())
def test_option_trains_the_same_model_at_the_aggregator(
    option: str, trained: dict[str, list[list[Any]]]
) -> None:
    differences, ways, digests = zip(*trained[option], strict=True)
    assert ways == (["aggregated"],) * WORLD
    assert max(map(max, differences)) < 1e-5
    assert len(set(digests)) == 1
