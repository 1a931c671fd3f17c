# SPDX-License-Identifier: BSD-2-Clause
"""A training by DDP with the line that has gradients averaged by MLTCP's collectives.

torchrun --nproc-per-node 3 example.py

The model learns the next token of counting sequences. Each rank draws its own ones and prints the
loss of each step. MLTCP_AGGREGATOR names an aggregator, if there is one.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import mltcp_tools.collectives as mc

STEPS, BATCH, TOKENS, WIDTH = 20, 256, 32, 256


def main() -> None:
    """Train, and say the loss."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    layers = nn.Embedding(TOKENS, WIDTH), nn.Linear(WIDTH, WIDTH), nn.ReLU()
    model = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(WIDTH, TOKENS)))
    mc.enable(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(1 + dist.get_rank())
    for step in range(STEPS):
        tokens = torch.randint(TOKENS, (BATCH,), generator=generator)
        loss = nn.functional.cross_entropy(model(tokens), (tokens + 1) % TOKENS)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
    print(f"parameters {sum(each.double().sum().item() for each in model.parameters()):.9f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
