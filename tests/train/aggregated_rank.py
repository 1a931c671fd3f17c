# SPDX-License-Identifier: BSD-2-Clause
"""A rank of a small training whose gradients are averaged as the arguments say.

aggregated_rank.py RANK WORLD MASTER INTERFACE ALGORITHM STEPS: prints a line of JSON per
step (loss, checksum of the gradients, algorithm), and one at the end with all parameters' hash.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import mltcp_tools.collectives as mc


def make_model() -> torch.nn.Module:
    torch.manual_seed(7)
    width = int(os.environ.get("WIDTH", "256"))
    return torch.nn.Sequential(
        torch.nn.Linear(64, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, 10),
    )


class Recommender(torch.nn.Module):
    """Sums of rows of a table, whose gradients are sparse, before the model above."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(8)
        self.table = torch.nn.EmbeddingBag(1000, 64, mode="sum", sparse=True)
        self.head = make_model()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        rows = (inputs[:, :8].abs() * 500).long() % 1000
        return self.head(inputs + 0.1 * self.table(rows))


def without_every_second_block(gradient: torch.Tensor) -> torch.Tensor:
    """Of 64 values, less than a packet has."""
    places = torch.arange(gradient.numel()).view_as(gradient)
    return gradient * (places // 64 % 2)


def digest(tensors: list[torch.Tensor]) -> str:
    state = hashlib.sha256()
    for tensor in tensors:
        state.update(tensor.detach().contiguous().view(torch.uint8).numpy().tobytes())
    return state.hexdigest()[:16]


def main() -> None:
    rank, world, master, interface, algorithm, steps = sys.argv[1:7]
    aggregator = os.environ["AGGREGATOR"]
    torch.set_num_threads(1)
    os.environ |= {
        "MASTER_ADDR": master,
        "MASTER_PORT": "29511",
        "GLOO_SOCKET_IFNAME": interface,
    }
    dist.init_process_group("gloo", rank=int(rank), world_size=int(world))
    logging.basicConfig(level=logging.INFO)
    dtype = getattr(torch, os.environ.get("DTYPE", "float32"))
    network = Recommender() if "ROWS" in os.environ else make_model()
    if "BLOCKS" in os.environ:
        for each in network.parameters():
            each.register_hook(without_every_second_block)
    model = DistributedDataParallel(network.to(dtype), bucket_cap_mb=0.2)
    options: dict[str, Any] = {"top_k": float(os.environ["TOP_K"])} if "TOP_K" in os.environ else {}
    if aggregator and algorithm in ("auto", "aggregated"):
        options["aggregator"] = aggregator
    state = mc.enable(model, algorithm, timeout_s=5.0, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = torch.Generator().manual_seed(100 + int(rank))
    teacher = torch.randn(64, 10, generator=torch.Generator().manual_seed(3))
    for step in range(int(steps)):
        inputs = torch.randn(64, 64, generator=data)
        loss = torch.nn.functional.cross_entropy(
            model(inputs.to(dtype)), (inputs @ teacher).argmax(1)
        )
        optimizer.zero_grad()
        if os.environ.get("FAULT") == f"{rank}:{step}":
            os._exit(9)
        loss.backward()
        optimizer.step()
        gradients = digest([each.grad.to_dense() for each in model.parameters()])
        line = {"step": step, "loss": loss.item(), "gradients": gradients}
        line |= {"algorithm": state.algorithm}
        print(json.dumps(line), flush=True)
        time.sleep(float(os.environ.get("PAUSE", "0")))
    print(json.dumps({"parameters": digest(list(model.parameters()))}), flush=True)
    state.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
