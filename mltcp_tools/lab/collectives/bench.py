# SPDX-License-Identifier: BSD-2-Clause
"""All-reduces compared: time, bandwidth, and whether the sums are right, as nccl-tests does.

One process per rank (MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE as torchrun sets them). The
algorithms take turns within each repetition, so that what disturbs the host disturbs all alike.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.distributed as dist

from mltcp_tools.collectives.collective import Setting
from mltcp_tools.collectives.group import Group
from mltcp_tools.collectives.library import How
from mltcp_tools.collectives.reducer import Reducer
from mltcp_tools.collectives.registry import COLLECTIVES
from mltcp_tools.collectives.session import endpoint_from_environment

BLOCK = 352  # values that are zero together where density is below 1: a packet's at 1500 bytes

WARM_UP = 2
"""Repetitions that aren't counted: after the first it is known how much of a sum is zero."""


@dataclass(frozen=True)
class BenchPlan:
    """The comparison to make. sizes: bytes of tensors; type: of their values, as torch calls it.
    densities: shares of blocks that aren't zero, the same ones at all ranks; block: their values.
    """

    algorithms: Sequence[str]
    sizes: Sequence[int]
    repeats: int
    densities: Sequence[float] = (1.0,)
    block: int = BLOCK
    type: str = "float32"
    timeout_s: float = 30.0


@dataclass(frozen=True)
class BenchRow:
    """One algorithm at one size.

    seconds: median of `times`, each the slowest rank's. algorithm_rate, bus_rate: bit/s; the latter
    times 2(n-1)/n, what a ring needs of each link. speedup: median over the repetitions of gloo's
    time by this one's, None without gloo; speedup_range: the lowest and the highest. speedup_total:
    all of gloo's time by all of this one's. correct: as near to the sum in float64 as float32 and
    quantisation allow, at every rank. identical: the same bits at all ranks. cpu_s: CPU time of a
    rank, the median of the repetitions' means; an aggregator on the same host adds to it. bound_s:
    the least seconds on these links, headers left out; most_speedup: gloo's bound by this one's;
    None where the links' rates aren't known.
    """

    bytes: int
    density: float
    algorithm: str
    ranks: int
    seconds: float
    times: list[float]
    cpu_s: float
    algorithm_rate: float
    bus_rate: float
    speedup: float | None
    speedup_range: tuple[float, float] | None
    correct: bool
    identical: bool
    speedup_total: float | None = None
    bound_s: float | None = None
    most_speedup: float | None = None


def make_tensor(
    rank: int,
    size: int,
    density: float,
    block: int = BLOCK,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Return a rank's tensor of `size` bytes, the same in every call (see Plan)."""
    count = size // dtype.itemsize
    tensor = torch.randn(count, generator=torch.Generator().manual_seed(rank)).to(dtype)
    if density < 1:
        blocks = -(-count // block)
        order = torch.randperm(blocks, generator=torch.Generator().manual_seed(12345))
        kept = torch.zeros(blocks, dtype=torch.bool)
        kept[order[: max(1, round(density * blocks))]] = True
        tensor[~kept.repeat_interleave(block)[:count]] = 0
    return tensor


def is_right(result: torch.Tensor, tensors: Iterable[torch.Tensor], world: int) -> bool:
    """Return whether a sum of all ranks' tensors is as near to that in float64 as quantisation
    allows, and its type: Gloo rounds to a short one at each rank.
    """
    exact, largest = torch.zeros(result.numel(), dtype=torch.float64), 0.0
    for tensor in tensors:
        exact += tensor
        largest = max(largest, float(tensor.abs().max()))
    step = 2.0**-22
    if result.dtype.itemsize == 2:
        step = world * torch.finfo(result.dtype).eps
    return bool(((result - exact).abs() <= world * largest * step).all())


def reducers(plan: BenchPlan) -> dict[str, Callable[[torch.Tensor], Any]]:
    """A blocking all-reduce for each algorithm of the plan."""
    endpoint = endpoint_from_environment()
    made: dict[str, Callable[[torch.Tensor], Any]] = {}
    for name in plan.algorithms:
        group = Group(None, 2 * plan.timeout_s + 30)
        reducer = Reducer(COLLECTIVES[name], Setting(group, plan.timeout_s, endpoint))
        if reducer.why_gloo:
            raise SystemExit(f"mltcp: error: {reducer.why_gloo}")

        def reduce(tensor: torch.Tensor, reducer: Reducer = reducer) -> Any:
            return reducer.all_reduce(tensor, How.SUM).wait()

        made[name] = reduce
    return made


def run_rank(plan: BenchPlan) -> list[BenchRow]:
    """This rank's part; rank 0 has the rows."""
    calls = reducers(plan)
    return [
        row
        for size in plan.sizes
        for density in plan.densities
        for row in _rows(plan, calls, size, density)
    ]


def _rows(
    plan: BenchPlan, calls: dict[str, Callable[[torch.Tensor], Any]], size: int, density: float
) -> list[BenchRow]:
    """One for each algorithm, which take turns in each repetition."""
    rank, world = dist.get_rank(), dist.get_world_size()
    times: dict[str, list[float]] = {name: [] for name in calls}
    cpu: dict[str, list[float]] = {name: [] for name in calls}
    right, same = dict.fromkeys(calls, True), dict.fromkeys(calls, True)

    def tensor_of(each: int) -> torch.Tensor:
        return make_tensor(each, size, density, plan.block, getattr(torch, plan.type))

    own = tensor_of(rank)
    for turn in range(-WARM_UP, plan.repeats):
        names = list(calls)
        names = names[turn % len(names) :] + names[: turn % len(names)]
        for name in names:
            tensor = own.clone()
            dist.barrier()
            cpu_begin, begin = time.process_time(), time.monotonic()
            calls[name](tensor)
            took = torch.tensor([time.monotonic() - begin], dtype=torch.float64)
            used = torch.tensor([time.process_time() - cpu_begin], dtype=torch.float64)
            dist.all_reduce(took, dist.ReduceOp.MAX)
            dist.all_reduce(used)
            if turn >= 0:
                times[name].append(float(took))
                cpu[name].append(float(used) / world)
            if turn == -1:
                right[name] = _everywhere(is_right(tensor, map(tensor_of, range(world)), world))
            same[name] &= _same_everywhere(tensor, world)
    return [_row(name, size, density, times, cpu[name], right[name], same[name]) for name in calls]


def _same_everywhere(tensor: torch.Tensor, world: int) -> bool:
    digests: list[Any] = [None] * world
    dist.all_gather_object(
        digests, hashlib.sha256(tensor.view(torch.uint8).numpy().tobytes()).hexdigest()
    )
    return len(set(digests)) == 1


def _everywhere(true: bool) -> bool:
    flag = torch.tensor([int(true)])
    dist.all_reduce(flag, dist.ReduceOp.MIN)
    return bool(flag[0])


def _row(
    name: str,
    size: int,
    density: float,
    times: dict[str, list[float]],
    cpu: list[float],
    right: bool,
    same: bool,
) -> BenchRow:
    world = dist.get_world_size()
    seconds = statistics.median(times[name])
    rate = size * 8 / seconds
    total = sum(times["gloo"]) / sum(times[name]) if "gloo" in times else None
    return BenchRow(
        bytes=size,
        density=density,
        algorithm=name,
        ranks=world,
        seconds=seconds,
        times=times[name],
        cpu_s=statistics.median(cpu),
        algorithm_rate=rate,
        bus_rate=rate * 2 * (world - 1) / world,
        speedup=_gain(times, "gloo", name),
        speedup_range=_range(times, name),
        correct=right,
        identical=same,
        speedup_total=total,
    )


def _gain(times: dict[str, list[float]], base: str, name: str) -> float | None:
    """Median over the repetitions of one algorithm's time by another's; None without the first."""
    if base not in times:
        return None
    return statistics.median(a / b for a, b in zip(times[base], times[name], strict=True))


def _range(times: dict[str, list[float]], name: str) -> tuple[float, float] | None:
    """Of gloo's time by an algorithm's, over the repetitions."""
    if "gloo" not in times:
        return None
    gains = [a / b for a, b in zip(times["gloo"], times[name], strict=True)]
    return min(gains), max(gains)


def main() -> None:
    """A rank: the plan is the argument, as JSON; rank 0 prints the rows as JSON."""
    plan = BenchPlan(**json.loads(sys.argv[1]))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rows = run_rank(plan)
    if dist.get_rank() == 0:
        print(json.dumps([asdict(row) for row in rows]), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
