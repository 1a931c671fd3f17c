"""DistributedDataParallel with gradients averaged by a Reducer: one line in a training script."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from mltcp_tools.collectives import ALGORITHMS
from mltcp_tools.collectives.group import KINDS, CollectiveError, sentence_of
from mltcp_tools.collectives.library import How
from mltcp_tools.collectives.natural import Natural
from mltcp_tools.collectives.reducer import Reducer
from mltcp_tools.collectives.session import Endpoint, SessionError, endpoint_from_environment
from mltcp_tools.errors import UsageError
from mltcp_tools.hooks import DdpState, Job

NATURAL = ("low", "all")
"""Which gradients are sent as powers of two."""

Hook = Callable[[Any, Any], torch.futures.Future[torch.Tensor]]


class State:
    """What DDP hands to the hook: the reducer, and what is left out of gradients."""

    def __init__(
        self, reducer: Reducer, top_k: BlockTopK | None, natural: str | None, job: Job
    ) -> None:
        self.reducer, self.top_k, self._which = reducer, top_k, natural
        self.natural = Natural(reducer.group.gloo, reducer.rank, reducer.world)
        self._told = DdpState(job)

    def begin(self, bucket: Any) -> None:
        """A bucket is handed over; the first one of a backward pass begins an iteration."""
        if bucket.index() == 0:
            self.reducer.begin_iteration()
        with contextlib.suppress(Exception):  # what goes wrong in telling must not reach training
            self._told.begin(bucket)

    def end(self) -> None:
        """The last bucket is done: tell the agent, as mltcp_tools.hooks does."""
        self._told.end()

    def is_compressed(self, bucket: Any) -> bool:
        """Whether a bucket goes as powers of two: `low` spares the one that is needed first."""
        return self._which == "all" or (self._which == "low" and not bucket.is_last())

    @property
    def algorithm(self) -> str:
        """What averages the gradients now: `aggregated`, `adaptive` or `gloo`."""
        return self.reducer.algorithm

    @property
    def members(self) -> list[int]:
        """The ranks that take part now; without silent_s it is all of them."""
        return self.reducer.members

    def close(self) -> None:
        """Leave the job at the aggregator. Closing twice is fine."""
        self.reducer.close()


def enable(
    model: Any,
    algorithm: str = "auto",
    *,
    aggregator: str | None = None,
    timeout_s: float = 30.0,
    top_k: float | None = None,
    natural: str | None = None,
    stragglers: bool = False,
    silent_s: float | None = None,
    turns: bool = False,
    congestion_control: str | None = None,
    job: Job | None = None,
) -> State:
    """Have `model`, a DistributedDataParallel, average its gradients so; call it on every rank.

    algorithm: `auto` is the aggregator where one is named and admits the job, else Gloo;
    `aggregated` raises where that isn't so; `sparse` is Gloo for what isn't zero at some rank;
    `adaptive` is along trees chosen for the links as they are measured now and then.
    aggregator: `HOST[:PORT]`, else the environment's MLTCP_AGGREGATOR. timeout_s: seconds without
    progress, after which the aggregator is given up. top_k: share of the gradients' blocks that
    are sent, the largest; the rest is added to the next step's (error feedback). natural: `low`
    sends gradients as powers of two (natural.py, with error feedback) but for those that the next
    forward pass needs first, which are DDP's last bucket; `all` sends all so. stragglers: with
    `adaptive`, don't wait for late ranks longer than that is worth; their gradients count one step
    later. silent_s: with `stragglers`, a rank is out when its process has died, or hasn't answered
    for so many seconds, or is far behind and silent for so long, and the others go on; one that
    was silent catches up when it returns. For models without buffers that DDP would broadcast.
    turns: at the aggregator, grow the window by MLTCP's F, so jobs that meet take turns.
    congestion_control: of the connections of `adaptive`, such as mltcp; None for the host's. job:
    what the agent is told of the iterations as (`mltcp_tools.hooks`), else MLTCP_JOB's.

    Gradients in a type that the aggregator can't add go by Gloo. Returns the hook's state, whose
    `close` ends it.
    """
    if algorithm not in ALGORITHMS:
        raise UsageError(f"There is no algorithm {algorithm!r}; take {', '.join(ALGORITHMS)}.")
    if top_k is not None and not 0 < top_k <= 1:
        raise UsageError(f"top_k is {top_k}; it is a share, above 0 and at most 1.")
    if natural not in (None, *NATURAL):
        raise UsageError(f"natural is {natural!r}; take {' or '.join(NATURAL)}, or leave it out.")
    if natural and (top_k is not None or stragglers):
        raise UsageError("natural goes neither with top_k nor with stragglers.")
    if silent_s is not None and not (stragglers and silent_s > 0):
        raise UsageError("silent_s is seconds above 0, and goes with `stragglers`.")
    if turns and algorithm not in ("auto", "aggregated"):
        raise UsageError("Only an aggregator's worker has a window of ours; leave out `turns`.")
    if congestion_control and algorithm != "adaptive":
        raise UsageError("Only `adaptive` has connections of its own; set the host's default.")
    if silent_s is not None and model.broadcast_buffers and list(model.module.buffers()):
        raise UsageError(
            "DDP broadcasts this model's buffers from rank to rank, which ends with any of them;"
            " give it broadcast_buffers=False, or leave out silent_s."
        )
    if stragglers and algorithm != "adaptive":
        raise UsageError("Only `adaptive` goes on without stragglers; name that, or wait for them.")
    endpoint = None
    if algorithm in ("auto", "aggregated"):
        endpoint = _endpoint(aggregator)
    reducer = Reducer(
        endpoint,
        group=model.process_group,
        timeout_s=timeout_s,
        sparse_by_gloo=algorithm == "sparse",
        adaptive=algorithm == "adaptive",
        stragglers=stragglers,
        silent_s=silent_s,
        turns=turns,
        congestion_control=congestion_control,
    )
    if algorithm in ("aggregated", "adaptive") and reducer.why_gloo:
        reducer.close()
        raise SessionError(reducer.why_gloo)
    state = State(reducer, BlockTopK(top_k) if top_k is not None else None, natural, job or Job())
    model.register_comm_hook(state, _hook())
    return state


def _endpoint(named: str | None) -> Endpoint | None:
    if named is None:
        return endpoint_from_environment()
    return Endpoint.parse(named, os.environ.get("MLTCP_AGGREGATOR_TOKEN", ""))


def _hook() -> Hook:
    def hook(state: State, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        state.begin(bucket)
        future = _average(state, bucket)
        if bucket.is_last():
            future.add_done_callback(lambda _: state.end())
        # DDP takes what a failed future of Python's holds for a tensor, but not of one after it.
        then: torch.futures.Future[torch.Tensor] = future.then(torch.futures.Future.value)
        return then

    hook.__annotations__.clear()  # DDP takes no other than its own types
    return hook


def _average(state: State, bucket: Any) -> torch.futures.Future[torch.Tensor]:
    tensor = bucket.buffer()
    if tensor.is_sparse:
        return state.reducer.run(reduce_rows, state.reducer, tensor)
    if tensor.dtype not in KINDS or tensor.device.type != "cpu":
        return _by_torch(state, tensor)
    if tensor.is_floating_point() and state.is_compressed(bucket):
        return state.reducer.run(_by_powers, state.natural, bucket.index(), tensor)
    if state.top_k:
        state.top_k.apply(bucket.index(), tensor, state.reducer.block)
    return state.reducer.all_reduce(tensor, How.AVERAGE)


def _by_powers(natural: Natural, bucket: int, tensor: torch.Tensor) -> torch.Tensor:
    try:
        natural.average(bucket, tensor)
    except RuntimeError as error:
        raise CollectiveError(
            f"A reduction by Gloo failed, so a rank is gone or silent: {sentence_of(error)}."
        ) from None
    return tensor


def _by_torch(state: State, tensor: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    """By the reducer's Gloo, in its turn: types that the worker doesn't know."""

    def reduce() -> torch.Tensor:
        tensor.div_(state.reducer.world)
        dist.all_reduce(tensor, group=state.reducer.group.gloo)
        return tensor

    future: torch.futures.Future[torch.Tensor] = state.reducer.run(reduce)
    return future


class BlockTopK:
    """Keeps the `share` of blocks with the largest norms; what is left out is added next time.

    (Block top-k with error feedback: OmniReduce, SIGCOMM'21, section 7; Stich et al., NeurIPS'18.)
    """

    def __init__(self, share: float) -> None:
        self.share = share
        self._left: dict[tuple[int, int], torch.Tensor] = {}

    def apply(self, bucket: int, gradient: torch.Tensor, block: int) -> None:
        """Zero the blocks of a flat gradient, in place, that aren't sent this time.

        block: values of one, as many as are sent together: a block that lies across two packets
        would have both sent.
        """
        key = (bucket, gradient.numel())  # DDP makes its buckets anew after the first step
        left = self._left.get(key)
        if left is not None:
            gradient.add_(left)
        size = gradient.numel()
        blocks = -(-size // block)
        kept = max(1, round(self.share * blocks))
        padded = torch.nn.functional.pad(gradient, (0, blocks * block - size)).view(blocks, block)
        norms = padded.to(torch.float32).square().sum(dim=1)
        sent = torch.zeros(blocks, 1, dtype=gradient.dtype)
        sent[torch.topk(norms, kept).indices] = 1
        whole = (padded * sent).view(-1)[:size]
        self._left[key] = gradient - whole
        gradient.copy_(whole)


def reduce_rows(reducer: Reducer, gradient: torch.Tensor) -> torch.Tensor:
    """The average of sparse tensors of equal shapes, which are sparse in their first dimension.

    Ranks tell each other which rows they have; the union's rows are reduced as a dense tensor.
    """
    own = gradient.coalesce()
    rows = own.indices()[0]
    union = torch.unique(_all_rows(reducer, rows))
    values = torch.zeros(
        union.numel(), *gradient.shape[1:], dtype=gradient.dtype, device=gradient.device
    )
    values[torch.searchsorted(union, rows)] = own.values()
    if union.numel():
        reducer.reduce_now(values, How.AVERAGE)
    return torch.sparse_coo_tensor(
        union.unsqueeze(0), values, gradient.shape, is_coalesced=True, check_invariants=False
    )


def _all_rows(reducer: Reducer, rows: torch.Tensor) -> torch.Tensor:
    """The numbers of the rows that each rank has, one after the other."""
    counts = [torch.zeros(1, dtype=torch.int64) for _ in range(reducer.world)]
    dist.all_gather(counts, torch.tensor([rows.numel()]), group=reducer.group.gloo)
    most = max(int(count) for count in counts)
    mine = torch.zeros(most, dtype=torch.int64)
    mine[: rows.numel()] = rows
    gathered = [torch.zeros(most, dtype=torch.int64) for _ in range(reducer.world)]
    if most:
        dist.all_gather(gathered, mine, group=reducer.group.gloo)
    parts = [part[: int(count)] for part, count in zip(gathered, counts, strict=True)]
    return torch.cat(parts)
