# SPDX-License-Identifier: BSD-2-Clause
"""The refusals of `enable`, and a job that is some of the ranks of a training."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; run scripts/setup --train")

import torch.distributed as dist  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402

import mltcp_tools.collectives as mc  # noqa: E402
from mltcp_tools.base.errors import UsageError  # noqa: E402
from mltcp_tools.collectives import ddp  # noqa: E402
from mltcp_tools.collectives.auto import Auto  # noqa: E402
from mltcp_tools.hooks import Job  # noqa: E402

CALLER = Path(__file__).with_name("enable_rank.py")
NOBODY = "127.0.0.1:1"


def test_fsdp_is_refused_by_name(tmp_path: Path) -> None:
    dist.init_process_group(
        "gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1
    )
    try:
        model = fully_shard(torch.nn.Linear(4, 4), mesh=dist.init_device_mesh("cpu", (1,)))
        with pytest.raises(UsageError, match=r"FSDPLinear isn't a Distributed.* as in FSDP"):
            mc.enable(model)
    finally:
        dist.destroy_process_group()


def test_auto_leaves_gradients_elsewhere_to_the_jobs_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Elsewhere than in the host's memory; the reducer here can't reduce at all."""
    asked: list[Any] = []
    future: Any = torch.futures.Future()

    def own(group: Any, bucket: Any) -> Any:
        asked.append(group)
        return future

    monkeypatch.setattr(ddp, "allreduce_hook", own)
    reducer: Any = SimpleNamespace(why_gloo=None, rank=0)
    gradient = torch.empty(4, device="meta")
    bucket = SimpleNamespace(buffer=lambda: gradient, index=lambda: 0, is_last=lambda: True)
    state = ddp.State(reducer, "the job's own", Job(), Auto(reducer, ""))
    averaged = ddp._hook()(state, bucket)
    future.set_result(gradient)
    assert averaged.wait() is gradient
    assert asked == ["the job's own"]


def enabled(tmp_path: Path, *wishes: dict[str, Any]) -> list[list[Any]]:
    """Output of enable_rank.py at a rank for each wish."""
    store, world = tmp_path / "store", str(len(wishes))
    return told_by(
        [[CALLER, str(rank), world, store, json.dumps(wish)] for rank, wish in enumerate(wishes)]
    )


def told_by(scripts: list[list[str | Path]]) -> list[Any]:
    """The JSON that these scripts of ranks print, run side by side; none may fail."""
    ranks = [
        subprocess.Popen(
            [sys.executable, *script],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for script in scripts
    ]
    try:
        told = [process.communicate(timeout=120) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    assert not any(process.returncode for process in ranks), told
    return [json.loads(out) for out, _ in told]


@pytest.mark.parametrize(
    ("wish", "sentence"),
    [
        ({"algorithm": "gloo", "top_k": 0.5}, "Ranks ask for different top_k: None on rank 0, 0.5"),
        ({"algorithm": "sparse"}, "Ranks ask for different algorithm: 'gloo' on rank 0, 'sparse'"),
        ({"algorithm": "sparce"}, "There is no algorithm 'sparce'"),
        ({"algorithm": ["gloo"]}, "There is no algorithm ['gloo']"),
        ({"algorithm": "gloo", "top_k": 2}, "top_k is 2"),
        ({"algorithm": "gloo", "top_k": "0.5"}, "top_k is '0.5'"),
        ({"algorithm": "gloo", "timeout_s": -1}, "timeout_s is -1"),
        ({"algorithm": "auto", "aggregator": 7}, "has no attribute 'partition'"),
        ({"algorithm": "gloo", "hook": "own"}, "has the communication hook allreduce_hook already"),
        ({"algorithm": "gloo", "hook": "built in"}, "has the communication hook Builtin"),
    ],
)
def test_one_rank_that_differs_is_named_on_all(
    wish: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    ranks = enabled(tmp_path, {"algorithm": "gloo"}, wish)
    assert sum("rank 1" in said.lower() for said, *_ in ranks) >= 1
    for said, algorithm, threads, _ in ranks:
        assert sentence in said
        assert not algorithm
        assert not threads  # nothing stays behind


@pytest.mark.parametrize("algorithm", ["auto", "gloo", "sparse", "adaptive"])
def test_a_sub_group_without_the_first_rank(algorithm: str, tmp_path: Path) -> None:
    """The rank outside of it calls nothing; the others have the same gradient."""
    outside, *inside = enabled(tmp_path, *[{"algorithm": algorithm, "without": 0}] * 4)
    assert outside is None
    assert [each[1] for each in inside] == ["own" if algorithm == "auto" else algorithm] * 3
    assert [each[0::3] for each in inside] == [["", [1.0]]] * 3


def test_auto_keeps_own_way_where_one_rank_has_no_aggregator(tmp_path: Path) -> None:
    named = {"aggregator": NOBODY}
    for said, algorithm, threads, _ in enabled(tmp_path, named, {}, named):
        assert [said, algorithm, threads] == ["", "own", []]


def test_aggregated_names_the_rank_without_an_aggregator(tmp_path: Path) -> None:
    named = {"algorithm": "aggregated", "aggregator": NOBODY}
    for said, *_ in enabled(tmp_path, named, {"algorithm": "aggregated"}, named):
        assert said == "No aggregator is named on rank 1; set MLTCP_AGGREGATOR on all ranks."


def test_without_an_aggregator_uneven_inputs_scale_as_ddps(tmp_path: Path) -> None:
    """The second step is rank 0's alone, so that its gradient is divided by one rank."""
    ranks = enabled(tmp_path, {}, {}, {})
    assert [each[3] for each in ranks] == [[1.0, 1.0], [1.0], [1.0]]
