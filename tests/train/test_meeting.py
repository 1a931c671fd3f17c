"""Ranks that are in different places when a reduction fails at one of them."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; run scripts/setup --train")


def _meet(rank: int, store: Path, answers: Any) -> None:
    import torch.distributed as dist

    from mltcp_tools.collectives.reducer import Reducer
    from mltcp_tools.collectives.session import SessionError

    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    reducer = Reducer(None, timeout_s=5.0)
    refused = ""
    if rank == 1:
        try:
            reducer._tell_of_links("how long it took")
        except SessionError as error:
            refused = str(error)
    answers.put((rank, refused, reducer._tell_progress("" if rank else "a link stalled")))
    reducer.close()
    dist.destroy_process_group()


def test_a_rank_that_chooses_meets_one_at_which_a_reduction_failed(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    ranks = [
        context.Process(target=_meet, args=(rank, tmp_path / "store", answers)) for rank in range(2)
    ]
    for each in ranks:
        each.start()
    try:
        told = sorted(answers.get(timeout=60) for _ in ranks)
    finally:
        for each in ranks:
            each.join(30)
            each.kill()
    assert [(rank, refused) for rank, refused, _ in told] == [
        (0, ""),
        (1, "a reduction failed at another rank"),
    ]
    assert [progress for *_, progress in told] == [(0, [], ["a link stalled"])] * 2
