"""The processes of this host, and the choice of those that somebody means.

Everything is read from /proc, which shows what belongs to others only in part: what may not be
read is left empty here, and is an error where it is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class Process:
    """A process (a thread group) of this host.

    start_ticks: when it began, in clock ticks since boot (field 22 of /proc/PID/stat); with the pid
        it names a process for good, as pids are given anew.
    uid: effective user. name: as the kernel calls it, at most 15 characters. command: its
    arguments. cgroup: path of its control group (v2, else that of the first v1 hierarchy).
    netns: inode of its network namespace; 0 where this user may not look.
    """

    pid: int
    start_ticks: int
    ppid: int
    uid: int
    name: str
    command: tuple[str, ...]
    cgroup: str
    netns: int


@dataclass(frozen=True)
class Target:
    """Which processes are meant: those that fit each kind of condition that is given.

    pids, trees: one of these processes, or a tree's root or any process below it.
    patterns: regular expressions, of which one is found in the command line.
    cgroups: a path, which stands for all below it too, or a glob for a path's last component
        (`docker-*.scope`, `job_1234`).
    ports: one of the process's TCP sockets listens on it, or is connected to it at the other end.
    netns: its network namespace by name (of /run/netns), path or inode.
    """

    pids: tuple[int, ...] = ()
    trees: tuple[int, ...] = ()
    patterns: tuple[str, ...] = ()
    cgroups: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    netns: tuple[str, ...] = ()

    @classmethod
    def parse(cls, words: Sequence[str]) -> Self:
        """From `1234`, `tree:1234`, `cgroup:NAME`, `port:29500`, `netns:NAME`, `command:REGEX`.

        Any other word is a pattern for the command line. UsageError for what can't be read.
        """
        raise NotImplementedError


def processes() -> list[Process]:
    """Every process but the kernel's own threads, by pid."""
    raise NotImplementedError


def process(pid: int) -> Process:
    """The process of that pid; MltcpError when there is none."""
    raise NotImplementedError


def select(target: Target, candidates: Iterable[Process] | None = None) -> list[Process]:
    """Those of the candidates (all processes, unless given) that the target means.

    Patterns never mean this very process nor what it was started by, whose command lines hold the
    pattern too. An empty target means nothing. Raises UsageError for a network namespace that
    there isn't, HostError where ports are asked for and sockets may not be read.
    """
    raise NotImplementedError
