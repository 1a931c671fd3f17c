# SPDX-License-Identifier: BSD-2-Clause
"""A trial of jobs that several hosts send for: each host's part of a job counts as one of its jobs.

Every host looks at its own connections by its own clock, and tells how long iterations took
(remote_worker.py). Only when they ended is put into this host's time, by when that was heard.
"""

from __future__ import annotations

import secrets
import selectors
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from mltcp_tools import __version__
from mltcp_tools.base.errors import MltcpError
from mltcp_tools.kernel.host.closing import Closing
from mltcp_tools.kernel.host.peers import PeerProgram
from mltcp_tools.kernel.host.programs import wait_or_kill
from mltcp_tools.kernel.host.signals import Signals
from mltcp_tools.live.observe.iteration_detector import Iteration
from mltcp_tools.live.trial.conduct import Conducted
from mltcp_tools.live.trial.outcome import judge
from mltcp_tools.live.trial.remote_worker import ALIVE_S
from mltcp_tools.live.trial.rollback import SILENCE_S
from mltcp_tools.live.trial.surroundings import Counted, Interrupted, JobEnded, World
from mltcp_tools.live.trial.trial import Plan, Trial, announcement

_MOMENT_S = 0.05
_END_S = 60.0
_ITERATION = 3


class _Part(Closing):
    """A host that takes part, through ssh. Closing it has everything put back there."""

    def __init__(self, host: str, command: Sequence[str]) -> None:
        self.host = host
        self.heard_s = time.monotonic()
        self.answers: list[dict[str, Any]] = []
        self.iterations: list[tuple[str, Iteration]] = []
        self._open = True
        self._peer = PeerProgram(command, quiet=True)

    def fileno(self) -> int:
        """Readable when it has said something, or ended."""
        return self._peer.fileno()

    def send(self, event: str, **content: Any) -> None:
        self._peer.send({"event": event} | content)

    def read(self) -> None:
        """Take what it says. Raises JobEnded or MltcpError where it can't go on."""
        try:
            messages = self._peer.read()
        except ValueError as error:
            raise MltcpError(f"{self.host} sent an invalid answer: {error}.") from None
        if messages is None:
            raise MltcpError(f"{self.host}: {self._peer.complaint() or 'its part has ended.'}")
        self.heard_s = time.monotonic()
        for each in messages:
            if each["event"] == "failed":
                kind = JobEnded if each["ended"] else MltcpError
                raise kind(f"{self.host}: {each['reason']}")
            if each["event"] == "iterations":
                self.iterations += self.iterations_of(each)
            elif each["event"] != "alive":
                self.answers.append(each)
            if each["event"] == "learn":
                self.iterations.clear()  # of before

    def iterations_of(self, message: Mapping[str, Any]) -> list[tuple[str, Iteration]]:
        """The iterations of a message, in our time, with the jobs' names here."""
        shift_s = time.monotonic() - message["now_s"]
        return [
            (
                self.name_here(job),
                Iteration(
                    *(float(each) + shift_s for each in fields[:_ITERATION]), *fields[_ITERATION:]
                ),
            )
            for job, *fields in message["iterations"]
        ]

    def name_here(self, job: str) -> str:
        """Return the name of its part of a job."""
        return f"{job}@{self.host}"

    def close(self) -> None:
        """Have everything put back; MltcpError says what could not be. Closing twice is fine."""
        if not self._open:
            return
        self._open = False
        self._peer.end()
        wait_or_kill(self._peer.process, _END_S)  # it may still be speaking
        code = self._peer.close(_END_S)
        if code:
            why = self._peer.complaint() or f"its part ended with exit code {code}."
            raise MltcpError(f"{self.host}: {why}")


class AcrossWorld(World):
    """The jobs of all hosts. interrupted: whether somebody ends the trial."""

    def __init__(self, parts: Sequence[_Part], interrupted: Callable[[], bool]) -> None:
        self._parts = parts
        self._interrupted = interrupted
        self._periods = 0
        self._alive_s = 0.0

    def now_s(self) -> float:
        return time.monotonic()

    def ask(self, event: str, **content: Any) -> list[tuple[_Part, dict[str, Any]]]:
        """Ask all hosts at once; what each answers, when all have."""
        for part in self._parts:
            part.send(event, **content)
        while not all(part.answers for part in self._parts):
            self._listen()
        return [(part, part.answers.pop(0)) for part in self._parts]

    def _listen(self) -> None:
        """Let a moment pass, and take what hosts say in it."""
        if self._interrupted():
            raise Interrupted
        now_s = self.now_s()
        if now_s - self._alive_s >= ALIVE_S:
            self._alive_s = now_s
            for part in self._parts:
                part.send("alive")
        with selectors.DefaultSelector() as selector:
            for part in self._parts:
                selector.register(part, selectors.EVENT_READ, part)
            for key, _ in selector.select(_MOMENT_S):
                key.data.read()
        for part in self._parts:
            if now_s - part.heard_s > SILENCE_S:
                raise MltcpError(f"{part.host} has been silent for {SILENCE_S:.0f} s.")

    def learn(self) -> Mapping[str, Sequence[Iteration]]:
        found: dict[str, list[Iteration]] = {}
        for part, said in self.ask("learn"):
            for job, iteration in part.iterations_of(said):
                found.setdefault(job, []).append(iteration)
        return found

    def switch(self, variant: str) -> None:
        self.ask("switch", variant=variant)

    def wait(self) -> list[tuple[str, Iteration]]:
        self._listen()
        found = [each for part in self._parts for each in part.iterations]
        for part in self._parts:
            part.iterations.clear()
        return found

    def begin_period(self) -> int:
        self.ask("period")
        self._periods += 1
        return self._periods - 1

    def end_period(self, period: int) -> Counted:
        counted = Counted([], {})
        for part, said in self.ask("end", period=period):
            counted.notes.extend(f"{part.host}: {note}" for note in said["notes"])
            for job, count in said["retransmits"].items():
                counted.retransmits[part.name_here(job)] = count
        return counted

    def unlike(self, one: int, other: int) -> list[str]:
        return [
            f"{part.host}: {note}"
            for part, said in self.ask("unlike", periods=[one, other])
            for note in said["notes"]
        ]


def conduct_across(
    commands: Mapping[str, Sequence[str]],
    wanted: Mapping[str, Sequence[str]],
    plan: Plan,
    congestion_control: str,
    say: Callable[[str], None],
    patience_s: float,
    seed: int | None = None,
) -> Conducted:
    """As conduct.conduct, of the jobs of several hosts; a job may have connections on some only.

    commands: by host, what runs its part. MltcpError also where a host didn't put back everything.
    """
    with ExitStack() as stack:
        signals = stack.enter_context(Signals())
        parts = [stack.enter_context(_Part(host, command)) for host, command in commands.items()]
        world = AcrossWorld(parts, signals.has_come)
        hello = {"version": __version__, "jobs": wanted, "cc": congestion_control}
        found = world.ask("begin", **hello, patience_s=patience_s)
        there = {job for _, said in found for job in said["jobs"]}
        if missing := [job for job in wanted if job not in there]:
            raise MltcpError(f"{', '.join(missing)}: none of these hosts has a connection of it.")
        base = ", ".join(sorted({said["base"] for _, said in found}))
        trial = Trial(plan, world, secrets.randbits(32) if seed is None else seed, say)
        say(f"{base} and {congestion_control}: {announcement(trial.course)}")
        course = trial.run()
    return Conducted(base, congestion_control, course, judge(course))
