# SPDX-License-Identifier: BSD-2-Clause
"""The processes that the rules fit, kept up to date as processes come, change and go."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain

from mltcp_tools.base.errors import MltcpError
from mltcp_tools.live.agent.followed import Followed
from mltcp_tools.live.agent.naming import ATTACH, variables
from mltcp_tools.live.agent.rules import Rule
from mltcp_tools.live.attach.environment import Environments
from mltcp_tools.live.attach.processes import PROC, Process, is_running, process, processes
from mltcp_tools.live.attach.selection import Target, select

_YOUNG_S = 3.0
"""A process this young may still become another program (exec), so it is looked at again."""


@dataclass(frozen=True)
class Loss:
    """The latest of so many losses of an attached connection, and how long it is let be."""

    at_s: float
    count: int
    wait_s: float


@dataclass
class Watched:
    """A process that a rule fits.

    job: None until it is known. settled: cookies of its sockets that are attached, or can't be.
    senders: how many of them have sent more than they received. doubted: cookies of those that are
    none of ours as they look now, with when to look again and after how long. known: inodes of
    sockets that needn't be looked at to find new connections. attached: whether any was ever
    attached; closed: whether one of them closed. ours: cookies of those that are attached now, as
    far as known here. left: cookies of those that somebody else has detached or moved to another
    job, which stay so, whatever the rules say. declined: whether it wants to be left alone;
    None until that was looked at, and anew after an exec. manages: whether it is root's beside
    another user's processes of the job, such as slurmstepd, and so belongs to no job. losses: by
    cookie, of connections that ran something else though nobody detached them.
    """

    process: Process
    rule: Rule
    job: Followed | None = None
    settled: set[int] = field(default_factory=set)
    senders: int = 0
    doubted: dict[int, tuple[float, float]] = field(default_factory=dict)
    known: set[int] = field(default_factory=set)
    attached: bool = False
    closed: bool = False
    ours: set[int] = field(default_factory=set)
    left: set[int] = field(default_factory=set)
    declined: bool | None = None
    manages: bool = False
    losses: dict[int, Loss] = field(default_factory=dict)

    @property
    def is_left_alone(self) -> bool:
        """Tell whether it gets no job, though a rule fits it."""
        return bool(self.declined) or self.manages

    @property
    def key(self) -> tuple[int, int]:
        """Pid and start, which name the process for good."""
        return self.process.pid, self.process.start_ticks


_READ_AGAIN_S = 5.0
"""A grown-up process may change its user or its cgroup, but that is rare."""


class Watchlist:
    """The processes watched. `rules` may be replaced at any time, and count from the next look.

    A process that renames itself stays what it was when a rule first fitted it, until it execs.
    environments: the variables that the rules ask for, of all processes.
    warn: gets a sentence for a rule that can't be applied now.
    """

    def __init__(self, rules: Sequence[Rule], warn: Callable[[str], None]) -> None:
        self.rules = tuple(rules)
        self._warn = warn
        self.environments = Environments()
        self._watched: dict[tuple[int, int], Watched] = {}
        self._young_until: dict[int, float] = {}
        self._read: dict[tuple[int, int], tuple[Process, float]] = {}
        """Processes as they were read, with when to read them again."""
        self._left: dict[tuple[int, int], set[int]] = {}
        """Of each process watched since it began, `Watched.left`."""
        self._named: dict[int, int] = {}
        """By pids that rules give, the start of the process that was meant."""

    def __iter__(self) -> Iterator[Watched]:
        return iter(self._watched.values())

    def of(self, job: Followed) -> list[Watched]:
        """The processes of a job."""
        return [each for each in self if each.job is job]

    def look(self, now_s: float) -> list[Watched]:
        """Look at all processes; return those that are watched no more, ended or not."""
        known = {key: each for key, (each, until) in self._read.items() if now_s < until}
        found = processes(known)
        alive = {(each.pid, each.start_ticks): each for each in found}
        self.environments.keep(found)
        present = set(_pids())  # the kernel's own threads, too, lest they stay young
        self._young_until = {p: until for p, until in self._young_until.items() if p in present}
        self._read = {key: self._read[key] for key in known if alive.get(key) is known[key]}
        for key, each in alive.items():
            young_until = self._young_until.setdefault(each.pid, now_s + _YOUNG_S)
            if key not in self._read and now_s >= young_until:
                # Not all at the same time, lest that look takes long.
                self._read[key] = each, now_s + _READ_AGAIN_S + each.pid % 8 / 2
        self._left = {key: left for key, left in self._left.items() if key in alive}
        ended = [self._watched.pop(key) for key in list(self._watched) if key not in alive]
        return ended + self._match(found)

    def look_at_new(self, now_s: float) -> list[Watched]:
        """Look at new processes, and those so young that they may have become others; as look."""
        if any(rule.target.ports for rule in self.rules):
            return self._match(processes())  # any old process may have the port by now
        found = []
        for pid in _pids():
            if now_s < self._young_until.setdefault(pid, now_s + _YOUNG_S):
                with suppress(MltcpError):  # it has ended by now
                    found.append(process(pid))
        return self._match(found)

    def _match(self, found: Iterable[Process]) -> list[Watched]:
        """Watch those processes that a rule fits, of which the first counts; return the dropped."""
        others = [self._as_taken(each) for each in found if each.pid != os.getpid()]
        left = {(each.pid, each.start_ticks): each for each in others}
        templates = {rule.job for rule in self.rules if rule.job is not None}
        self.environments.see(others, {ATTACH, *chain(*map(variables, templates))})
        dropped = []
        for rule in self.rules:
            target = self._still_named(rule.target)
            if target is None:
                continue
            try:
                fitting = select(target, left.values())
            except MltcpError as error:  # such as a namespace that isn't there yet
                self._warn(str(error))
                continue
            for each in fitting:
                key = (each.pid, each.start_ticks)
                del left[key]
                before = self._watched.get(key)
                if before is not None and before.rule == rule:
                    if before.process.image != each.image:
                        before.declined = None
                    before.process = each
                    continue
                if before is not None:
                    dropped.append(before)
                left_alone = self._left.setdefault(key, set())
                self._watched[key] = Watched(each, rule, left=left_alone)
        for key in left:
            # Closing its port doesn't make a process another one.
            if key in self._watched and not self._still_meant(self._watched[key]):
                dropped.append(self._watched.pop(key))
        return dropped

    def _as_taken(self, process: Process) -> Process:
        """The process with the command line by which it was taken, if it was."""
        before = self._watched.get((process.pid, process.start_ticks))
        if before is None or before.process.image != process.image:
            return process
        return replace(process, command=before.process.command)

    def _still_named(self, target: Target) -> Target | None:
        """The target without pids that are other processes' by now; None when none is left."""

        def same(pid: int) -> bool:
            with suppress(MltcpError):  # there is none
                self._named.setdefault(pid, process(pid).start_ticks)
            return pid in self._named and is_running(pid, self._named[pid])

        if not (target.pids or target.trees):
            return target
        pids, trees = (tuple(filter(same, each)) for each in (target.pids, target.trees))
        return replace(target, pids=pids, trees=trees) if pids or trees else None

    def _still_meant(self, watched: Watched) -> bool:
        return bool(watched.rule.target.ports) and watched.rule in self.rules


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir(PROC) if name.isdecimal())
