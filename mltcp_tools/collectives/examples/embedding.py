# SPDX-License-Identifier: BSD-2-Clause
"""A recommender with a large embedding whose gradients are sparse, by DDP.

torchrun --nproc-per-node 2 embedding.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import mltcp_tools.collectives as mc

STEPS, BATCH, ITEMS, WIDTH, BASKET = 20, 64, 20_000, 16, 8


class Recommender(nn.Module):  # type: ignore[misc]
    """The mean of a basket's items, and a layer upon it."""

    def __init__(self) -> None:
        super().__init__()
        self.items = nn.EmbeddingBag(ITEMS, WIDTH, mode="mean", sparse=True)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, baskets: torch.Tensor) -> torch.Tensor:
        """Scores of the two classes."""
        scores: torch.Tensor = self.head(self.items(baskets))
        return scores


def main() -> None:
    """Train, and say the loss."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(Recommender())
    mc.enable(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=5.0)
    generator = torch.Generator().manual_seed(1 + dist.get_rank())
    for step in range(STEPS):
        labels = torch.randint(2, (BATCH,), generator=generator)
        # Few items are in most baskets, and which these are tells the class.
        common = torch.randint(50, (BATCH, BASKET), generator=generator)
        baskets = (common * 2 + labels.unsqueeze(1)) * (ITEMS // 100)
        loss = nn.functional.cross_entropy(model(baskets), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
    print(f"parameters {sum(each.double().sum().item() for each in model.parameters()):.9f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
