# SPDX-License-Identifier: BSD-2-Clause
"""One rank of a DDP training over Gloo, without and then with the hook; says what it lost.

Arguments: rank, port of the rendezvous. Prints the losses of both, a JSON array each.
"""

from __future__ import annotations

import json
import sys

import torch
from torch import distributed, nn

from mltcp_tools import hooks

STEPS = 6
WORLD = 2


def train(hooked: bool) -> list[float]:
    torch.manual_seed(1)
    layers = nn.Sequential(nn.Linear(256, 1024), nn.Linear(1024, 256))
    model = nn.parallel.DistributedDataParallel(layers, bucket_cap_mb=0.5)
    if hooked:
        model.register_comm_hook(*hooks.ddp_hook(hooks.Job("ddp")))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.randn(8, 256)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model(batch).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main() -> None:
    rank, port = int(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORLD
    )
    for hooked in (False, True):
        print(json.dumps(train(hooked)), flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
