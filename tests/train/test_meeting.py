# SPDX-License-Identifier: BSD-2-Clause
"""Ranks that tell each other where they are, some of them in different places."""

from __future__ import annotations

import multiprocessing
import os
import pickle
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


def test_choosing_rank_meets_one_whose_reduction_failed(tmp_path: Path) -> None:
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


class _Trap:
    """Whoever unpickles it makes a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.folder,)


def test_a_word_that_is_no_json_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch.distributed as dist

    from mltcp_tools.collectives.group import Group

    trap = pickle.dumps(_Trap(tmp_path / "sprung"))
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        group = Group(None, 30.0)
        assert group.tell(["a word", 1]) == [["a word", 1]]
        sent = torch.frombuffer(bytearray(trap), dtype=torch.uint8)
        monkeypatch.setattr(group, "_exchange", lambda size: [(len(trap),)])
        monkeypatch.setattr(dist, "all_gather", lambda told, mine, group: told[0].copy_(sent))
        with pytest.raises(ValueError, match=r"decode|Expecting value"):
            group.tell(None)
    finally:
        dist.destroy_process_group()
    assert not (tmp_path / "sprung").exists()
    pickle.loads(trap)
    assert (tmp_path / "sprung").exists()
