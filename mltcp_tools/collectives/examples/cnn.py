# SPDX-License-Identifier: BSD-2-Clause
"""A convolutional network for digits of 28 by 28 pixels (drawn at random), by DDP.

torchrun --nproc-per-node 2 cnn.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import mltcp_tools.collectives as mc

STEPS, BATCH = 20, 32


def digits(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch of images, each a bright bar whose row tells its class."""
    labels = torch.randint(10, (BATCH,), generator=generator)
    images = 0.3 * torch.randn(BATCH, 1, 28, 28, generator=generator)
    for image, label in zip(images, labels, strict=True):
        image[0, 2 * int(label) : 2 * int(label) + 3] += 1
    return images, labels


def main() -> None:
    """Train, and say the loss."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 6 * 6, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )
    model = DistributedDataParallel(network)
    mc.enable(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(1 + dist.get_rank())
    for step in range(STEPS):
        images, labels = digits(generator)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
    print(f"parameters {sum(each.double().sum().item() for each in model.parameters()):.9f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
