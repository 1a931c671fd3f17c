# SPDX-License-Identifier: BSD-2-Clause
"""A rank that trains with each of DDP's options, without and with gradients at the aggregator.

    ddp_options_rank.py RANK WORLD MASTER INTERFACE AGGREGATOR

Prints a line of JSON for each option: its name, the largest differences from plain DDP of the model
with the agent's hook and of the one at the aggregator, the way of its gradients, and its hash.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import mltcp_tools.collectives as mc
from mltcp_tools import hooks

STEPS = 6
Enable = Callable[[DistributedDataParallel], None]


class Network(torch.nn.Module):
    """Two branches, of which `forward` may leave one out, and a head."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.first, self.second = torch.nn.Linear(64, 128), torch.nn.Linear(64, 128)
        self.head = torch.nn.Linear(128, 10)

    def forward(self, inputs: torch.Tensor, branches: int = 3) -> torch.Tensor:
        hidden = self.first(inputs) if branches & 1 else 0
        hidden = hidden + self.second(inputs) if branches & 2 else hidden
        return self.head(torch.relu(hidden))


def batches(count: int = STEPS) -> Iterator[torch.Tensor]:
    draw = torch.Generator().manual_seed(100 + dist.get_rank())
    return (torch.randn(16, 64, generator=draw) for _ in range(count))


def train(
    enable: Enable,
    forward: Callable[[Any, torch.Tensor, int], torch.Tensor] = lambda model, batch, step: model(
        batch
    ),
    **options: Any,
) -> list[torch.nn.Module]:
    model = DistributedDataParallel(Network(), **{"bucket_cap_mb": 0.02} | options)
    enable(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, batch in enumerate(batches()):
        optimizer.zero_grad()
        forward(model, batch, step).square().mean().backward()
        optimizer.step()
    return [model.module]


def with_amp(model: Any, batch: torch.Tensor, step: int) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return model(batch)


def with_accumulation(model: Any, batch: torch.Tensor, step: int) -> torch.Tensor:
    with model.no_sync():
        model(batch[:8]).square().mean().backward()
    return model(batch[8:])


def uneven(enable: Enable) -> list[torch.nn.Module]:
    """The first rank has more batches than the others."""
    model = DistributedDataParallel(Network(), bucket_cap_mb=0.02)
    enable(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with model.join():
        for batch in batches(STEPS if dist.get_rank() == 0 else STEPS - 2):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
    return [model.module]


def compiled(enable: Enable) -> list[torch.nn.Module]:
    """By dynamo, which cuts the graph at DDP's buckets and takes none below a megabyte."""
    return train(
        enable,
        lambda model, batch, step: torch.compile(model, backend="eager")(batch),
        bucket_cap_mb=1,
    )


def two_models(enable: Enable) -> list[torch.nn.Module]:
    """One of them learns from the other's output, as in adversarial training."""
    models = [DistributedDataParallel(Network(), bucket_cap_mb=0.02) for _ in range(2)]
    for model in models:
        enable(model)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    for batch in batches():
        target = models[1](batch)
        losses = [(models[0](batch) - 1 - target.detach()).square(), target.square()]
        for loss, optimizer in zip(losses, optimizers, strict=True):
            optimizer.zero_grad()
            loss.mean().backward()
            optimizer.step()
    return [model.module for model in models]


OPTIONS: dict[str, Callable[[Enable], list[torch.nn.Module]]] = {
    "plain": train,
    "amp": lambda enable: train(enable, with_amp),
    "static_graph": lambda enable: train(enable, static_graph=True),
    "find_unused_parameters": lambda enable: train(
        enable,
        lambda model, batch, step: model(batch, 1 + (step + dist.get_rank()) % 2),
        find_unused_parameters=True,
    ),
    "no_sync": lambda enable: train(enable, with_accumulation),
    "bucket_views": lambda enable: train(enable, gradient_as_bucket_view=True),
    "compile": compiled,
    "join": uneven,
    "two_models": two_models,
}


def nothing(model: DistributedDataParallel) -> None:
    """Leave it as it is."""


def watch(model: DistributedDataParallel) -> None:
    model.register_comm_hook(*hooks.ddp_hook(hooks.Job("options")))


def values_of(models: list[torch.nn.Module]) -> torch.Tensor:
    return torch.cat([each.detach().view(-1) for model in models for each in model.parameters()])


def main() -> None:
    rank, world, master, interface, aggregator = sys.argv[1:]
    os.environ |= {
        "MASTER_ADDR": master,
        "MASTER_PORT": "29514",
        "GLOO_SOCKET_IFNAME": interface,
    }
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=int(rank), world_size=int(world))
    for name, option in OPTIONS.items():
        states: list[Any] = []

        def enable(model: DistributedDataParallel, states: list[Any] = states) -> None:
            states.append(mc.enable(model, "aggregated", aggregator=aggregator, timeout_s=10.0))

        plain, watched, ours = (values_of(option(each)) for each in (nothing, watch, enable))
        ways = sorted({state.algorithm for state in states})
        for state in states:
            state.close()
        differences = [float((each - plain).abs().max()) for each in (watched, ours)]
        digest = hashlib.sha256(ours.numpy().tobytes()).hexdigest()
        print(json.dumps([name, differences, ways, digest]), flush=True)
    dist.barrier()
    print("done", flush=True)
    os._exit(0)  # torch's own threads abort some interpreters that end


if __name__ == "__main__":
    main()
