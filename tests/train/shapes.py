# SPDX-License-Identifier: BSD-2-Clause
"""A rank of a training job of another shape than DDP's, over Gloo, as anybody would write it.

    python shapes.py KIND RANK WORLD_SIZE ITERATIONS WIDTH IDLE_S [JITTER]

KIND: `fsdp` (fully_shard), `pipeline` (torch.distributed.pipelining, GPipe) or `experts` (an
all-to-all in front of each expert and behind it, differentiated through); KIND:ROWS has batches of
another size than 64. The rest, and what is printed, is rank_loop.py's. Half of IDLE_S passes before
the iteration, the other half in the layers, so that communication overlaps computing where the
framework lets it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from rank_loop import begin, iterate, step_of
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.nn.functional import all_to_all_single
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

LAYERS = 4
MICRO_BATCHES = 4
ROWS = 64
Step = Callable[[torch.Tensor], float]


class Layer(torch.nn.Module):
    """A linear layer that takes an accelerator's time."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(width, width)
        self.idle_s = 0.0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        time.sleep(self.idle_s)
        return torch.relu(self.linear(inputs))


class Expert(Layer):
    """A layer whose inputs come from all ranks, and whose outputs go back to them."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        here = all_to_all_single(torch.empty_like(inputs), inputs.contiguous())
        outputs = super().forward(here)
        return all_to_all_single(torch.empty_like(outputs), outputs.contiguous())


def sharded(layers: list[Layer], rank: int, world: int) -> Step:
    mesh = init_device_mesh("cpu", (world,))
    model = torch.nn.Sequential(*layers)
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return step_of(model)


def experts(layers: list[Layer], rank: int, world: int) -> Step:
    return step_of(torch.nn.Sequential(*layers))


def pipeline(layers: list[Layer], rank: int, world: int) -> Step:
    each = LAYERS // world
    model = torch.nn.Sequential(*layers[rank * each : (rank + 1) * each])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    stage = PipelineStage(model, rank, world, torch.device("cpu"))

    def loss_of(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return (outputs - targets).square().mean()

    schedule = ScheduleGPipe(stage, n_microbatches=MICRO_BATCHES, loss_fn=loss_of)

    def step(inputs: torch.Tensor) -> float:
        optimizer.zero_grad()
        losses: list[torch.Tensor] = []
        if rank == 0:
            schedule.step(inputs)
        elif rank == world - 1:
            schedule.step(target=inputs, losses=losses)
        else:
            schedule.step()
        optimizer.step()
        return float(sum(loss.item() for loss in losses))

    return step


KINDS: dict[str, tuple[type[Layer], Callable[[list[Layer], int, int], Step]]] = {
    "fsdp": (Layer, sharded),
    "experts": (Expert, experts),
    "pipeline": (Layer, pipeline),
}


def main() -> None:
    kind, _, rows = sys.argv[1].partition(":")
    rank = begin(sys.argv[2:])
    layer, make = KINDS[kind]
    layers: list[Any] = [layer(rank.width) for _ in range(LAYERS)]
    step = make(layers, rank.number, rank.world)

    def compute(seconds: float) -> None:
        for each in layers:
            # Every micro-batch goes through the layers.
            each.idle_s = seconds / 2 / LAYERS / (MICRO_BATCHES if kind == "pipeline" else 1)
        time.sleep(seconds / 2)

    # In a pipeline all ranks see the same data, as the first one has the inputs and the last one
    # what they are compared with.
    iterate(rank, int(rows or ROWS), 0 if kind == "pipeline" else rank.number, compute, step)


if __name__ == "__main__":
    main()
