# SPDX-License-Identifier: BSD-2-Clause
"""The loop over the variants of a run: here (run_experiment.py) or across machines (multihost.py).

In each repetition every variant runs once, `alone` among them. The order alternates, so that a
drift of the machine falls on all alike: a repetition runs the variants forwards, the next
backwards, and each such pair begins one variant further on. The draws of compute times and starts
depend on seed, repetition and job only, so the variants of a repetition face the same jobs. A
variant that something else on the host disturbed is run again, a bounded number of times.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from mltcp_tools.base.errors import MltcpError
from mltcp_tools.kernel.environment import RunEnvironment
from mltcp_tools.kernel.host.disturbance import DisturbanceWatch
from mltcp_tools.kernel.host.signals import Signals
from mltcp_tools.lab.experiments.experiment import Experiment
from mltcp_tools.lab.experiments.tasks import schedule
from mltcp_tools.lab.experiments.variants import ALONE, Variant
from mltcp_tools.lab.runs.disturbance import Disturbance, judge, rows_of
from mltcp_tools.lab.runs.progress import ProgressBar
from mltcp_tools.lab.runs.recorder import LinkCounters, Tables


@dataclass
class VariantOutcome:
    """The outcome of a variant's run; what the jobs measured is in the tables already.

    duration: seconds from the start until the last job was done. cpu_busy: share of all CPUs' time
    in use meanwhile. failure: what ended the variant early, if anything did. warnings: for the
    user.
    """

    duration: float
    counters: LinkCounters
    cpu_busy: float
    failure: MltcpError | KeyboardInterrupt | None = None
    warnings: Sequence[str] = field(default_factory=list)


class Loop(ABC):
    """The variants of a run, and what they share."""

    busiest: ClassVar[str]
    """The owner of an outcome's `cpu_busy`: "CPUs"."""

    def __init__(
        self,
        experiment: Experiment,
        folder: Path,
        interrupts: Signals,
        progress: ProgressBar,
        attempts: int = 1,
    ) -> None:
        self.experiment = experiment
        self.folder = folder
        self.interrupts = interrupts
        self.progress = progress
        self.environment = RunEnvironment(folder)
        self.tables = Tables()
        self.attempts = Attempts(attempts, self.tables, progress.say)

    @abstractmethod
    def load(self, stack: contextlib.ExitStack) -> None:
        """Do what all variants need; `stack` undoes it at the end."""

    @abstractmethod
    def measure(self, variant: Variant, repetition: int, position: int) -> VariantOutcome:
        """Run a variant, and add what its jobs measured to the tables, however it ended.

        repetition, position (in it): from 1.
        """

    @abstractmethod
    def alone_ran(self) -> None:
        """The jobs have run alone for the first time, which the folder has the tables of."""

    def run(self) -> None:
        """Run everything, and record how it ended."""
        outcome = "finished"
        try:
            with contextlib.ExitStack() as stack:
                self.load(stack)
                for repetition, names in schedule(self.experiment):
                    for position, name in enumerate(names, 1):
                        for _ in self.attempts.of(name, repetition):
                            self._run_variant(self.experiment.variant(name), repetition, position)
                        if name == ALONE and repetition == 1:
                            self.alone_ran()
        except KeyboardInterrupt:
            outcome = "interrupted"
            raise
        except Exception as error:
            outcome = str(error)
            raise
        finally:
            self.environment.add(**self.known_at_end())
            self.environment.finish(outcome)

    def known_at_end(self) -> dict[str, Any]:
        """Facts for the environment that are known only at the end."""
        return {}

    def _run_variant(self, variant: Variant, repetition: int, position: int) -> None:
        """Run a variant and write all tables; then raise what ended it early, if anything did."""
        self.interrupts.check()
        title = f"{variant.name} {repetition}/{self.experiment.repetitions}"
        self.progress.begin(title)
        outcome = self.measure(variant, repetition, position)
        counters, duration = outcome.counters, outcome.duration
        self.tables.add_variant(
            variant.name, repetition, position, duration, counters, outcome.cpu_busy
        )
        self.tables.write(self.folder)
        for warning in dict.fromkeys(outcome.warnings):
            self.warn(f"{title}: {warning}")
        if outcome.failure is not None:
            raise outcome.failure
        self.progress.say(
            f"{title}: {duration:.1f} s, {counters.drops} of {counters.packets} packets"
            f" dropped, {self.busiest} {outcome.cpu_busy:.0%} busy"
        )

    def warn(self, sentence: str) -> None:
        """Tell the user, and record it."""
        self.environment.warn(sentence)
        self.progress.say(f"warning: {sentence}")


class Attempts:
    """The runs of each variant until one is undisturbed, or there have been `most`.

    Whoever runs the variant reports what was watched to `judge`, before its run ends. Its rows are
    dropped from `tables` before the next run; the last one's stay, disturbed or not. `say` is told
    of every disturbed run; reports see it in the table `disturbance`.
    """

    def __init__(self, most: int, tables: Tables, say: Callable[[str], None]) -> None:
        self._most = most
        self._tables = tables
        self._say = say
        self._key = ("", 0, 0)
        self._found: Disturbance | None = None

    def of(self, variant: str, repetition: int) -> Iterator[int]:
        """The numbers of the variant's runs, from 1; ends with an undisturbed one, or the last."""
        for attempt in range(1, self._most + 1):
            if attempt > 1:
                self._tables.drop(variant, repetition)
            self._key, self._found = (variant, repetition, attempt), None
            yield attempt
            if self._found is None or not self._found.disturbed:
                return
            self._say(self._sentence(self._found))

    def judge(self, watch: DisturbanceWatch, spans: Sequence[tuple[float, float]]) -> None:
        """Record the seconds of the present run, while its jobs ran: from, to (CLOCK_MONOTONIC)."""
        variant, repetition, attempt = self._key
        seconds = [each for begin, end in spans for each in watch.seconds(begin, end)]
        rows = rows_of(seconds, spans[0][0])
        self._tables.add_disturbance(variant, repetition, attempt, rows)
        self._found = judge(rows, attempt)

    def _sentence(self, found: Disturbance) -> str:
        variant, repetition, attempt = self._key
        then = "it is run again" if attempt < self._most else "it can't be compared with others"
        times = f" in run {attempt} of at most {self._most}" if self._most > 1 else ""
        return (
            f"{variant}, repetition {repetition}, was disturbed{times}: {found.sentence()}; {then}."
        )
