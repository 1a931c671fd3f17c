# SPDX-License-Identifier: BSD-2-Clause
"""The ways in which a user names some of the processes of this host, and their selection."""

from __future__ import annotations

import os
import pwd
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Self

from mltcp_tools.base.errors import UsageError
from mltcp_tools.kernel.host import cgroups
from mltcp_tools.live.attach.processes import PID_MAX, Process, parent_of, processes
from mltcp_tools.live.attach.sockets import sockets_of

NAMESPACES = Path("/run/netns")


@dataclass(frozen=True)
class Target:
    """The processes that are meant: those that fit each kind of condition that is given.

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

    def __str__(self) -> str:
        """The target in the words of `parse`."""
        kinds = {name: f"{kind}:" for kind, name in _TEXTS.items()} | {
            "pids": "",
            "trees": "tree:",
            "ports": "port:",
            "users": "user:",
        }
        return " ".join(
            f"{kinds[field.name]}{value}"
            for field in fields(self)
            for value in getattr(self, field.name)
        )


_TEXTS = {"command": "patterns", "cgroup": "cgroups", "netns": "netns"}


_KINDS = ("tree", "port", "user", *_TEXTS)


def _number(text: str, what: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise UsageError(f"{text[:20]!r} is not a {what}, a number of at most 9 digits.")
    return int(text)


class UnknownUser(UsageError):
    """No user of this host has that name."""


def user_id(user: str) -> int:
    """The id of a user, by name or number. UsageError where there is no such user."""
    if user.isdecimal():
        return _number(user, "user id")
    try:
        return pwd.getpwnam(user).pw_uid
    except (KeyError, ValueError):
        raise UnknownUser(f"There is no user {user!r} on this host.") from None


def select(target: Target, candidates: Iterable[Process] | None = None) -> list[Process]:
    """Return those of the candidates (all processes, unless given) that the target means.

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
    """Return what each kind of condition but ports, which need the sockets, asks of a process."""
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
            lambda each: any(matching_part(path, target.cgroups) for path in each.cgroups)
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
        pid = parent_of(pid)
    return found


def matching_part(path: str, names: Iterable[str]) -> str:
    """As much of a cgroup's path as one of the names means, so with all below it; empty without."""
    for given in names:
        name = cgroups.below_mount(given)
        if name.startswith("/"):
            if f"{path}/".startswith(name.rstrip("/") + "/"):
                return name.rstrip("/") or "/"
            continue
        parts = path.split("/")
        for number, part in enumerate(parts, 1):
            if part and fnmatchcase(part, name):
                return "/".join(parts[:number])
    return ""


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
    pids = {
        each.process.pid
        for each in sockets_of(candidates)[0]
        if (each.local[1] if each.state == "listen" else each.remote[1]) in ports
    }
    return [each for each in candidates if each.pid in pids]
