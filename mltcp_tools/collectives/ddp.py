# SPDX-License-Identifier: BSD-2-Clause
"""DistributedDataParallel with gradients averaged by a Reducer: one line in a training script."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from mltcp_tools.base.errors import UsageError
from mltcp_tools.collectives.adaptive.collective import Adaptive
from mltcp_tools.collectives.aggregated import Aggregated
from mltcp_tools.collectives.auto import LEAST_RANKS, Auto
from mltcp_tools.collectives.collective import Collective, Setting
from mltcp_tools.collectives.gloo import Gloo
from mltcp_tools.collectives.group import KINDS, Group
from mltcp_tools.collectives.library import How
from mltcp_tools.collectives.reducer import Reducer
from mltcp_tools.collectives.registry import AUTO, COLLECTIVES
from mltcp_tools.collectives.session import Endpoint, SessionError, endpoint_from_environment
from mltcp_tools.collectives.staging import Staging
from mltcp_tools.hooks import DdpState, Job

TREES_FROM_BYTES, TREES_MOST_RANKS = 500_000, 16
"""Float32 gradients from which `auto` measures the links for trees, and the ranks up to which it
does: each rank sends 1.2 MB to each other one, and a plan for 16 takes a second."""

_LONGEST_S = 86_400

_KEPT = "they keep the job's own way"

Hook = Callable[[Any, Any], torch.futures.Future[torch.Tensor]]


class State:
    """State that DDP hands to the hook: how buckets go, and what is left out of gradients.

    reducer: None where all go the job's own way. group: the job's own. auto: None where the user
    has chosen the way.
    """

    def __init__(
        self,
        reducer: Reducer | None,
        group: Any,
        job: Job,
        auto: Auto | None = None,
        top_k: BlockTopK | None = None,
    ) -> None:
        self.reducer, self.group, self.auto, self.top_k = reducer, group, auto, top_k
        self._staging: Staging | None = None
        self._told = DdpState(job)

    def begin(self, bucket: Any) -> None:
        """A bucket is handed over; the first one of a backward pass begins an iteration."""
        if self.auto and bucket.index() == 0:
            self.auto.begin()
        with contextlib.suppress(Exception):  # what goes wrong in telling must not reach training
            self._told.begin(bucket)

    def end(self) -> None:
        """The last bucket is done: tell the agent, as mltcp_tools.hooks does."""
        with contextlib.suppress(Exception):
            self._told.end()

    def takes(self, tensor: torch.Tensor) -> bool:
        """Tell whether a tensor goes our way; others keep the job's own process group."""
        if self.reducer is None or tensor.is_sparse or tensor.dtype not in KINDS:
            return False
        return self.auto is None or self.auto.takes(tensor)

    def average(self, reducer: Reducer, tensor: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
        """Average a tensor that `takes` has taken."""
        if tensor.device.type == "cpu":
            return reducer.all_reduce(tensor, How.AVERAGE)
        self._staging = self._staging or Staging(reducer, tensor.device)
        return self._staging.all_reduce(tensor, How.AVERAGE)

    @property
    def algorithm(self) -> str:
        """The name of the collective that averages the gradients now, or `own`: the job's own."""
        if self.reducer is None or (self.auto and not self.auto.ours):
            return "own"
        return self.reducer.algorithm

    def close(self) -> None:
        """Leave the job at the aggregator. Closing twice is fine."""
        if self.reducer:
            self.reducer.close()


def enable(
    model: Any,
    algorithm: str = AUTO,
    *,
    aggregator: str | None = None,
    timeout_s: float = 30.0,
    top_k: float | None = None,
    job: Job | None = None,
) -> State:
    """Let `model`, a DistributedDataParallel, average its gradients so; every rank calls it.

    algorithm: a name of registry.COLLECTIVES; SessionError if it isn't available. `auto` takes the
    aggregator, or without one trees if the measured links promise that they are faster, and three
    ranks or more: iterations alternate between that and the job's own way in trials
    (path_selection.py), and the faster way is kept. The logger `mltcp_tools.collectives` says which
    and why. aggregator: `HOST[:PORT]` (default: the environment's MLTCP_AGGREGATOR). timeout_s:
    seconds without progress, after which the collective is given up. top_k: share of the gradients'
    blocks that are sent, those with the largest norms; the rest is added to the next step's (error
    feedback). job: name under which the agent hears of iterations (default: MLTCP_JOB's).

    Sparse tensors and types that the aggregator doesn't add keep the job's own way. With `auto`
    gradients on other devices than the CPU do, too; by name these go through the host's memory
    (staging.py). Returns the hook's state; its `close` leaves the job. With nothing to try, `auto`
    registers no hook. Raises UsageError on every rank if ranks ask for different things, or if one
    of them can't do what is asked.
    """
    if not isinstance(model, DistributedDataParallel):
        raise UsageError(
            f"{type(model).__name__} isn't a DistributedDataParallel; only all-reduces of DDP are"
            " supported, not reduce-scatter and all-gather, as in FSDP."
        )
    asked = {
        "algorithm": algorithm,
        "timeout_s": timeout_s,
        "top_k": top_k,
    }
    endpoint, candidate, refusal = None, "", ""
    try:
        endpoint = _check(model, asked, aggregator)
        candidate = _candidate(model, endpoint)
    except Exception as error:  # the other ranks are told before anything waits for this one
        refusal = str(error) if isinstance(error, UsageError) else repr(error)
    candidates = _agree(model.process_group, refusal, asked, candidate)
    collective, why = _collective(algorithm), ""
    if algorithm == AUTO:
        collective, why = _chosen(candidates)
    if why and top_k is None:
        return State(None, model.process_group, job or Job(), Auto(None, why))
    # Ranks notice up to timeout_s one after the other that something failed.
    group = Group(model.process_group, 2 * timeout_s + 30)
    setting = Setting(group, timeout_s, endpoint)
    reducer = Reducer(collective, setting)
    if algorithm != AUTO and reducer.why_gloo:
        reducer.close()
        raise SessionError(reducer.why_gloo)
    if algorithm == AUTO and reducer.why_not:
        reducer.close()
        why = f"{_KEPT}: {reducer.why_not}"
        if top_k is None:
            return State(None, model.process_group, job or Job(), Auto(None, why))
        reducer = Reducer(Gloo, setting)
    auto = Auto(None if why else reducer, why) if algorithm == AUTO else None
    kept = BlockTopK(top_k) if top_k is not None else None
    state = State(reducer, model.process_group, job or Job(), auto, kept)
    model.register_comm_hook(state, _hook())
    return state


def _collective(algorithm: str) -> type[Collective]:
    names = (AUTO, *COLLECTIVES)
    if algorithm not in names:
        raise UsageError(f"There is no algorithm {algorithm!r}; take {', '.join(names)}.")
    return COLLECTIVES[Aggregated.name if algorithm == AUTO else algorithm]


def _check(model: Any, asked: dict[str, Any], aggregator: str | None) -> Endpoint | None:
    """The aggregator, where one is named and used. UsageError where this rank can't do what is
    asked.
    """
    collective = _collective(asked["algorithm"])
    there = model._get_ddp_logging_data().get("comm_hook")
    if there:
        raise UsageError(
            f"The model has the communication hook {there} already, and DDP takes one; call enable"
            " instead of registering that."
        )
    timeout_s, top_k = asked["timeout_s"], asked["top_k"]
    if not _is_within(timeout_s, _LONGEST_S):
        raise UsageError(f"timeout_s is {timeout_s!r}; it is above 0 and at most {_LONGEST_S} s.")
    if top_k is not None and not _is_within(top_k, 1):
        raise UsageError(f"top_k is {top_k!r}; it is a share, above 0 and at most 1.")
    if aggregator and not collective.at_aggregator:
        raise UsageError(f"{asked['algorithm']} uses no aggregator; leave the option out.")
    return _endpoint(aggregator) if collective.at_aggregator else None


def _is_within(number: Any, most: float) -> bool:
    return isinstance(number, int | float) and 0 < number <= most


def _candidate(model: Any, endpoint: Endpoint | None) -> str:
    """The collective that `auto` might try here; empty without any.

    Trees are for gradients that are worth the probing of the links.
    """
    if endpoint:
        return Aggregated.name
    large = [
        each.nbytes
        for each in model.parameters()
        if each.requires_grad and each.device.type == "cpu" and Adaptive.takes(each)
    ]
    return Adaptive.name if sum(large) >= TREES_FROM_BYTES else ""


def _agree(group: Any, refusal: str, asked: dict[str, Any], candidate: str) -> list[str]:
    """Compare what all ranks ask for, by the job's own group, before any rank waits for others.

    Returns the candidate of each rank. Raises UsageError on every rank where one refuses, or
    where ranks ask for different things.
    """
    told: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(told, (refusal, {} if refusal else asked, candidate), group=group)
    if refusal:
        raise UsageError(refusal)
    for rank, (other, *_) in enumerate(told):
        if other:
            raise UsageError(f"Rank {rank}: {other}")
    for name in asked:
        values = [each[name] for _, each, _ in told]
        if any(value != values[0] for value in values):
            said = ", ".join(f"{value!r} on rank {rank}" for rank, value in enumerate(values))
            raise UsageError(f"Ranks ask for different {name}: {said}.")
    found = [each for *_, each in told]
    without = _without_aggregator(found)
    if asked["algorithm"] == Aggregated.name and 0 < len(without) < len(found):
        raise UsageError(f"{_unnamed(without)}; set MLTCP_AGGREGATOR on all ranks.")
    return found


def _without_aggregator(candidates: list[str]) -> list[int]:
    return [rank for rank, each in enumerate(candidates) if each != Aggregated.name]


def _unnamed(ranks: list[int]) -> str:
    return f"No aggregator is named on rank {', '.join(map(str, ranks))}"


def _chosen(candidates: list[str]) -> tuple[type[Collective], str]:
    """The collective that `auto` tries, and the reason why it has nothing to try, if so."""
    world, without = len(candidates), _without_aggregator(candidates)
    if world < LEAST_RANKS:
        return Gloo, f"with two ranks no other way sends less, so {_KEPT}"
    if not without:
        return Aggregated, ""
    if len(without) < world:
        return Gloo, f"{_unnamed(without)}, so {_KEPT}"
    if set(candidates) == {Adaptive.name} and world <= TREES_MOST_RANKS:
        return Adaptive, ""
    return Gloo, f"no aggregator is named, so {_KEPT}"


def _endpoint(named: str | None) -> Endpoint | None:
    if named is None:
        return endpoint_from_environment()
    return Endpoint.parse(named, os.environ.get("MLTCP_AGGREGATOR_TOKEN", ""))


def _hook() -> Hook:
    def hook(state: State, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        state.begin(bucket)
        future, is_last = _average(state, bucket), bucket.is_last()

        def done(future: torch.futures.Future[torch.Tensor]) -> torch.Tensor:
            if state.auto:
                state.auto.note_end()
            if is_last:
                state.end()
            return future.value()

        # DDP takes what a failed future of Python's holds for a tensor, but not of one after it.
        then: torch.futures.Future[torch.Tensor] = future.then(done)
        return then

    hook.__qualname__ = "mc.enable"  # in refusals of another hook
    hook.__annotations__.clear()  # DDP takes no other than its own types
    return hook


def _average(state: State, bucket: Any) -> torch.futures.Future[torch.Tensor]:
    tensor, reducer, number = bucket.buffer(), state.reducer, bucket.index()
    if reducer and state.top_k and not tensor.is_sparse:
        state.top_k.apply(number, tensor, reducer.block(tensor))
    if reducer is None or not state.takes(tensor):
        future: torch.futures.Future[torch.Tensor] = allreduce_hook(state.group, bucket)
        return future
    return state.average(reducer, tensor)


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
        sent = gradient.new_zeros(blocks, 1)
        sent[torch.topk(norms, kept).indices] = 1
        whole = (padded * sent).view(-1)[:size]
        self._left[key] = gradient - whole
        gradient.copy_(whole)
