"""A rank of a training job of another shape than DDP's, over Gloo, as anybody would write it.

    python shapes.py KIND RANK WORLD_SIZE ITERATIONS WIDTH IDLE_S [JITTER]

KIND: `fsdp` (fully_shard), `pipeline` (torch.distributed.pipelining, GPipe) or `experts` (an
all-to-all in front of each expert and behind it, differentiated through). The rest, and what is
printed, is ddp.py's. Half of IDLE_S passes before the iteration, the other half in the layers, so
that communication overlaps computing where the framework lets it.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
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


def of_module(model: torch.nn.Module) -> Step:
    """A step of training on one module."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(inputs: torch.Tensor) -> float:
        optimizer.zero_grad()
        loss = (model(inputs) - inputs).square().mean()
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


def sharded(layers: list[Layer], rank: int, world: int) -> Step:
    mesh = init_device_mesh("cpu", (world,))
    model = torch.nn.Sequential(*layers)
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return of_module(model)


def experts(layers: list[Layer], rank: int, world: int) -> Step:
    return of_module(torch.nn.Sequential(*layers))


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
    kind = sys.argv[1]
    rank, world, iterations, width = (int(word) for word in sys.argv[2:6])
    idle_s = float(sys.argv[6])
    jitter = float(sys.argv[7]) if len(sys.argv) > 7 else 0.0
    torch.set_num_threads(1)
    torch.manual_seed(7)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    layer, make = KINDS[kind]
    layers: list[Any] = [layer(width) for _ in range(LAYERS)]
    step = make(layers, rank, world)
    # In a pipeline all ranks see the same data, as the first one has the inputs and the last one
    # what they are compared with.
    data = torch.Generator().manual_seed(0 if kind == "pipeline" else rank)
    computing = random.Random(os.environ["MASTER_PORT"])  # the same for all ranks of a job
    print("ready", flush=True)
    for iteration in range(iterations):
        inputs = torch.randn(ROWS, width, generator=data)
        compute_s = max(0.0, computing.gauss(idle_s, jitter * idle_s))
        for each in layers:
            # Every micro-batch goes through the layers.
            each.idle_s = compute_s / 2 / LAYERS / (MICRO_BATCHES if kind == "pipeline" else 1)
        time.sleep(compute_s / 2)
        computed_s = time.monotonic()
        loss = step(inputs)
        print(iteration, computed_s, time.monotonic(), loss.hex(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
