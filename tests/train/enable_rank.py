# SPDX-License-Identifier: BSD-2-Clause
"""A rank that calls `enable` as it is told: enable_rank.py RANK WORLD STORE WISH.

WISH is JSON: keyword arguments of `enable`; `hook`: which the model has before; `without`: the rank
that isn't in the job, and calls nothing. Prints as JSON what was said against it, the algorithm,
the threads that go on, and the gradient after each step, of which the first rank takes two: [said,
algorithm, threads, gradients].
"""

from __future__ import annotations

import datetime
import json
import os
import sys
import threading
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

import mltcp_tools.collectives as mc
from mltcp_tools.base.errors import UsageError


def main() -> None:
    rank, world, store, wish = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    options = json.loads(wish)
    dist.init_process_group(
        "gloo",
        store=dist.FileStore(store, world),
        rank=rank,
        world_size=world,
        timeout=datetime.timedelta(seconds=100),
    )
    group, without = None, options.pop("without", None)
    if without is not None:
        group = dist.new_group([each for each in range(world) if each != without])
    if rank == without:
        leave(None)
    torch.manual_seed(3)
    model = DistributedDataParallel(torch.nn.Linear(1, 1, bias=False), process_group=group)
    hook = options.pop("hook", None)
    if hook == "own":
        model.register_comm_hook(None, allreduce_hook)
    elif hook:
        model._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
    said, algorithm = "", ""
    try:
        algorithm = mc.enable(model, **{"timeout_s": 5.0} | options).algorithm
    except UsageError as error:
        said = str(error)
    threads = [each.name for each in threading.enumerate() if each.name.startswith("mltcp")]
    gradients = []
    with model.join(divide_by_initial_world_size=False):
        for _ in range(1 + (rank == 0)):
            model.zero_grad()
            model(torch.ones(1, 1)).sum().backward()
            gradients.append(model.module.weight.grad.item())
    leave([said, algorithm, threads, gradients])


def leave(told: Any) -> NoReturn:
    """Print what was found, and end with the others; torch's threads abort some interpreters."""
    print(json.dumps(told), flush=True)
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    main()
