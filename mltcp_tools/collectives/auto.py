"""The way of `auto`: the job's own, until the aggregator has won on the job's own buckets."""

from __future__ import annotations

import logging
import time

import torch

from mltcp_tools.collectives.reducer import LEAST_PAUSE, MOST_PAUSE, Reducer
from mltcp_tools.collectives.trial import Trial

LEAST_RANKS = 3
"""With two, an aggregator saves nothing: each sends and receives the tensor once either way."""

TYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int32)
"""The types that an aggregator adds; short floats go there as 16 bits (native/worker.h)."""

log = logging.getLogger(__package__)


class Auto:
    """Chooses the way of each iteration's buckets; all ranks make the same calls.

    reducer: None where there is nothing to choose. why: one sentence, for the log.
    """

    def __init__(self, reducer: Reducer | None, why: str) -> None:
        self._reducer, self.why = reducer, ""
        self._trial = Trial() if reducer and not reducer.why_gloo else None
        self._iterations, self._look_at, self._pause = 0, LEAST_PAUSE, LEAST_PAUSE
        self._begun = self._ended = 0.0
        self._tried = 0  # buckets of the iteration that a trial is about
        if reducer and reducer.why_gloo:
            why = f"they keep the job's own way: {reducer.why_gloo}"
        self._say(why)

    @property
    def ours(self) -> bool:
        """Tell whether what can be goes our way in this iteration."""
        return self._trial is not None and self._trial.ours

    def begin(self) -> None:
        """An iteration's first bucket is there: choose its way."""
        self._iterations += 1
        if self._trial is not None:
            self._go_on(self._trial)
        elif self._reducer and self._iterations == self._look_at:
            self._look_for_aggregator(self._reducer)
        self._begun, self._tried = time.monotonic(), 0

    def _go_on(self, trial: Trial) -> None:
        assert self._reducer is not None
        if self._iterations == 1:
            return
        if self._tried == 0:
            self._trial = None
            self._reducer = None  # which is left in peace when the job ends
            self._say("none of the gradients is of a type that an aggregator adds as it is")
            return
        if trial.counts:
            seconds = self._ended - self._begun
            group = self._reducer.group
            told = self._reducer.run(self._reducer.by_group, lambda: group.tell(seconds)).wait()
            trial.note(max(told))
        before, was_ours = trial.said, trial.ours
        trial.go_on()
        if was_ours and not trial.ours:
            # No rank may leave our way while another one still waits there for a result.
            self._reducer.run(self._reducer.by_group, lambda: None).wait()
        if trial.said != before:
            self._say(f"at the aggregator {trial.said}")

    def _look_for_aggregator(self, reducer: Reducer) -> None:
        self._pause = min(MOST_PAUSE, 2 * self._pause)
        self._look_at += self._pause
        reducer.run(reducer.look_again).wait()
        if not reducer.why_gloo:
            self._trial = Trial()

    def takes(self, tensor: torch.Tensor) -> bool:
        """Tell whether a bucket goes our way."""
        if tensor.device.type != "cpu" or tensor.dtype not in TYPES:
            return False
        self._tried += 1
        return self.ours

    def note_end(self) -> None:
        """A bucket is done."""
        self._ended = time.monotonic()

    def _say(self, why: str) -> None:
        self.why = why
        if why and (self._reducer is None or self._reducer.rank == 0):
            log.info("Gradients: %s.", why.rstrip("."))
