# SPDX-License-Identifier: BSD-2-Clause
"""The interface by which new connections of cgroups are a job's before their first data.

With eBPF they are switched and tagged (bpf_catch); the module tags those that run one of its
congestion controls by themselves (kmod_catch).
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mltcp_tools.base.errors import HostError
from mltcp_tools.kernel.host import cgroups
from mltcp_tools.kernel.host.closing import Closing
from mltcp_tools.kernel.native.uapi import RULE_PORTS

CHOICES = 16
"""MLTCP_CHOICES of bpf/attach.bpf.h."""


@dataclass(frozen=True)
class Catch:
    """A rule for new connections. job: id of the one that they get.

    name: the congestion control that they get; empty: the one that `choices` has for what they run,
    and none where it has none; at most CHOICES of them. lowest_port, ports: connections with a port
    below, or with one of these, are left alone; at most RULE_PORTS of them. stays_here: whether
    connections within this host are taken, too (the module takes them in any case).
    """

    job: int
    name: str = ""
    choices: Mapping[str, str] = field(default_factory=dict)
    lowest_port: int = 0
    ports: tuple[int, ...] = ()
    stays_here: bool = True

    def __post_init__(self) -> None:
        if len(self.ports) > RULE_PORTS:
            raise ValueError(f"at most {RULE_PORTS} ports")
        if len(self.choices) > CHOICES:
            raise ValueError(f"at most {CHOICES} choices")

    @property
    def padded_ports(self) -> tuple[int, ...]:
        """All RULE_PORTS of them; 0: none."""
        return (*self.ports, *[0] * (RULE_PORTS - len(self.ports)))


class Catcher(Closing):
    """Catches new connections of cgroups for as long as this process lives, and no longer."""

    switches: bool
    """True: connections are given the congestion control, too, so that none need be looked at."""

    def __init__(self) -> None:
        self._rules: dict[Path, tuple[Catch, int]] = {}
        """In force, each with its cgroup's id: another one may come to have the same path."""

    def set(self, wanted: Mapping[Path, Catch]) -> None:
        """Catch for these cgroups, by their folders, and for no others.

        One that is gone meanwhile is passed over. HostError names the first one for which the
        kernel refuses it; nothing is caught for that one then, and as is wanted for the others.
        """
        for path in [*self._rules]:
            if path not in wanted:
                self._stop(path)
        refusals = []
        for path, rule in wanted.items():
            try:
                self._set(path, rule)
            except HostError as refusal:
                refusals.append(refusal)
        if refusals:
            raise refusals[0]

    def _set(self, path: Path, rule: Catch) -> None:
        try:
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            self._stop(path)
            return
        try:
            cgroup = os.fstat(folder).st_ino
            before, known_as = self._rules.get(path, (None, cgroup))
            if known_as != cgroup:
                self._stop(path)
            elif before == rule:
                return
            begun = False
            try:
                begun = self._begin(path, folder, rule)
            finally:
                if begun:
                    self._rules[path] = rule, cgroup
                else:
                    self._stop(path)
        finally:
            os.close(folder)

    def _stop(self, path: Path) -> None:
        if path in self._rules:
            _, cgroup = self._rules.pop(path)
            self._end(path, cgroup)

    @abstractmethod
    def _begin(self, path: Path, folder: int, rule: Catch) -> bool:
        """Catch for the cgroup, a descriptor of whose folder is given, in place of what was there.

        False: it, or its job, has gone meanwhile. Raises HostError. What was there stays with both.
        """

    @abstractmethod
    def _end(self, path: Path, cgroup: int) -> None:
        """Catch no more for the cgroup with this id, which may have gone."""

    @property
    def cgroups(self) -> list[Path]:
        """For which new connections are caught."""
        return [*self._rules]


def folder_of(path: str) -> Path | None:
    """The folder of a cgroup by its path below the mount; None where it isn't one of version 2, or
    is the root, which is nobody's job."""
    if path.strip("/") == "":
        return None
    try:
        folder = cgroups.root() / path.strip("/")
    except HostError:
        return None
    return folder if (folder / "cgroup.procs").exists() else None
