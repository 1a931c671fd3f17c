# SPDX-License-Identifier: BSD-2-Clause
"""The choice of `auto`: the job's own way, until a collective has won a trial on its buckets."""

from __future__ import annotations

import logging
import time
from statistics import median
from typing import Any

import torch

from mltcp_tools.collectives.path_selection import Pause, Trials
from mltcp_tools.collectives.reducer import LEAST_PAUSE, MOST_PAUSE, Reducer

LEAST_RANKS = 3
"""With two ranks nothing can be saved: each sends and receives the tensor once anyway."""

MOST_LOST = 0.01
"""Share of a bucket's short floats that may become zero at an aggregator, beside the largest of a
packet."""

SETTLE = 2
"""Iterations before the first trial: after the first one DDP makes its buckets anew."""

ROUNDS, SOONER = 3, 1.05
LEAST_LEFT, MOST_LEFT = 512, 16_384
"""Of trials (path_selection.py), whose turns are iterations."""

WATCHED, SLOWER = 8, 1.3
"""Number of iterations by the collective whose median is compared, and its limit as a multiple of
the job's own median in the last trial."""

log = logging.getLogger(__package__)


class Auto:
    """Chooses the way of each iteration's buckets; all ranks make the same calls.

    reducer: None where there is nothing to choose. why: one sentence, for the log.
    """

    def __init__(self, reducer: Reducer | None, why: str) -> None:
        self._reducer, self.why = reducer, ""
        self._trials = Trials(False, ROUNDS, SOONER, Pause(LEAST_LEFT, MOST_LEFT))
        self._looks = Pause(LEAST_PAUSE, MOST_PAUSE)
        self._iterations, self._due = 0, 1 + SETTLE  # the iteration before which to try
        self._begun = self._ended = 0.0
        self._lasted: list[float] = []  # iterations our way since the last look
        self._tried = 0  # buckets of the iteration that a trial is about
        self._lost = 0.0  # the largest share (MOST_LOST) of a bucket that was looked at
        if reducer and reducer.why_gloo:
            why = f"they keep the job's own way: {reducer.why_gloo}"
            self._due = self._looks.length
        self._say(why)

    @property
    def ours(self) -> bool:
        """Tell whether what can be goes our way in this iteration."""
        return self._trials.ours

    def begin(self) -> None:
        """An iteration's first bucket is there: choose its way."""
        self._iterations += 1
        if self._reducer and self._iterations > 1:
            self._go_on(self._reducer)
        self._begun, self._tried = time.monotonic(), 0

    def _go_on(self, reducer: Reducer) -> None:
        if self._tried == 0:
            self._leave(
                reducer, f"none of the gradients is of a type that `{reducer.name}` adds as it is"
            )
        elif self._trials.trying:
            self._note(reducer)
        elif self._iterations >= self._due:
            if reducer.run(reducer.find).wait():
                if self._most_told(reducer, 0.0) is not None:
                    self._trials.begin()
            else:
                self._looks.tried(futile=True)
                self._due += self._looks.length
        elif self.ours:
            self._watch(reducer)

    def _watch(self, reducer: Reducer) -> None:
        """Begin a trial at once where our way has become slower than the job's own last was."""
        self._lasted.append(self._ended - self._begun)
        if len(self._lasted) < WATCHED:
            return
        lasted, self._lasted = median(self._lasted), []
        told = self._most_told(reducer, lasted)
        if told is not None and told > SLOWER * self._trials.usual(False):
            self._trials.begin()

    def _most_told(self, reducer: Reducer, seconds: float) -> float | None:
        """Return the most seconds of all ranks; None where the collective can't be used, or short
        floats lose too much anywhere."""
        told = self._told(reducer, [seconds, self._lost])
        if told is None:
            return None
        most, lost = (float(max(each[which] for each in told)) for which in (0, 1))
        if lost <= MOST_LOST:
            return most
        self._leave(
            reducer, f"at the aggregator {lost:.1%} of a bucket's short floats would become zero"
        )
        return None

    def _leave(self, reducer: Reducer, why: str) -> None:
        """Keep the job's own way from now on; the reducer is closed when the job ends."""
        self._go_back(reducer)
        self._reducer = None
        self._say(why)

    def _told(self, reducer: Reducer, what: Any) -> list[Any] | None:
        """Return what all ranks say; None where the collective has failed: the job's own way then
        goes on until a look finds it again."""

        def tell() -> tuple[list[Any], str | None]:
            return reducer.group.tell(what), reducer.why_gloo  # here the same at all ranks

        told, why_gloo = reducer.run(reducer.by_group, tell).wait()
        if not why_gloo:
            return list(told)
        self._go_back(reducer)
        self._looks = Pause(LEAST_PAUSE, MOST_PAUSE)
        self._due = self._iterations + self._looks.length
        self._say(f"they keep the job's own way: {why_gloo}")
        return None

    def _go_back(self, reducer: Reducer) -> None:
        """End a trial, and go the job's own way."""
        was_ours, self._trials.ours, self._trials.trying = self.ours, False, False
        if was_ours:
            self._wait_for_all(reducer)

    @staticmethod
    def _wait_for_all(reducer: Reducer) -> None:
        """No rank may leave our way while another one still waits there for a result."""
        reducer.run(reducer.by_group, lambda: None).wait()

    def _note(self, reducer: Reducer) -> None:
        """A turn of a trial is over."""
        self._lasted = []
        trials, was_ours, seconds = self._trials, self.ours, self._ended - self._begun
        told = self._told(reducer, seconds)
        if told is None:
            return
        is_over = trials.note(max(told))
        if was_ours and not self.ours:
            self._wait_for_all(reducer)
        if is_over:
            ours, theirs = trials.usual(True), trials.usual(False)
            self._say(
                f"iterations communicate for {ours * 1e3:.3g} ms by `{reducer.name}`, for"
                f" {theirs * 1e3:.3g} ms by the job's own way, which is"
                f" {'left for now' if self.ours else 'kept'}"
            )
            self._due = self._iterations + trials.pause.length

    def takes(self, tensor: torch.Tensor) -> bool:
        """Tell whether a bucket goes our way."""
        reducer = self._reducer
        if reducer is None or tensor.device.type != "cpu" or not reducer.takes(tensor):
            return False
        self._tried += 1
        is_told_next = self._iterations + 1 == self._due or len(self._lasted) == WATCHED - 1
        if tensor.dtype.itemsize == 2 and is_told_next:
            chunk = reducer.block(tensor)
            self._lost = max(self._lost, share_lost(tensor, chunk, reducer.world))
        return self.ours

    def note_end(self) -> None:
        """A bucket is done."""
        self._ended = time.monotonic()

    def _say(self, why: str) -> None:
        self.why = why
        if why and (self._reducer is None or self._reducer.rank == 0):
            log.info("Gradients: %s.", why.rstrip("."))


def share_lost(tensor: torch.Tensor, chunk: int, ranks: int) -> float:
    """Return the share of a tensor's values that become zero when they travel as 16 bits.

    chunk: values of a packet, which have one exponent. (The integers: native/worker.h.) Of a large
    tensor every eighth packet is looked at.
    """
    flat = tensor.view(-1)
    whole = flat[: flat.numel() // chunk * chunk].view(-1, chunk)[::8]
    looked_at = (whole if whole.numel() else flat.view(1, -1)).float().abs()
    if not looked_at.numel():
        return 0.0
    bits = 14 - (ranks - 1).bit_length()
    limits = looked_at.amax(dim=1, keepdim=True) / 2**bits  # at most twice what really is
    lost = int(((looked_at > 0) & (looked_at < limits)).sum())
    return lost / int(looked_at.numel())
