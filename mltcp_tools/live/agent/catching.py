# SPDX-License-Identifier: BSD-2-Clause
"""New connections of followed cgroups are attached in the kernel, before their first data.

That is so where a rule names nothing but cgroups, so that whatever happens in them is meant. What
the kernel doesn't take, and what a rule leaves to a closer look, is attached by looking.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Set
from pathlib import Path

from mltcp_tools.base.errors import MltcpError, reason
from mltcp_tools.kernel.backends import module
from mltcp_tools.kernel.backends.base import Backend
from mltcp_tools.kernel.backends.bpf import BpfBackend
from mltcp_tools.kernel.backends.bpf_catch import BpfCatcher
from mltcp_tools.kernel.backends.bpf_sockets import kernel_sockets
from mltcp_tools.kernel.backends.catch import Catch, Catcher, folder_of
from mltcp_tools.kernel.backends.kmod import KmodBackend
from mltcp_tools.kernel.congestion_controls import NAMES, OBSERVED, built_on, observer_of
from mltcp_tools.kernel.native.uapi import RULE_PORTS
from mltcp_tools.live.agent.naming import is_template, name_of
from mltcp_tools.live.agent.notices import Notices
from mltcp_tools.live.agent.rules import Rule
from mltcp_tools.live.agent.watchlist import Watched
from mltcp_tools.live.attach.classify import ALL, ports_of_others
from mltcp_tools.live.attach.environment import Environments
from mltcp_tools.live.attach.jobs import announce
from mltcp_tools.live.attach.processes import Process
from mltcp_tools.live.attach.selection import Target, matching_part


class Catching:
    """Keeps the kernel catching what the watched processes' cgroups open. A context manager."""

    def __init__(self, backend: Backend, notices: Notices, environments: Environments) -> None:
        self._environments = environments
        self._backend = backend
        self._notices = notices
        self._catcher: Catcher | None = None
        self._loaded: object = None
        """The load that the catcher is of: another object, once MLTCP was loaded anew."""
        self._wanted: dict[Path, Catch] = {}
        self._caught: frozenset[Path] = frozenset()
        """The cgroups for which the kernel does it, as was said."""
        self._known: dict[Path, tuple[object, Catch]] = {}
        """The findings on each cgroup, with the processes for which they hold."""
        self._covered: frozenset[tuple[int, int]] = frozenset()

    def __enter__(self) -> Catching:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def covers(self, watched: Watched) -> bool:
        """Return whether what this process opens is caught, so that nobody has to hurry."""
        return watched.key in self._covered

    def update(self, watched: Iterable[Watched], declined: Iterable[Watched] = ()) -> None:
        """Catch for the cgroups of these, but for those with declined ones, and for no others any
        more.
        """
        self._covered = frozenset()
        alone = {each.process.cgroup for each in declined}
        try:
            own = [each for each in watched if each.job is not None]
            jobs, wanted, covered = self._find(own, alone)
            if not wanted and self._catcher is None:
                return
            catcher = self._present()
            if wanted != self._wanted and self._announce(jobs):
                jobs, wanted, covered = self._find(own, alone)
        except (MltcpError, OSError) as error:
            self._notices.warn(f"New connections are found by polling only: {reason(error)}")
            return
        try:
            catcher.set(wanted)
        except (MltcpError, OSError) as error:
            some = "Some new connections are attached by looking alone"
            self._notices.warn(f"{some}: {reason(error)}")
        caught = catcher.cgroups
        if catcher.switches:
            self._covered = frozenset().union(*(covered[each] for each in caught))
        for path in set(caught) - self._caught:
            what = "New connections" if catcher.switches else "New connections under MLTCP"
            self._notices.say(f"{what} of {path} are attached before their first data.")
        self._wanted, self._caught = wanted, frozenset(caught)

    def _announce(self, jobs: Iterable[Watched]) -> bool:
        """Have the kernel know the jobs; return whether an id turned out to be another's."""
        followed = [each.job for each in jobs if each.job is not None]
        changed = False
        for each, job in zip(
            followed, announce([each.job for each in followed], self._backend), strict=True
        ):
            changed |= job.id != each.job.id
            each.job = job
        return changed

    def _present(self) -> Catcher:
        """The catcher of what is loaded now."""
        backend = self._backend
        assert isinstance(backend, BpfBackend | KmodBackend)
        loaded = kernel_sockets() if isinstance(backend, BpfBackend) else module.generation()
        if self._catcher is None or loaded != self._loaded:
            self._close()
            if isinstance(backend, BpfBackend):
                self._catcher = BpfCatcher(kernel_sockets(), backend.home)
            else:
                self._catcher = backend.catcher()
            self._loaded = loaded
        return self._catcher

    def _find(
        self, watched: list[Watched], declined: Set[str]
    ) -> tuple[list[Watched], dict[Path, Catch], dict[Path, frozenset[tuple[int, int]]]]:
        """A process of each job whose cgroups are caught, what to catch for each cgroup, and the
        processes that are in each."""
        by_folder: dict[Path, list[Watched]] = {}
        folders: dict[str, Path | None] = {}
        for each in watched:
            part = _part(each, self._environments)
            if part not in folders:
                folders[part] = _folder(part, declined)
            if (folder := folders[part]) is not None:
                by_folder.setdefault(folder, []).append(each)
        jobs: dict[int, Watched] = {}
        wanted: dict[Path, Catch] = {}
        known: dict[Path, tuple[object, Catch]] = {}
        covered: dict[Path, frozenset[tuple[int, int]]] = {}
        for folder, own in by_folder.items():
            if len({id(each.job) for each in own}) > 1:
                continue
            jobs.setdefault(id(own[0].job), own[0])
            holds_for = [(each.process, each.rule, each.job and each.job.job.id) for each in own]
            if folder not in self._known or self._known[folder][0] != holds_for:
                known[folder] = holds_for, _catch(own)
            else:
                known[folder] = self._known[folder]
            wanted[folder] = known[folder][1]
            covered[folder] = frozenset(each.key for each in own)
        self._known = known
        return [*jobs.values()], wanted, covered

    def _close(self) -> None:
        if self._catcher is not None:
            self._catcher.close()
        self._catcher, self._loaded = None, None
        self._wanted, self._caught = {}, frozenset()


def _folder(part: str, declined: Set[str]) -> Path | None:
    """The folder of a cgroup, unless one of the declined ones is in it."""
    if not part or any(f"{each}/".startswith(f"{part.rstrip('/')}/") for each in declined):
        return None
    return folder_of(part)


def _part(watched: Watched, environments: Environments) -> str:
    """The path of the cgroup all of whose processes the rule means, if its target and kinds say so
    much; empty if not."""
    rule = watched.rule
    if rule.target != Target(cgroups=rule.target.cgroups) or rule.kinds not in ((), (ALL,)):
        return ""
    if rule.job is not None and is_template(rule.job):  # other parts of it may be other jobs
        by_v2 = _is_by_v2(watched.process, rule, environments)
        return watched.process.cgroup if by_v2 else ""
    return matching_part(watched.process.cgroup, rule.target.cgroups)


def _is_by_v2(process: Process, rule: Rule, environments: Environments) -> bool:
    """Return whether the rule fits, and names the job, by the cgroup that the kernel sees here: one
    of v2 may hold many jobs that hierarchies of v1 tell apart."""
    if not process.more_cgroups:
        return True
    alone = dataclasses.replace(process, more_cgroups=())
    fits = not rule.target.cgroups or matching_part(process.cgroup, rule.target.cgroups)
    assert rule.job is not None
    names = {name_of(rule.job, each, environments) for each in (alone, process)}
    return bool(fits) and len(names) == 1


def _catch(own: list[Watched]) -> Catch:
    job, rule = own[0].job, own[0].rule
    assert job is not None
    observes = rule.congestion_control == OBSERVED
    lowest, ports = (0, ()) if ALL in rule.kinds else ports_of_others(each.process for each in own)
    return Catch(
        job=job.job.id,
        name="" if observes else rule.congestion_control,
        choices=_observers() if observes else {},
        lowest_port=lowest,
        ports=tuple(ports)[:RULE_PORTS],
        stays_here=ALL in rule.kinds,
    )


def _observers() -> dict[str, str]:
    """Return what a socket is observed with, by what it runs."""
    return {name: found for name in (*built_on(), *NAMES) if (found := observer_of(name))}
