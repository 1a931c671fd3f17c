"""The jobs that a trial acts on: live jobs on this host, or simulated ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from mltcp_tools.live.observe.pulse import Beat
from mltcp_tools.live.trial.turn import Turn


class World(ABC):
    """Jobs whose iterations are seen, and that can be switched, all of them together."""

    @abstractmethod
    def now_s(self) -> float:
        """The time, in seconds, by the clock of the iterations."""

    @abstractmethod
    def learn(self) -> Mapping[str, Sequence[Beat]]:
        """The latest iterations of each job as it runs now, after looking for as long as it takes.

        Raises outside.NoIterations where a job has none that repeat, JobEnded where it has ended.
        """

    @abstractmethod
    def switch(self, arm: str) -> None:
        """Have all jobs run what they ran before (turn.BASE), or mltcp (turn.MLTCP)."""

    @abstractmethod
    def wait(self) -> list[tuple[str, Beat]]:
        """Let a moment pass; the iterations that ended in it, each with its job.

        Raises KeyboardInterrupt when somebody ends the trial, JobEnded when a job has ended.
        """

    @abstractmethod
    def begin_turn(self) -> None:
        """Note what has been counted so far; the jobs run the turn's arm by now."""

    @abstractmethod
    def end_turn(self, turn: Turn) -> None:
        """Give the turn what was counted since, and what makes it void."""

    @abstractmethod
    def unlike(self, one: Turn, other: Turn) -> list[str]:
        """Return sentences on what around the jobs differed in two turns."""


class JobEnded(Exception):
    """A job of the trial has ended. str(): a sentence."""
