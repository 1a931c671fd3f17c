# SPDX-License-Identifier: BSD-2-Clause
"""The environments with which processes were started, as far as /proc still shows them.

A program that renames itself (setproctitle, as vLLM, SGLang, Ray and sshd do) writes its title over
its arguments and its environment. A variable that was lost this way is unknown, not absent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from mltcp_tools.live.attach.processes import PROC, Process, arguments_bytes

_LONGEST = 1 << 20
"""Bytes of an environment that are read."""

_Key = tuple[int, int, int]


class Environment:
    """The variables of one process. data: of /proc/PID/environ. overrun: its title is so long that
    it reaches into the environment."""

    def __init__(self, data: bytes, overrun: bool = False) -> None:
        *entries, rest = data.split(b"\0")
        pairs = [each.partition(b"=") for each in entries]
        self._whole = not overrun and not rest and all(equals for _, equals, _ in pairs)
        self._values: dict[str, str] = {}
        for name, _, value in pairs:
            self._values.setdefault(name.decode(errors="replace"), value.decode(errors="replace"))

    def get(self, name: str) -> str | None:
        """The value of a variable: empty if it wasn't set, None if that is unknown."""
        return self._values.get(name, "" if self._whole else None)


def read_environment(pid: int, proc: Path = PROC) -> Environment | None:
    """Return the environment of a process; None if it can't be read."""
    try:
        with open(proc / str(pid) / "environ", "rb") as file:
            data = file.read(_LONGEST)
        overrun = False
        if size := arguments_bytes(pid, proc):
            with open(proc / str(pid) / "cmdline", "rb") as file:
                overrun = len(file.read(size + 1)) > size
    except OSError:  # another user's, or it has ended
        return None
    return Environment(data, overrun)


class Environments:
    """Variables as they were when their processes were first seen, until those exec."""

    def __init__(self) -> None:
        self._seen: dict[_Key, tuple[Process, dict[str, str | None]]] = {}

    def see(self, found: Iterable[Process], names: Collection[str]) -> None:
        """Read these variables of the processes whose variables aren't known yet."""
        for each in found:
            if not each.image:  # it is in the middle of an exec
                continue
            before = self._seen.get(_key(each))
            values = before[1] if before else {}
            missing = [name for name in names if name not in values]
            if missing and (environment := read_environment(each.pid)) and each.is_running():
                values |= {name: environment.get(name) for name in missing}
            if values:
                self._seen[_key(each)] = each, values

    def keep(self, alive: Iterable[Process]) -> None:
        """Forget all processes but these."""
        keys = {_key(each) for each in alive}
        self._seen = {key: each for key, each in self._seen.items() if key in keys}

    def get(self, process: Process, name: str) -> str | None:
        """The value of a variable that was asked for in `see`: empty if it wasn't set, None if that
        is unknown.

        Where the process's own environment is gone, the nearest parent of the same user and cgroup
        that has the variable speaks for it; else the cgroup, if all of this user's processes there
        have the same value. That they lack the variable proves nothing for this process.
        """
        own = self._own(process, name)
        if own is not None:
            return own
        parents = list(self._parents(process))
        for each in parents:
            value = self._own(each, name)
            if value is not None and each.image == process.image:  # it has forked, and no exec
                return value
            if value and _belong_together(each, process):
                return value
        if process.cgroup == "/":
            return None
        values = {
            there[name]
            for each, there in self._seen.values()
            if there.get(name) is not None and _belong_together(each, process)
        }
        return (values.pop() or None) if len(values) == 1 else None

    def _own(self, process: Process, name: str) -> str | None:
        values: Mapping[str, str | None] = self._seen.get(_key(process), (process, {}))[1]
        return values.get(name)

    def _parents(self, process: Process) -> Iterator[Process]:
        """Its parent, that one's, and so on, as far as they were seen."""
        by_pid = {each.pid: each for each, _ in self._seen.values()}
        passed = {process.pid}
        while (parent := by_pid.get(process.ppid)) is not None and parent.pid not in passed:
            passed.add(parent.pid)
            yield parent
            process = parent


def _key(process: Process) -> _Key:
    return process.pid, process.start_ticks, process.image


def _belong_together(one: Process, other: Process) -> bool:
    return (one.uid, one.cgroup) == (other.uid, other.cgroup)
