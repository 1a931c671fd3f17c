"""All-reduces of tensors among the ranks of a process group: at an aggregator, else by Gloo.

Every rank calls the same reductions in the same order; one thread runs them one by one. Where a
reduction at the aggregator fails on some rank, all ranks meet by Gloo. A rank can be ahead of
another by one reduction at most, for it takes every rank's values to finish one. So either all
failed in the same one, which is done again by Gloo, or those ahead give the others its result.
"""

from __future__ import annotations

import atexit
import contextlib
import secrets
import socket
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from mltcp_tools.collectives.adaptive.mesh import Mesh
from mltcp_tools.collectives.adaptive.session import AdaptiveSession
from mltcp_tools.collectives.adaptive.stragglers import LeftBehind, StragglerSession
from mltcp_tools.collectives.blocks import BLOCK, Sum, reduce_union
from mltcp_tools.collectives.group import CollectiveError, Group, kind_of, sentence_of
from mltcp_tools.collectives.library import How, Kind
from mltcp_tools.collectives.session import Endpoint, Session, SessionError
from mltcp_tools.collectives.sums import Sums
from mltcp_tools.errors import UsageError

_RETRY_EVERY = 64  # reductions by Gloo between looks for the aggregator
_LOOK_S = 0.5
_OF_LINKS, _OF_PROGRESS = "links", "progress"  # what ranks say something of


class Reducer:
    """The reductions of this rank.

    endpoint: None for Gloo alone. timeout_s: without progress, after which a reduction is given up.
    sparse: at the aggregator, leave zeros out where their share was large the last time.
    sparse_by_gloo: send by Gloo only the blocks that aren't zero at some rank.
    adaptive: along trees for the measured links, instead of at an aggregator.
    stragglers: with `adaptive`, go on without late ranks' values where that is sooner.
    silent_s: with `stragglers`, seconds after which a rank that is far behind, or doesn't answer,
    is out; one whose process has died is out at once.
    turns: at the aggregator, grow the window by MLTCP's F, so that jobs that meet take turns.
    congestion_control: of the connections of `adaptive`, such as mltcp; None for the host's.
    `why_gloo` says why neither is used, None while one is.
    """

    def __init__(
        self,
        endpoint: Endpoint | None,
        *,
        group: Any = None,
        timeout_s: float = 30.0,
        sparse: bool = True,
        sparse_by_gloo: bool = False,
        adaptive: bool = False,
        stragglers: bool = False,
        silent_s: float | None = None,
        turns: bool = False,
        congestion_control: str | None = None,
    ) -> None:
        # Ranks notice up to timeout_s one after the other that something failed.
        self.group = Group(group, 2 * timeout_s + 30)
        self.rank, self.world = self.group.rank, self.group.world
        self.timeout_s, self.sparse, self.sparse_by_gloo = timeout_s, sparse, sparse_by_gloo
        self._endpoint = endpoint
        self._session: Session | None = None
        self._adaptive: AdaptiveSession | StragglerSession | None = None
        self._stragglers, self._congestion_control = stragglers, congestion_control
        self._turns, self._silent_s = turns, silent_s
        self._sums: Sums | None = None  # of the session
        self.why_gloo: str | None = "No aggregator was named."
        self._last = Sum(torch.empty(0))  # of the reduction before
        self._done = 0  # reductions since the session began
        self._results: list[torch.Tensor] = [torch.empty(0), torch.empty(0)]
        self._by_gloo = 0
        self._density: dict[tuple[str, int], float] = {}  # of blocks, by Gloo
        self._thread = ThreadPoolExecutor(1, "mltcp-reducer")
        atexit.register(self.close)
        if adaptive:
            self._connect()
        elif endpoint:
            self._join()

    @property
    def members(self) -> list[int]:
        """The ranks that take part now: all, but those that are out (silent_s)."""
        if isinstance(self._adaptive, StragglerSession):
            return list(self._adaptive.members)
        return list(range(self.world))

    @property
    def block(self) -> int:
        """Values that are sent together or not at all: a packet's, or a block's."""
        return self._session.values if self._session else BLOCK

    @property
    def late(self) -> int:
        """Reductions that this rank was late for (stragglers)."""
        return self._adaptive.late if isinstance(self._adaptive, StragglerSession) else 0

    @property
    def algorithm(self) -> str:
        """What reduces now: `aggregated`, `adaptive` or `gloo`."""
        if self._session:
            return "aggregated"
        return "adaptive" if self._adaptive else "gloo"

    # Joining, which all ranks do together.

    def _join(self) -> None:
        """Join a new job at the aggregator; all ranks do, or none."""
        assert self._endpoint is not None
        name, place, why = self.group.of_first(secrets.token_hex(16)), self.group.place(), ""
        try:
            session = Session(
                self._endpoint,
                name,
                self.rank,
                self.world,
                timeout_s=self.timeout_s,
                place=place,
            )
        except SessionError as error:
            session, why = None, str(error)
        failed = [each for each in self.group.tell(why) if each]
        if failed or session is None:
            if session:
                session.close()
            self._use_gloo(failed[0])
            return
        self._session, self.why_gloo, self._done = session, None, 0
        self._sums = Sums(session, self.world, self.timeout_s, self.sparse, self._turns)

    def _connect(self) -> None:
        """Measure the links and connect along trees; all ranks do, or none."""
        why = ""
        try:
            # A ring by Gloo ends with any of its ranks.
            ring = None if self._silent_s is not None else self._ring
            session = AdaptiveSession(self._mesh(), self._tell_of_links, ring=ring)
            self._adaptive = (
                StragglerSession(self._mesh(), session, self._silent_s)
                if self._stragglers
                else session
            )
        except SessionError as error:
            why = str(error)
        failed = [each for each in self.group.tell(why) if each]
        if failed:
            self._use_gloo(failed[0])
            return
        self.why_gloo, self._done = None, 0

    def _ring(self, array: Any) -> None:
        """Sum an array by Gloo's ring, for links where no trees are sooner."""
        try:
            self.group.all_reduce(torch.from_numpy(array), How.SUM)
        except RuntimeError as error:
            raise SessionError(f"The ring failed ({sentence_of(error)}).") from None

    def _mesh(self) -> Mesh:
        return Mesh(
            self.rank,
            self.world,
            self.group.own_address(),
            self.group.tell,
            self.timeout_s,
            self._congestion_control,
        )

    def _use_gloo(self, why: str) -> None:
        if self.why_gloo != why and self.rank == 0:
            warnings.warn(f"Gradients are averaged by Gloo: {why}", RuntimeWarning, stacklevel=2)
        self.why_gloo = why
        for session in (self._session, self._adaptive):
            if session:
                session.close()
        self._session = self._sums = self._adaptive = None

    def _look_again(self) -> None:
        """After some reductions by Gloo: join again where rank 0 finds the aggregator there."""
        self._by_gloo += 1
        if self._endpoint is None or self._by_gloo % _RETRY_EVERY:
            return
        there = torch.zeros(1, dtype=torch.int32)
        if self.rank == 0:
            address = (self._endpoint.address, self._endpoint.port)
            with contextlib.suppress(OSError), socket.create_connection(address, _LOOK_S):
                there[0] = 1
        self.group.give(there, 0)
        if there[0]:
            self._join()

    # Reducing.

    def all_reduce(self, tensor: torch.Tensor, how: How = How.SUM) -> torch.futures.Future[Any]:
        """Reduce `tensor` in place; the future has it. UsageError for a type that can't be."""
        kind = kind_of(tensor, how)
        future: torch.futures.Future[Any] = torch.futures.Future()

        def run() -> None:
            try:
                self._reduce(tensor, kind, how)
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(tensor)
                self._look()

        self._thread.submit(run)
        return future

    def begin_iteration(self) -> None:
        """What follows is of a new iteration, which is taken to be as large as the last one."""

        def begin() -> None:
            if self._sums:
                self._sums.begin_iteration()

        self._thread.submit(begin)

    def run(self, work: Any, *arguments: Any) -> torch.futures.Future[Any]:
        """Have the thread do `work`, in its turn; the future has what it returns."""
        future: torch.futures.Future[Any] = torch.futures.Future()

        def do() -> None:
            try:
                future.set_result(work(*arguments))
            except Exception as error:
                future.set_exception(error)
            else:
                self._look()

        self._thread.submit(do)
        return future

    def _look(self) -> None:
        """Between reductions, for nobody waits then."""
        if isinstance(self._adaptive, AdaptiveSession):
            self._adaptive.look()

    def reduce_now(self, tensor: torch.Tensor, how: How) -> None:
        """all_reduce, from within `run`."""
        self._reduce(tensor, kind_of(tensor, how), how)

    def _reduce(self, tensor: torch.Tensor, kind: Kind, how: How) -> None:
        if self._session is None and self._adaptive is None:
            self._reduce_by_gloo(tensor, how)
            self._look_again()
            return
        result = self._room(tensor)
        try:
            if self._adaptive and how is not How.LARGEST:
                finite = self._along_trees(self._adaptive, tensor, result, how)
            elif self._sums:
                finite, self._last = self._sums.reduce(tensor, result, kind, how)
            else:
                self._reduce_by_gloo(tensor, how)
                return
        except LeftBehind as error:
            raise CollectiveError(str(error)) from None
        except SessionError as error:
            for session in (self._session, self._adaptive):
                if session:
                    session.close()  # so that the ranks that still wait learn of it
            self._meet(tensor, how, str(error))
            return
        if not finite:
            # Every rank sees the same exponents, so all come here. What an infinity makes of the
            # others' values is Gloo's to say.
            self._meet(tensor, how, "")
            self._last = Sum(result.copy_(tensor.view(-1)))
        self._done += 1

    def _room(self, tensor: torch.Tensor) -> torch.Tensor:
        """Memory for the result, other than that of the one before, which a rank may yet need."""
        which = self._done % 2
        if self._results[which].dtype != tensor.dtype or (
            self._results[which].numel() < tensor.numel()
        ):
            self._results[which] = torch.empty(tensor.numel(), dtype=tensor.dtype)
        return self._results[which][: tensor.numel()]

    def _along_trees(
        self,
        session: AdaptiveSession | StragglerSession,
        tensor: torch.Tensor,
        result: torch.Tensor,
        how: How,
    ) -> bool:
        """Short floats are added as float32, and rounded once."""
        if self._stragglers and not tensor.is_floating_point():
            raise UsageError("Integers can't be summed up without those of late ranks.")
        short = tensor.dtype in (torch.float16, torch.bfloat16)
        flat = tensor.view(-1)
        work = flat.to(torch.float32) if short else result.copy_(flat)
        ranks = session.reduce(work.numpy())
        if how is How.AVERAGE:
            work.div_(ranks)
        if short:
            result.copy_(work)
        tensor.copy_(result.view_as(tensor))
        self._last = Sum(result)
        return True

    def _reduce_by_gloo(self, tensor: torch.Tensor, how: How) -> None:
        try:
            if how is How.AVERAGE:
                tensor.div_(self.world)
            if self.sparse_by_gloo and how is not How.LARGEST:
                name = (str(tensor.dtype), tensor.numel())
                last = self._density.get(name, 0.0)
                self._density[name] = reduce_union(tensor, self.group.gloo, last)
            else:
                self.group.all_reduce(tensor, how)
        except RuntimeError as error:
            raise CollectiveError(
                f"A reduction by Gloo failed, so a rank is gone or silent: {sentence_of(error)}."
            ) from None

    def _meet(self, tensor: torch.Tensor, how: How, why: str) -> None:
        """Finish, by Gloo and on all ranks, a reduction that the aggregator didn't.

        why: what failed at this rank; empty where nothing did but values that aren't finite.
        """
        first, ahead, reasons = self._tell_progress(why)
        if reasons:
            # Rather the sentence of a rank that failed by itself than that another one left.
            by_itself = [each for each in reasons if not each.endswith(" left.")]
            self._use_gloo((by_itself or reasons)[0])
        if ahead:
            if self._done == first:
                self.group.give(tensor, ahead[0])
                return  # this rank's next reduction is the one that the others are in
            self.group.give(self._last.whole(), ahead[0])
        self._reduce_by_gloo(tensor, how)

    def _tell_of_links(self, what: Any) -> list[Any]:
        """What all ranks say while they measure, plan or choose; SessionError where one says that a
        reduction failed at it."""
        told = self.group.tell((_OF_LINKS, what))
        if any(subject != _OF_LINKS for subject, _ in told):
            raise SessionError("a reduction failed at another rank")
        return [each for _, each in told]

    def _tell_progress(self, why: str) -> tuple[int, list[int], list[str]]:
        """Of all ranks: the fewest reductions done, who has one more, and what failed where.

        A rank at which nothing failed may still be about to choose how to go on; it hears of it,
        and comes here with its next reduction.
        """
        try:
            while True:
                told = self.group.tell((_OF_PROGRESS, (self._done, why)))
                if all(subject == _OF_PROGRESS for subject, _ in told):
                    break
            progress = [each for _, each in told]
        except RuntimeError as error:
            raise CollectiveError(
                f"A reduction failed ({why}), and so did Gloo: {sentence_of(error)}."
            ) from None
        first = min(done for done, _ in progress)
        ahead = [rank for rank, (done, _) in enumerate(progress) if done > first]
        return first, ahead, [each for _, each in progress if each]

    def close(self) -> None:
        """Leave the job in peace; what was handed over is done before. Closing twice is fine."""
        self._thread.shutdown(wait=True)
        atexit.unregister(self.close)
        if self._session:
            self._session.leave()
            self._session = None
        if isinstance(self._adaptive, StragglerSession):
            self._adaptive.leave(2 * self.timeout_s)
        if self._adaptive:
            self._adaptive.close()
            self._adaptive = None
