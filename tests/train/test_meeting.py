"""Ranks that are in different places when a reduction fails at one of them."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; run scripts/setup --train")


def _meet(rank: int, store: Path, answers: Any) -> None:
    import torch.distributed as dist

    from mltcp_tools.collectives.group import Group
    from mltcp_tools.collectives.session import SessionError

    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    agreement = Group(None, 30.0).agreement
    refused = ""
    if rank == 1:
        try:
            agreement.tell("how long it took")
        except SessionError as error:
            refused = str(error)
    progress = agreement.meet(4 + rank, refused or "A link stalled.", "the sum of 3 float32")
    answers.put((rank, refused, progress.first, progress.ahead, progress.reasons))
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
    elsewhere = "A reduction failed at another rank."
    assert [(rank, refused) for rank, refused, *_ in told] == [(0, ""), (1, elsewhere)]
    assert [each[2:] for each in told] == [(4, [1], ["A link stalled.", elsewhere])] * 2
