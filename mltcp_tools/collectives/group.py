# SPDX-License-Identifier: BSD-2-Clause
"""The ranks that reduce together, as Gloo knows them, and the words and tensors it moves."""

from __future__ import annotations

import datetime
import json
import os
import socket
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from mltcp_tools.base.errors import UsageError
from mltcp_tools.collectives.agreement import Agreement
from mltcp_tools.collectives.library import How, Kind

KINDS = {
    torch.float32: Kind.FLOAT32,
    torch.float16: Kind.FLOAT16,
    torch.bfloat16: Kind.BFLOAT16,
    torch.int32: Kind.INT32,
}


class Group:
    """A Gloo group of our own: its collectives are one thread's alone, in one order on every rank.

    group: the process group whose ranks it has, None for all. timeout_s: after which a collective
    fails. gloo: what torch.distributed calls take as their group. agreement: what comes before
    each use while reductions may fail.
    """

    def __init__(self, group: Any, timeout_s: float) -> None:
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)
        members = None if group is None else dist.get_process_group_ranks(group)
        self._members: Sequence[int] = members or range(self.world)
        self.gloo = dist.new_group(
            members,
            datetime.timedelta(seconds=timeout_s),
            backend="gloo",
            # Ranks outside of a sub-group don't call this.
            use_local_synchronization=self.world < dist.get_world_size(),
        )
        self.agreement = Agreement(self._exchange, self.tell)

    def _exchange(self, *numbers: int) -> list[Any]:
        """Return the numbers of each rank."""
        told = [torch.zeros(len(numbers), dtype=torch.int64) for _ in range(self.world)]
        dist.all_gather(told, torch.tensor(numbers), group=self.gloo)
        return [tuple(each.tolist()) for each in told]

    def tell(self, what: Any) -> list[Any]:
        """Return all ranks' messages in JSON, in order. RuntimeError where Gloo fails."""
        text = json.dumps(what).encode()
        room = max(size for (size,) in self._exchange(len(text)))
        mine = torch.frombuffer(bytearray(text.ljust(room)), dtype=torch.uint8)
        told = [torch.empty_like(mine) for _ in range(self.world)]
        dist.all_gather(told, mine, group=self.gloo)
        return [json.loads(bytes(each.numpy())) for each in told]

    def of_first(self, what: Any) -> Any:
        """Return the message of the first rank."""
        return self.tell(what)[0]

    def give(self, tensor: torch.Tensor, giver: int) -> None:
        """The tensor of rank `giver`, into everybody's."""
        dist.broadcast(tensor, self._members[giver], group=self.gloo)

    def all_reduce(self, tensor: torch.Tensor) -> None:
        """Sum a tensor in place. RuntimeError where Gloo fails."""
        dist.all_reduce(tensor, group=self.gloo)

    def unite(self, marks: torch.Tensor) -> None:
        """Mark with 1, in place, what is marked at any rank."""
        dist.all_reduce(marks, dist.ReduceOp.MAX, group=self.gloo)

    def own_address(self) -> str:
        """The address from which this host reaches the job's master, or by which it is reached."""
        master = os.environ.get("MASTER_ADDR", "127.0.0.1")
        if dist.get_rank() == 0:
            return master
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((master, 9))
            address: str = probe.getsockname()[0]
        return address


def kind_of(tensor: torch.Tensor, how: How) -> Kind:
    """The kind of the tensor's elements; UsageError where they can't be reduced that way."""
    kind = KINDS.get(tensor.dtype)
    if kind is None:
        names = ", ".join(str(each).removeprefix("torch.") for each in KINDS)
        raise UsageError(
            f"Tensors of {str(tensor.dtype).removeprefix('torch.')} can't be reduced here, only"
            f" {names}."
        )
    if kind is Kind.INT32 and how is How.AVERAGE:
        raise UsageError("Integers can't be averaged; sum them and divide.")
    if tensor.device.type != "cpu" or not tensor.is_contiguous():
        raise UsageError("Only contiguous tensors in the host's memory can be reduced here.")
    return kind
