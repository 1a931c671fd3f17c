"""A rank that computes for the times of a trace and reduces: what straggling_here.py runs.

Its environment is torchrun's; its argument is a Work as JSON. Rank 0 prints a line of JSON per arm.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from mltcp_tools.collectives.library import How
from mltcp_tools.collectives.reducer import Reducer

ARMS = ("waiting", "going_on")
"""Waiting for all ranks each time, and going on without the late."""

_WARM_UP = 3  # reductions, from which the coordinator learns what one takes


@dataclass(frozen=True)
class Work:
    """compute_s: seconds before each reduction, at this rank. bytes: of the float32 tensor.

    block: iterations of an arm in a row; then the other arm has the same ones.
    """

    compute_s: Sequence[float]
    bytes: int
    block: int


def run_block(reducer: Reducer, compute_s: Sequence[float], size: int) -> float:
    """Seconds, from the start of all ranks until all are done."""
    gradient = torch.ones(size // 4)
    dist.barrier()
    begin = time.monotonic()
    for pause_s in compute_s:
        time.sleep(pause_s)
        reducer.all_reduce(gradient.clone(), How.SUM).wait()
    dist.barrier()
    return time.monotonic() - begin


def main() -> None:
    """Both arms in turn, over all iterations."""
    work = Work(**json.loads(sys.argv[1]))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    reducers = {
        "waiting": Reducer(None, adaptive=True),
        "going_on": Reducer(None, adaptive=True, stragglers=True),
    }
    for reducer in reducers.values():
        if reducer.why_gloo:
            raise SystemExit(reducer.why_gloo)
        run_block(reducer, [0.0] * _WARM_UP, work.bytes)
    took = dict.fromkeys(ARMS, 0.0)
    for turn, first in enumerate(range(0, len(work.compute_s), work.block)):
        for arm in ARMS if turn % 2 else ARMS[::-1]:
            part = work.compute_s[first : first + work.block]
            took[arm] += run_block(reducers[arm], part, work.bytes)
    late = torch.tensor([reducers["going_on"].late])
    dist.all_reduce(late)
    if dist.get_rank() == 0:
        count = len(work.compute_s)
        means = {f"{arm}_s": seconds / count for arm, seconds in took.items()}
        print(json.dumps(means | {"late": int(late) / (count * dist.get_world_size())}), flush=True)
    for reducer in reducers.values():
        reducer.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
