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
from mltcp_tools.collectives import ddp  # noqa: E402
from mltcp_tools.errors import UsageError  # noqa: E402
from mltcp_tools.hooks import Job  # noqa: E402

RANK = Path(__file__).with_name("sub_group_rank.py")
WORLD = 4


def test_fsdp_is_refused_by_name(tmp_path: Path) -> None:
    dist.init_process_group(
        "gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1
    )
    try:
        model = fully_shard(torch.nn.Linear(4, 4), mesh=dist.init_device_mesh("cpu", (1,)))
        with pytest.raises(UsageError, match=r"FSDPLinear isn't a Distributed.* as of FSDP, keep"):
            mc.enable(model)
    finally:
        dist.destroy_process_group()


def test_gradients_elsewhere_keep_the_jobs_group_and_its_futures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Elsewhere than in the host's memory; the reducer here can't reduce at all."""
    asked: list[Any] = []
    future: Any = torch.futures.Future()

    def own(group: Any, bucket: Any) -> Any:
        asked.append(group)
        return future

    monkeypatch.setattr(ddp, "allreduce_hook", own)
    reducer: Any = SimpleNamespace(begin_iteration=lambda: None)
    bucket = SimpleNamespace(
        buffer=lambda: torch.empty(4, device="meta"), index=lambda: 0, is_last=lambda: True
    )
    state = ddp.State(reducer, "the job's own", Job())
    assert ddp._hook()(state, bucket) is future  # one after it wouldn't know the device's streams
    assert asked == ["the job's own"]


@pytest.mark.parametrize("algorithm", ["auto", "gloo", "sparse", "adaptive"])
def test_a_sub_group_without_the_first_rank(algorithm: str, tmp_path: Path) -> None:
    """Ranks outside of it call nothing; those in it end with one model."""
    ranks = [
        subprocess.Popen(
            [sys.executable, RANK, str(rank), str(WORLD), str(tmp_path / "store"), algorithm],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(WORLD)
    ]
    try:
        told = [process.communicate(timeout=120) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    assert not any(process.returncode for process in ranks), told
    found = [json.loads(out) for out, _ in told]
    assert found[0] is None
    assert found[1] is not None
    assert found[1:] == [found[1]] * (WORLD - 1)
