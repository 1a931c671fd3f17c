# SPDX-License-Identifier: BSD-2-Clause
"""The jobs that a trial acts on: live jobs on this host, or simulated ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mltcp_tools.live.observe.iteration_detector import Iteration


@dataclass(frozen=True)
class Counted:
    """The counts of a period that has ended. notes: what makes it discarded. retransmits: by
    job."""

    notes: list[str]
    retransmits: dict[str, int]


class World(ABC):
    """Jobs whose iterations are seen, and that can be switched, all of them together."""

    @abstractmethod
    def now_s(self) -> float:
        """The time, in seconds, by the clock of the iterations."""

    @abstractmethod
    def learn(self) -> Mapping[str, Sequence[Iteration]]:
        """The latest iterations of each job as it runs now, after looking for as long as it takes.

        Raises passive.NoIterations where a job has none that repeat, JobEnded where it has ended.
        """

    @abstractmethod
    def switch(self, variant: str) -> None:
        """Have all jobs run what they ran before (period.BASE), or mltcp (period.MLTCP)."""

    @abstractmethod
    def wait(self) -> list[tuple[str, Iteration]]:
        """Let a moment pass; the iterations that ended in it, each with its job.

        Raises Interrupted when the trial is to end, JobEnded when a job has ended.
        """

    @abstractmethod
    def begin_period(self) -> int:
        """Note what has been counted so far, as the jobs run the period's variant; the period's
        number."""

    @abstractmethod
    def end_period(self, period: int) -> Counted:
        """Return what was counted since the period began."""

    @abstractmethod
    def unlike(self, one: int, other: int) -> list[str]:
        """Return sentences on what around the jobs differed in two periods that have ended."""


class JobEnded(Exception):
    """A job of the trial has ended. str(): a sentence."""


class Interrupted(Exception):
    """The trial is to end: by a signal, or as the host that conducts it has gone."""

    def __init__(self) -> None:
        super().__init__("It was interrupted.")
