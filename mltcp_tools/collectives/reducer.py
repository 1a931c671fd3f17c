# SPDX-License-Identifier: BSD-2-Clause
"""All-reduces of tensors among the ranks of a process group: by a collective, else by Gloo.

Every rank calls the same reductions in the same order; one thread runs them one by one. If one
fails at some rank, all ranks meet over Gloo. A rank is ahead of another by one reduction at most,
because finishing one takes the values of all ranks. So either all ranks failed in the same
reduction, and Gloo does it again, or the ranks that have its result give it to the others.
"""

from __future__ import annotations

import atexit
import contextlib
import queue
import socket
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from mltcp_tools.base.errors import MltcpError
from mltcp_tools.collectives.agreement import IDLE, Progress, has_left
from mltcp_tools.collectives.collective import (
    Collective,
    CollectiveError,
    Setting,
    Sum,
    name_of,
    sentence_of,
)
from mltcp_tools.collectives.gloo import Gloo
from mltcp_tools.collectives.group import kind_of
from mltcp_tools.collectives.library import How
from mltcp_tools.collectives.path_selection import Pause
from mltcp_tools.collectives.session import Endpoint, SessionError

LEAST_PAUSE, MOST_PAUSE = 64, 8192
"""Number of reductions by Gloo between looks for the aggregator, doubled after each futile one."""

_LOOK_S = 0.5
_IDLE_S = 0.2  # between looks around


class Reducer:
    """The reductions of this rank, by a collective where it can be joined, else by Gloo.

    `why_gloo` says why the collective isn't used, None while it is.
    """

    def __init__(self, collective: type[Collective], setting: Setting) -> None:
        self._collective, self._setting = collective, setting
        self.group = setting.group
        self.rank, self.world = self.group.rank, self.group.world
        self._gloo = Gloo(setting)
        self._way: Collective = self._gloo
        self.why_gloo: str | None = None
        self._last = Sum(torch.empty(0))  # of the step before
        self._done = 0  # steps since the collective was joined
        self._results: list[torch.Tensor] = [torch.empty(0), torch.empty(0)]
        self._pause, self._by_gloo = Pause(LEAST_PAUSE, MOST_PAUSE), 0  # reductions since a look
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="mltcp-reducer", daemon=True)
        if collective.by_group:
            self._way = collective(setting)
        else:
            self._join()
        atexit.register(self.close)
        self._thread.start()

    def block(self, tensor: torch.Tensor) -> int:
        """Values of a tensor that are sent together or not at all."""
        return self._way.block(tensor)

    def takes(self, tensor: torch.Tensor) -> bool:
        """Tell whether the collective, once joined, reduces such tensors itself."""
        return self._collective.takes(tensor)

    @property
    def name(self) -> str:
        """The name of the collective that was asked for."""
        return self._collective.name

    @property
    def why_not(self) -> str:
        """Reason why trying the collective can't gain anything; empty where it may, or later."""
        if self._collective.at_aggregator:
            return ""  # which may come yet
        return self.why_gloo or self._way.why_not()

    @property
    def algorithm(self) -> str:
        """The name of the collective that reduces now."""
        return self._way.name

    # Joining, which all ranks do together.

    def _join(self) -> None:
        """Join the collective; all ranks do, or none."""
        way, why = self._collective(self._setting), ""
        try:
            way.join()
        except Exception as error:  # whatever it is, the others wait to be told
            why = str(error) if isinstance(error, MltcpError | OSError) else repr(error)
        self._done = 0
        progress = self._told(why, "")
        if progress.reason:
            way.close()
            self._use_gloo(progress)
        else:
            self._way, self.why_gloo = way, None

    def _use_gloo(self, progress: Progress) -> None:
        why = progress.reason
        if self.why_gloo != why and self.rank == 0:
            sentence = f"The collective `{self._collective.name}` isn't used: {why}"
            warnings.warn(sentence, RuntimeWarning, stacklevel=2)
        self.why_gloo = why
        # Whatever fails soon after it was joined is looked for more and more seldom.
        self._pause.tried(futile=progress.first <= LEAST_PAUSE)
        self._by_gloo = 0
        self._way.close()
        self._way = self._gloo

    def find(self) -> bool:
        """Tell whether the collective is joined, or is now; all ranks do, from within `run`."""
        self.by_group(lambda: None)  # so that what failed has failed at all of them
        if self.why_gloo:
            self._look_again()
        return not self.why_gloo

    def _look_again(self) -> None:
        """Join again where rank 0 finds the aggregator there; all ranks do."""
        self._by_gloo = 0
        endpoint = self._setting.endpoint
        if self.group.of_first(self.rank == 0 and endpoint is not None and _answers(endpoint)):
            self._join()

    # Reducing.

    def all_reduce(self, tensor: torch.Tensor, how: How = How.SUM) -> torch.futures.Future[Any]:
        """Reduce `tensor` in place; the future has it. UsageError for a type that can't be."""
        kind_of(tensor, how)

        def reduce() -> torch.Tensor:
            self._reduce(tensor, how)
            return tensor

        return self.run(reduce)

    def _run(self) -> None:
        """Do what is handed over, in its order, and look around while there is nothing."""
        while True:
            try:
                work = self._work.get(timeout=_IDLE_S)
            except queue.Empty:
                self._look_around()
                continue
            if work is None:
                return
            work()

    def _look_around(self) -> None:
        """Come to the others where reductions have ended and this rank has none to notice it by.

        A rank that is ahead may wait, in what isn't ours, for one that waits here for its result.
        """
        why = "" if self._way.by_group else self._way.over()
        if not why or has_left(why):
            return
        try:
            progress = self._told(why, IDLE)
            if self._done > progress.first:
                self._give(progress)
            else:
                self._use_gloo(progress)
        except CollectiveError as error:
            warnings.warn(str(error), RuntimeWarning, stacklevel=2)
            self._way = self._gloo  # which the next reduction will find to fail

    def run(
        self, work: Callable[..., Any], *arguments: Any, devices: Sequence[torch.device] = ()
    ) -> torch.futures.Future[Any]:
        """Have the thread do `work`, in its turn; the future has what it returns.

        devices: those that may still work on it, on the thread's current streams.
        """
        future: torch.futures.Future[Any] = torch.futures.Future(devices=[*devices])

        def do() -> None:
            try:
                found = work(*arguments)
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(found)
                self._way.look()

        self._work.put(do)
        return future

    def reduce_now(self, tensor: torch.Tensor, how: How) -> None:
        """all_reduce, from within `run`."""
        kind_of(tensor, how)
        self._reduce(tensor, how)

    def by_group(self, work: Callable[[], Any], doing: str = "something by Gloo") -> Any:
        """Return the result of `work`, which uses the ranks' Gloo; within `run`, on all ranks."""
        if not self._way.by_group:
            try:
                self.group.agreement.go_on(doing)
            except SessionError as error:
                self._give(self._told(str(error), doing))
        found = work()
        self._done += 1
        return found

    def _reduce(self, tensor: torch.Tensor, how: How) -> None:
        if self._way.by_group:
            self._way.reduce(tensor, tensor, how)
            self._by_gloo += 1
            if self._collective.at_aggregator and self._by_gloo >= self._pause.length:
                self._look_again()
            return
        if not self._way.takes(tensor):
            self.by_group(lambda: self._gloo.reduce(tensor, tensor, how), name_of(tensor, how))
            return
        result = self._room(tensor)
        why = ""
        try:
            if not self._way.at_aggregator:
                # An aggregator notices ranks that ask for different things; ring and trees wait, or
                # fail in words of their own.
                self.group.agreement.go_on(name_of(tensor, how))
            done = self._way.reduce(tensor, result, how)
        except (SessionError, RuntimeError) as error:
            done, why = None, str(error)
            self._way.close()  # so that the ranks that still wait learn of it
        if done is None:
            self._meet(tensor, result, how, why)
        else:
            self._last = done
            self._done += 1

    def _room(self, tensor: torch.Tensor) -> torch.Tensor:
        """Memory for the result, other than that of the one before, which a rank may yet need."""
        which = self._done % 2
        if self._results[which].dtype != tensor.dtype or (
            self._results[which].numel() < tensor.numel()
        ):
            self._results[which] = torch.empty(tensor.numel(), dtype=tensor.dtype)
        return self._results[which][: tensor.numel()]

    # Failures.

    def _meet(self, tensor: torch.Tensor, result: torch.Tensor, how: How, why: str) -> None:
        """Finish, by Gloo and on all ranks, a reduction that the collective didn't.

        why: what failed at this rank; empty where nothing did but values that aren't finite. All
        ranks see these in the same reduction; what they make of the others is Gloo's to say.
        """
        progress = self._told(why, name_of(tensor, how))
        if self._done > progress.first:
            self._give(progress)
            self._reduce(tensor, how)
            return
        if progress.reason:
            self._use_gloo(progress)
        if progress.ahead:
            self.group.give(tensor.view(-1), progress.ahead[0])
            return  # this rank's next step is the one that the others are in
        self._gloo.reduce(tensor, tensor, how)
        if not progress.reason:
            self._last = Sum(result.copy_(tensor.view(-1)))
            self._done += 1

    def _give(self, progress: Progress) -> None:
        """Go on by Gloo, once ranks at which the step before failed have its result from here."""
        self._use_gloo(progress)
        self.group.give(self._last.whole(), progress.ahead[0])

    def _told(self, why: str, doing: str) -> Progress:
        """The progress of all; CollectiveError where they don't reduce the same, or Gloo fails."""
        try:
            progress = self.group.agreement.meet(self._done, why, doing)
        except RuntimeError as error:
            raise CollectiveError(
                f"A reduction failed ({why.rstrip('.')}), and so did Gloo, so a rank is gone or"
                f" silent: {sentence_of(error)}."
            ) from None
        if progress.mismatch:
            self._way.close()
            raise CollectiveError(progress.mismatch)
        return progress

    def close(self) -> None:
        """Leave the job in peace; what was handed over is done before. Closing twice is fine."""
        self._work.put(None)
        self._thread.join()
        atexit.unregister(self.close)
        self._way.leave()


def _answers(endpoint: Endpoint) -> bool:
    """Tell whether there is somebody at the aggregator's port."""
    address = (endpoint.address, endpoint.port)
    with contextlib.suppress(OSError), socket.create_connection(address, _LOOK_S):
        return True
    return False
