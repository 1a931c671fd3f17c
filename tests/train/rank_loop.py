# SPDX-License-Identifier: BSD-2-Clause
"""The work of all training jobs' ranks: how they begin, and what they print.

Where to meet comes from MASTER_ADDR, MASTER_PORT and GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME; with
`cuda` in DEVICE, ranks train on the first GPU and speak through NCCL. A rank prints `ready`, then
per iteration its number, when it had computed and when it ended (CLOCK_MONOTONIC), and the exact
loss.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass(frozen=True)
class Rank:
    """idle_s: what stands for an accelerator's computing, normally distributed around it by
    `jitter` as a share. width: of the model's layers. device: where the model is, `cpu` or `cuda`.
    """

    number: int
    world: int
    iterations: int
    width: int
    idle_s: float
    jitter: float
    device: str


def begin(words: Sequence[str]) -> Rank:
    """Join the other ranks. words: RANK WORLD_SIZE ITERATIONS WIDTH IDLE_S [JITTER]."""
    numbers = [int(word) for word in words[:4]]
    jitter, device = float(words[5]) if len(words) > 5 else 0.0, os.environ.get("DEVICE", "cpu")
    rank = Rank(*numbers, float(words[4]), jitter, device)
    torch.set_num_threads(1)
    torch.manual_seed(7)
    os.environ.update(RANK=str(rank.number), WORLD_SIZE=str(rank.world))
    backend = "nccl" if device == "cuda" else "gloo"
    dist.init_process_group(backend, rank=rank.number, world_size=rank.world)
    return rank


def iterate(
    rank: Rank,
    rows: int,
    data_seed: int,
    compute: Callable[[float], None],
    step: Callable[[torch.Tensor], float],
) -> None:
    """Draw `rows` of inputs, compute for a time in seconds, and take a step: all iterations."""
    data = torch.Generator().manual_seed(data_seed)
    computing = random.Random(os.environ["MASTER_PORT"])  # the same for all ranks of a job
    print("ready", flush=True)
    for iteration in range(rank.iterations):
        inputs = torch.randn(rows, rank.width, generator=data).to(rank.device)
        compute(max(0.0, computing.gauss(rank.idle_s, rank.jitter * rank.idle_s)))
        computed_s = time.monotonic()
        loss = step(inputs)
        print(iteration, computed_s, time.monotonic(), loss.hex(), flush=True)
    dist.destroy_process_group()


def step_of(model: torch.nn.Module) -> Callable[[torch.Tensor], float]:
    """A step of training one module to give its inputs back."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(inputs: torch.Tensor) -> float:
        optimizer.zero_grad()
        loss = (model(inputs) - inputs).square().mean()
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step
