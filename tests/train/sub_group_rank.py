# SPDX-License-Identifier: BSD-2-Clause
"""A rank of a training of all ranks but the first: sub_group_rank.py RANK WORLD STORE ALGORITHM.

Prints the algorithm and the hash of the model after some steps, as JSON; the first rank, null.
"""

from __future__ import annotations

import hashlib
import json
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import mltcp_tools.collectives as mc

STEPS = 3


def main() -> None:
    rank, world, store, algorithm = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        store=dist.FileStore(store, int(world)),
        rank=int(rank),
        world_size=int(world),
    )
    group = dist.new_group(list(range(1, int(world))))
    found = None
    if int(rank):
        torch.manual_seed(3)
        model = DistributedDataParallel(torch.nn.Linear(64, 64), process_group=group)
        state = mc.enable(model, algorithm, timeout_s=20.0)
        data = torch.Generator().manual_seed(int(rank))
        for _ in range(STEPS):
            model(torch.randn(8, 64, generator=data)).square().sum().backward()
            with torch.no_grad():
                for each in model.parameters():
                    each -= 1e-3 * each.grad
                    each.grad = None
        values = torch.cat([each.detach().view(-1) for each in model.parameters()]).numpy()
        found = [state.algorithm, hashlib.sha256(values.tobytes()).hexdigest()]
        state.close()
    dist.barrier()
    print(json.dumps(found), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
