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
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.distributed as dist

from mltcp_tools.collectives.library import How
from mltcp_tools.collectives.reducer import Reducer
from mltcp_tools.collectives.session import Endpoint

ALGORITHMS = ("gloo", "aggregated", "omnireduce", "sparse", "adaptive")
"""gloo: its ring. aggregated: all chunks at the aggregator. omnireduce: those at the aggregator
that aren't zero everywhere. sparse: blocks that aren't zero everywhere, by Gloo. adaptive: along
trees for the links as measured."""

BLOCK = 352  # values that are zero together where density is below 1: a packet's at 1500 bytes


@dataclass(frozen=True)
class Plan:
    """What to compare. sizes: bytes of float32 tensors. density: share of blocks with values, the
    same blocks at every rank. aggregator: HOST[:PORT] for those who need one."""

    algorithms: Sequence[str]
    sizes: Sequence[int]
    repeats: int
    density: float = 1.0
    aggregator: str | None = None
    timeout_s: float = 30.0


@dataclass(frozen=True)
class Row:
    """One algorithm at one size.

    seconds: median of `times`, each the slowest rank's. algorithm_rate, bus_rate: bit/s; the latter
    times 2(n-1)/n, what a ring needs of each link. speedup: median over the repetitions of gloo's
    time by this one's, None without gloo. speedup_total: all of gloo's time by all of this one's,
    which counts what is slow now and then. correct: as near to the sum in float64 as float32 and
    quantisation allow, at every rank. identical: the same bits at all ranks. bound_s: seconds that
    none of its kind beats on these links, headers left out; None where their rates aren't known.
    """

    bytes: int
    algorithm: str
    ranks: int
    seconds: float
    times: list[float]
    algorithm_rate: float
    bus_rate: float
    speedup: float | None
    correct: bool
    identical: bool
    speedup_total: float | None = None
    bound_s: float | None = None


def make_tensor(rank: int, size: int, density: float) -> torch.Tensor:
    """What a rank has: `size` bytes of float32, the same in every call."""
    count = size // 4
    tensor = torch.randn(count, generator=torch.Generator().manual_seed(rank))
    if density < 1:
        blocks = -(-count // BLOCK)
        order = torch.randperm(blocks, generator=torch.Generator().manual_seed(12345))
        mask = torch.zeros(blocks)
        mask[order[: max(1, round(density * blocks))]] = 1
        tensor *= mask.repeat_interleave(BLOCK)[:count]
    return tensor


def is_right(result: torch.Tensor, size: int, world: int, density: float) -> bool:
    """Whether a sum is as near to that in float64 as float32 and quantisation allow."""
    exact, largest = torch.zeros(size // 4, dtype=torch.float64), 0.0
    for rank in range(world):
        tensor = make_tensor(rank, size, density)
        exact += tensor
        largest = max(largest, float(tensor.abs().max()))
    return bool(((result - exact).abs() <= world * largest * 2.0**-22).all())


def reducers(plan: Plan) -> dict[str, Callable[[torch.Tensor], Any]]:
    """A blocking all-reduce for each algorithm of the plan."""
    endpoint = Endpoint.parse(plan.aggregator) if plan.aggregator else None
    made: dict[str, Callable[[torch.Tensor], Any]] = {}
    for name in plan.algorithms:
        at_aggregator = name in ("aggregated", "omnireduce")
        reducer = Reducer(
            endpoint if at_aggregator else None,
            timeout_s=plan.timeout_s,
            sparse=name == "omnireduce",
            sparse_by_gloo=name == "sparse",
            adaptive=name == "adaptive",
        )
        if (at_aggregator or name == "adaptive") and reducer.why_gloo:
            raise SystemExit(f"mltcp: error: {reducer.why_gloo}")

        def reduce(tensor: torch.Tensor, reducer: Reducer = reducer) -> Any:
            return reducer.all_reduce(tensor, How.SUM).wait()

        made[name] = reduce
    return made


def run_rank(plan: Plan) -> list[Row]:
    """This rank's part; rank 0 has the rows."""
    rank, world = dist.get_rank(), dist.get_world_size()
    rows = []
    calls = reducers(plan)
    for size in plan.sizes:
        times: dict[str, list[float]] = {name: [] for name in calls}
        right, same = dict.fromkeys(calls, True), dict.fromkeys(calls, True)
        own = make_tensor(rank, size, plan.density)
        for turn in range(plan.repeats + 1):
            names = list(calls)
            names = names[turn % len(names) :] + names[: turn % len(names)]
            for name in names:
                tensor = own.clone()
                dist.barrier()
                begin = time.monotonic()
                calls[name](tensor)
                took = torch.tensor([time.monotonic() - begin], dtype=torch.float64)
                dist.all_reduce(took, dist.ReduceOp.MAX)
                if turn:  # the first is to warm up
                    times[name].append(float(took))
                else:
                    right[name] = is_right(tensor, size, world, plan.density)
                same[name] &= _same_everywhere(tensor, world)
        rows += [
            _row(name, size, world, times, _everywhere(right[name]), same[name]) for name in calls
        ]
    return rows


def _same_everywhere(tensor: torch.Tensor, world: int) -> bool:
    digests: list[Any] = [None] * world
    dist.all_gather_object(digests, hashlib.sha256(tensor.numpy().tobytes()).hexdigest())
    return len(set(digests)) == 1


def _everywhere(true: bool) -> bool:
    flag = torch.tensor([int(true)])
    dist.all_reduce(flag, dist.ReduceOp.MIN)
    return bool(flag[0])


def _row(
    name: str, size: int, world: int, times: dict[str, list[float]], right: bool, same: bool
) -> Row:
    seconds = statistics.median(times[name])
    speedup = total = None
    if "gloo" in times:
        pairs = zip(times["gloo"], times[name], strict=True)
        speedup = statistics.median(gloo / own for gloo, own in pairs)
        total = sum(times["gloo"]) / sum(times[name])
    rate = size * 8 / seconds
    bus = rate * 2 * (world - 1) / world
    return Row(size, name, world, seconds, times[name], rate, bus, speedup, right, same, total)


def main() -> None:
    """A rank: the plan is the argument, as JSON; rank 0 prints the rows as JSON."""
    plan = Plan(**json.loads(sys.argv[1]))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rows = run_rank(plan)
    if dist.get_rank() == 0:
        print(json.dumps([asdict(row) for row in rows]), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
