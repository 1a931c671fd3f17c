# SPDX-License-Identifier: BSD-2-Clause
"""A rank of a training job: torch DDP over Gloo or NCCL, as anybody would write it.

    python ddp.py RANK WORLD_SIZE ITERATIONS WIDTH IDLE_S [JITTER]

The arguments, and what is printed, are rank_loop.py's.
"""

from __future__ import annotations

import sys
import time

import torch
from rank_loop import begin, iterate, step_of
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    rank = begin(sys.argv[1:])
    model = torch.nn.Sequential(
        torch.nn.Linear(rank.width, rank.width),
        torch.nn.ReLU(),
        torch.nn.Linear(rank.width, rank.width),
    ).to(rank.device)
    step = step_of(DistributedDataParallel(model))
    iterate(rank, rows=8, data_seed=rank.number, compute=time.sleep, step=step)


if __name__ == "__main__":
    main()
