"""The training job, run by torchrun: data parallel over Gloo, from its checkpoint on.

Whenever a member joins or leaves, torchrun starts all workers anew; they go on at the step of the
last checkpoint, which the first worker writes whole after every few steps. Each worker adds its
BATCH to a step's, and Adam's learning rate grows with the root of that (Malladi et al. 2022).
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

EVERY = 5
"""Steps between checkpoints."""
BATCH, RATE = 256, 1e-3
"""Samples of each worker, and the learning rate of one worker alone."""


def main(folder: Path) -> None:
    """Train until killed; steps go to training.jsonl."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    layers = (torch.nn.Linear(128, 256), torch.nn.Tanh(), torch.nn.Linear(256, 16))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers))
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE)
    checkpoint, step = folder / "checkpoint.pt", 0
    if checkpoint.is_file():
        state = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        optimiser.load_state_dict(state["optimiser"])
        step = state["step"]
    # The checkpoint's rate is that of as many workers as there were.
    rate = RATE * world**0.5
    for group in optimiser.param_groups:
        group["lr"] = rate
    target = torch.randn(128, 16, generator=torch.Generator().manual_seed(1))
    log = (folder / "training.jsonl").open("a", buffering=1) if rank == 0 else None
    while True:
        draw = torch.Generator().manual_seed(step * 64 + rank)
        inputs = torch.randn(BATCH, 128, generator=draw)
        loss = torch.nn.functional.mse_loss(model(inputs), torch.tanh(inputs @ target / 8))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        step += 1
        if log is not None:
            line = {"time": time.time(), "step": step, "world": world, "loss": float(loss)}
            line |= {"batch": BATCH * world, "rate": rate}
            log.write(json.dumps(line) + "\n")
            if step % EVERY == 0:
                part = checkpoint.with_suffix(".part")
                state = {"model": model.state_dict(), "optimiser": optimiser.state_dict()}
                torch.save(state | {"step": step}, part)
                os.replace(part, checkpoint)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
