# SPDX-License-Identifier: BSD-2-Clause
"""The processes of this host.

Everything is read from /proc, which shows what belongs to others only in part: what may not be
read is left empty here, and is an error where it is needed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mltcp_tools.base.errors import MltcpError

PROC = Path("/proc")
PID_MAX = 2**22
"""Largest pid of any Linux (PID_MAX_LIMIT in linux/threads.h)."""

COMMAND_MAX = 4096
"""Bytes of a command line that are read, as its process may make it any length to keep a pattern
busy with it."""

_KERNEL_THREAD = 0x00200000  # PF_KTHREAD of linux/sched.h
_EXITING = 0x4  # PF_EXITING


@dataclass(frozen=True)
class Process:
    """A process (a thread group) of this host.

    start_ticks: when it began, in clock ticks since boot (field 22 of /proc/PID/stat); with the pid
        it names a process for good, as pids are given anew.
    uid: effective user. name: as the kernel calls it, at most 15 characters, `?` for those that
    don't print. command: its arguments, up to COMMAND_MAX bytes.
    cgroup: path of its control group (v2; where that is the root, the longest of v1).
    netns: inode of its network namespace; 0 where this user may not look.
    more_cgroups: its other paths, in hierarchies of v1; Slurm and others may use one of them alone.
    image: address of its environment's end, which differs after an exec and is kept by a fork; 0
        where this user may not look, and in the middle of an exec.
    """

    pid: int
    start_ticks: int
    ppid: int
    uid: int
    name: str
    command: tuple[str, ...]
    cgroup: str
    netns: int
    more_cgroups: tuple[str, ...] = ()
    image: int = 0

    @property
    def cgroups(self) -> tuple[str, ...]:
        """All of its paths, `cgroup` first."""
        return (self.cgroup, *self.more_cgroups)

    def is_running(self) -> bool:
        """Return whether it is still there: another one with its pid is another process."""
        return is_running(self.pid, self.start_ticks)


def is_running(pid: int, start_ticks: int) -> bool:
    """Return whether the process that has the pid now is the one that began then."""
    stat = _read_stat(pid)
    return stat is not None and stat.start_ticks == start_ticks


def parent_of(pid: int) -> int:
    """The pid of a process's parent; 0 where there is none to be seen."""
    stat = _read_stat(pid)
    return stat.ppid if stat else 0


def arguments_bytes(pid: int, proc: Path | None = None) -> int:
    """Bytes that a process's arguments took at its start; 0 where this user may not look."""
    stat = _read_stat(pid, proc)
    return stat.arguments_bytes if stat else 0


def processes(known: Mapping[tuple[int, int], Process] | None = None) -> list[Process]:
    """Every process but the kernel's own threads, by pid.

    known: by pid and start, those that need not be read again as long as they run and are called
    the same, and are the same program.
    """
    found = (_read_process(int(name), known or {}) for name in os.listdir(PROC) if name.isdecimal())
    return sorted((each for each in found if each is not None), key=lambda each: each.pid)


def process(pid: int) -> Process:
    """The process of that pid; MltcpError when there is none."""
    found = _read_process(pid, {})
    if found is None:
        raise MltcpError(
            f"There is no process {pid}; `mltcp connections` shows training processes."
        )
    return found


@dataclass(frozen=True)
class _Stat:
    """The fields of /proc/PID/stat that matter here (proc_pid_stat(5))."""

    name: str
    ppid: int
    flags: int
    start_ticks: int
    arguments_bytes: int
    image: int


def _read_stat(pid: int, proc: Path | None = None) -> _Stat | None:
    try:
        text = ((proc or PROC) / str(pid) / "stat").read_text(errors="replace")
    except OSError:  # it has ended, or hidepid keeps it from us
        return None
    head, _, tail = text.rpartition(")")  # the name may hold blanks and parentheses
    values = tail.split()
    # One that ends has let go of its files before it is a zombie: freeing eBPF's takes a while.
    if values[0] in ("Z", "X") or int(values[6]) & _EXITING:
        return None
    name = "".join(char if char.isprintable() else "?" for char in head.partition("(")[2])
    # Fields 48, 49 and 51 are arg_start, arg_end and env_end.
    ppid, flags, start_ticks, begin, end, image = (int(values[n]) for n in (1, 6, 19, 45, 46, 48))
    return _Stat(name, ppid, flags, start_ticks, end - begin, image)


def _read_process(pid: int, known: Mapping[tuple[int, int], Process]) -> Process | None:
    stat = _read_stat(pid)
    if stat is None or stat.flags & _KERNEL_THREAD:
        return None
    before = known.get((pid, stat.start_ticks))
    if before is not None and (before.name, before.image) == (stat.name, stat.image):
        return before
    folder = PROC / str(pid)
    try:
        with open(folder / "cmdline", "rb") as file:
            command = file.read(COMMAND_MAX).decode(errors="replace")
        status = (folder / "status").read_text(errors="replace")
        cgroup = (folder / "cgroup").read_text(errors="replace")
    except OSError:
        return None
    first, *more = _cgroups(cgroup)
    found = Process(
        pid,
        stat.start_ticks,
        stat.ppid,
        _effective_uid(status),
        stat.name,
        tuple(command.rstrip("\0").split("\0")) if command else (),
        first,
        _inode_of_link(folder / "ns/net"),
        tuple(more),
        stat.image,
    )
    # The pid may have passed to another process between these files.
    return found if found.is_running() else None


def _effective_uid(status: str) -> int:
    (line,) = (line for line in status.splitlines() if line.startswith("Uid:"))
    return int(line.split()[2])


def _cgroups(text: str) -> list[str]:
    """The paths of /proc/PID/cgroup, each once: that of v2, then the longest first; no roots,
    unless there is nothing else."""
    paths = {line.split(":", 2)[0]: line.split(":", 2)[2] for line in text.splitlines()}
    unified = paths.pop("0", "/")
    found = dict.fromkeys([unified, *sorted(paths.values(), key=len, reverse=True)])
    return [each for each in found if each != "/"] or ["/"]


def _inode_of_link(link: Path) -> int:
    """The number in `net:[4026531840]`; 0 where it may not be read."""
    try:
        return int(os.readlink(link).partition("[")[2].rstrip("]"))
    except OSError:
        return 0
