"""A rank of a training job: torch DDP over Gloo, as anybody would write it.

    python ddp.py RANK WORLD_SIZE ITERATIONS WIDTH IDLE_S [JITTER]

Where to meet comes from MASTER_ADDR, MASTER_PORT and GLOO_SOCKET_IFNAME. IDLE_S stands for the time
that an accelerator computes, normally distributed around it by JITTER as a share. Prints `ready`,
then per iteration its number, when it had computed and when it ended (CLOCK_MONOTONIC), and the
exact loss.
"""

from __future__ import annotations

import os
import random
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    rank, world_size, iterations, width = (int(word) for word in sys.argv[1:5])
    idle_s = float(sys.argv[5])
    jitter = float(sys.argv[6]) if len(sys.argv) > 6 else 0.0
    torch.set_num_threads(1)
    torch.manual_seed(7)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world_size))
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    model = torch.nn.Sequential(
        torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, width)
    )
    job = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(job.parameters(), lr=0.01)
    data = torch.Generator().manual_seed(rank)
    computing = random.Random(os.environ["MASTER_PORT"])  # the same for all ranks of a job
    print("ready", flush=True)
    for iteration in range(iterations):
        inputs = torch.randn(8, width, generator=data)
        time.sleep(max(0.0, computing.gauss(idle_s, jitter * idle_s)))
        optimizer.zero_grad()
        computed_s = time.monotonic()
        loss = (job(inputs) - inputs).square().mean()
        loss.backward()
        optimizer.step()
        print(iteration, computed_s, time.monotonic(), loss.item().hex(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
