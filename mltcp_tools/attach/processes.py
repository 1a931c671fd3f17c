"""The processes of this host, and how a user names some of them.

Everything is read from /proc, which shows what belongs to others only in part: what may not be
read is left empty here, and is an error where it is needed.
"""

from __future__ import annotations

import os
import pwd
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Self

from mltcp_tools.errors import MltcpError, UsageError

PROC = Path("/proc")
NAMESPACES = Path("/run/netns")
PID_MAX = 2**22
"""Largest pid of any Linux (PID_MAX_LIMIT in linux/threads.h)."""

COMMAND_MAX = 4096
"""Bytes of a command line that are read, as its process may make it any length to keep a pattern
busy with it."""

_KERNEL_THREAD = 0x00200000  # PF_KTHREAD of linux/sched.h


@dataclass(frozen=True)
class Process:
    """A process (a thread group) of this host.

    start_ticks: when it began, in clock ticks since boot (field 22 of /proc/PID/stat); with the pid
        it names a process for good, as pids are given anew.
    uid: effective user. name: as the kernel calls it, at most 15 characters, `?` for those that
    don't print. command: its arguments, up to COMMAND_MAX bytes.
    cgroup: path of its control group (v2; where that is the root, the longest of v1).
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

    def is_running(self) -> bool:
        """Whether it is still there: another one with its pid is another process."""
        return is_running(self.pid, self.start_ticks)


@dataclass(frozen=True)
class Target:
    """Which processes are meant: those that fit each kind of condition that is given.

    pids, trees: one of these processes, or a tree's root or any process below it.
    patterns: regular expressions, of which one is found in the command line.
    cgroups: a path, or a glob for one component of a path (`docker-*.scope`, `job_1234`); either
        stands for all below it too.
    ports: one of the process's TCP sockets listens on it, or is connected to it at the other end.
    netns: its network namespace by name (of /run/netns), path or inode.
    users: effective user ids. Everybody may start a process with any command line.
    """

    pids: tuple[int, ...] = ()
    trees: tuple[int, ...] = ()
    patterns: tuple[str, ...] = ()
    cgroups: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    netns: tuple[str, ...] = ()
    users: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for pid in (*self.pids, *self.trees):
            if not 1 <= pid <= PID_MAX:
                raise UsageError(f"{pid} is not a process id; they are 1 to {PID_MAX}.")
        for port in self.ports:
            if not 1 <= port <= 65535:
                raise UsageError(f"{port} is not a TCP port; they are 1 to 65535.")
        for pattern in self.patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise UsageError(
                    f"The pattern {pattern!r} is not a regular expression: {error}."
                ) from None
        if "" in (*self.patterns, *self.cgroups, *self.netns):
            raise UsageError(
                "An empty pattern, cgroup or network namespace means nothing; name one."
            )

    @classmethod
    def parse(cls, words: Sequence[str]) -> Self:
        """From `1234`, `tree:1234`, `cgroup:NAME`, `port:29500`, `netns:NAME`, `user:NAME`,
        `command:REGEX`.

        Any other word is a pattern for the command line, unless it begins like NAME:. UsageError
        for what can't be read.
        """
        found: dict[str, list[int | str]] = defaultdict(list)
        for word in words:
            kind, colon, value = word.partition(":")
            if not colon and word.isdecimal():
                found["pids"].append(_number(word, "process id"))
            elif kind == "tree" and colon:
                found["trees"].append(_number(value, "process id"))
            elif kind == "port" and colon:
                found["ports"].append(_number(value, "port"))
            elif kind == "user" and colon:
                found["users"].append(user_id(value))
            elif kind in _TEXTS and colon:
                found[_TEXTS[kind]].append(value)
            elif colon and re.fullmatch(r"[\w.-]+", kind):
                raise UsageError(
                    f"{word!r} begins with no kind of target ({', '.join(_KINDS)}); a port is"
                    " port:29500, and a pattern with a colon is command:REGEX."
                )
            else:
                found["patterns"].append(word)
        return cls(**{name: tuple(values) for name, values in found.items()})  # type: ignore[arg-type]


_TEXTS = {"command": "patterns", "cgroup": "cgroups", "netns": "netns"}


_KINDS = ("tree", "port", "user", *_TEXTS)


def _number(text: str, what: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise UsageError(f"{text[:20]!r} is not a {what}, a number of at most 9 digits.")
    return int(text)


def user_id(user: str) -> int:
    """The id of a user, by name or number. UsageError where there is no such user."""
    if user.isdecimal():
        return _number(user, "user id")
    try:
        return pwd.getpwnam(user).pw_uid
    except (KeyError, ValueError):
        raise UsageError(f"There is no user {user!r} on this host.") from None


def is_running(pid: int, start_ticks: int) -> bool:
    """Whether the process that has the pid now is the one that began then."""
    stat = _read_stat(pid)
    return stat is not None and stat.start_ticks == start_ticks


def processes(known: Mapping[tuple[int, int], Process] | None = None) -> list[Process]:
    """Every process but the kernel's own threads, by pid.

    known: by pid and start, those that need not be read again as long as they run and are called
    the same; becoming another program changes the name.
    """
    found = (_read_process(int(name), known or {}) for name in os.listdir(PROC) if name.isdecimal())
    return sorted((each for each in found if each is not None), key=lambda each: each.pid)


def process(pid: int) -> Process:
    """The process of that pid; MltcpError when there is none."""
    found = _read_process(pid, {})
    if found is None:
        raise MltcpError(f"There is no process {pid}; `mltcp ps` shows training processes.")
    return found


def select(target: Target, candidates: Iterable[Process] | None = None) -> list[Process]:
    """Those of the candidates (all processes, unless given) that the target means.

    Patterns never mean this very process nor what it was started by, whose command lines hold the
    pattern too; a port means no process whose sockets may not be read. An empty target means
    nothing. Raises UsageError for a network namespace that there isn't.
    """
    if not any(getattr(target, field.name) for field in fields(target)):
        return []
    chosen = processes() if candidates is None else list(candidates)
    for fits in _conditions(target):
        chosen = [each for each in chosen if fits(each)]
    return _with_port(chosen, target.ports) if target.ports else chosen


def _conditions(target: Target) -> list[Callable[[Process], bool]]:
    """What each kind of condition but ports, which need the sockets, asks of a process."""
    conditions: list[Callable[[Process], bool]] = []
    if target.pids or target.trees:
        pids = {*target.pids, *(_trees(target.trees) if target.trees else ())}
        conditions.append(lambda each: each.pid in pids)
    if target.patterns:
        patterns = [re.compile(pattern) for pattern in target.patterns]
        ours = _ancestry(os.getpid())
        conditions.append(
            lambda each: (
                each.pid not in ours
                and any(pattern.search(" ".join(each.command)) for pattern in patterns)
            )
        )
    if target.cgroups:
        conditions.append(
            lambda each: any(_in_cgroup(each.cgroup, name) for name in target.cgroups)
        )
    if target.netns:
        inodes = {netns_inode(name) for name in target.netns}
        conditions.append(lambda each: each.netns in inodes)
    if target.users:
        conditions.append(lambda each: each.uid in target.users)
    return conditions


def _trees(roots: Iterable[int]) -> set[int]:
    """The pids of the roots and of all processes below them."""
    children = defaultdict(list)
    for each in processes():
        children[each.ppid].append(each.pid)
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting += children[pid]
    return found


def _ancestry(pid: int) -> set[int]:
    """The pid, its parent's, and so on."""
    found: set[int] = set()
    while pid and pid not in found:
        found.add(pid)
        stat = _read_stat(pid)
        pid = stat.ppid if stat else 0
    return found


def _in_cgroup(path: str, name: str) -> bool:
    if name.startswith("/"):
        return f"{path}/".startswith(name.rstrip("/") + "/")
    return any(fnmatchcase(part, name) for part in path.split("/") if part)


def netns_inode(name: str) -> int:
    """Inode of the network namespace of that name (of /run/netns), path or inode."""
    if name.isdecimal():
        return int(name)
    path = Path(name) if name.startswith("/") else NAMESPACES / name
    try:
        return path.stat().st_ino
    except OSError as error:
        raise UsageError(
            f"There is no network namespace {name!r} ({path}: {error.strerror}); see `ip netns`."
        ) from None


def _with_port(candidates: list[Process], ports: Sequence[int]) -> list[Process]:
    from mltcp_tools.attach.sockets import sockets_of  # which is made of processes itself

    pids = {
        each.process.pid
        for each in sockets_of(candidates)[0]
        if (each.local[1] if each.state == "listen" else each.remote[1]) in ports
    }
    return [each for each in candidates if each.pid in pids]


@dataclass(frozen=True)
class _Stat:
    """The fields of /proc/PID/stat that matter here (proc_pid_stat(5))."""

    name: str
    ppid: int
    flags: int
    start_ticks: int


def _read_stat(pid: int) -> _Stat | None:
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:  # it has ended, or hidepid keeps it from us
        return None
    head, _, tail = text.rpartition(")")  # the name may hold blanks and parentheses
    values = tail.split()
    if values[0] in ("Z", "X"):  # ended, and only its parent has yet to notice
        return None
    name = "".join(char if char.isprintable() else "?" for char in head.partition("(")[2])
    return _Stat(name, int(values[1]), int(values[6]), int(values[19]))


def _read_process(pid: int, known: Mapping[tuple[int, int], Process]) -> Process | None:
    stat = _read_stat(pid)
    if stat is None or stat.flags & _KERNEL_THREAD:
        return None
    before = known.get((pid, stat.start_ticks))
    if before is not None and before.name == stat.name:
        return before
    folder = PROC / str(pid)
    try:
        with open(folder / "cmdline", "rb") as file:
            command = file.read(COMMAND_MAX).decode(errors="replace")
        status = (folder / "status").read_text(errors="replace")
        cgroup = (folder / "cgroup").read_text(errors="replace")
    except OSError:
        return None
    found = Process(
        pid,
        stat.start_ticks,
        stat.ppid,
        _effective_uid(status),
        stat.name,
        tuple(command.rstrip("\0").split("\0")) if command else (),
        _cgroup(cgroup),
        _inode_of_link(folder / "ns/net"),
    )
    # The pid may have passed to another process between these files.
    return found if found.is_running() else None


def _effective_uid(status: str) -> int:
    (line,) = (line for line in status.splitlines() if line.startswith("Uid:"))
    return int(line.split()[2])


def _cgroup(text: str) -> str:
    paths = {line.split(":", 2)[0]: line.split(":", 2)[2] for line in text.splitlines()}
    unified = paths.get("0", "/")
    return unified if unified != "/" else max(paths.values(), key=len, default="/")


def _inode_of_link(link: Path) -> int:
    """The number in `net:[4026531840]`; 0 where it may not be read."""
    try:
        return int(os.readlink(link).partition("[")[2].rstrip("]"))
    except OSError:
        return 0
