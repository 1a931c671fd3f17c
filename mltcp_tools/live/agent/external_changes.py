# SPDX-License-Identifier: BSD-2-Clause
"""Attached connections that somebody else detaches, moves to another job, gives back or switches.

What an operator does by hand overrides the rules: the agent reports it and leaves it so. A program
that sets their congestion control again and again is named, and given ever more time.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import replace

from mltcp_tools.base.errors import HostError, reason
from mltcp_tools.base.units import counted
from mltcp_tools.kernel.backends.base import Job
from mltcp_tools.kernel.backends.bpf_catch import CATCHING
from mltcp_tools.kernel.host import cgroups
from mltcp_tools.kernel.native.bpf_maps import sock_ops_programs
from mltcp_tools.live.agent.notices import Notices
from mltcp_tools.live.agent.watchlist import Loss, Watched
from mltcp_tools.live.attach.sockets import CAN_SEND, sockets_of
from mltcp_tools.live.attach.state import StateFiles

_AGAIN_S = 60.0
"""Lost within that of being attached anew, a connection is lost again, and not by an unload."""

_WAIT_S = 1.0
_WAIT_MOST_S = 300.0


def notice_taken(
    watched: Iterable[Watched],
    tags: Mapping[int, int],
    notices: Notices,
    files: StateFiles | None = None,
) -> None:
    """Compare what is attached, as known here, with what the kernel shows and what is on record.

    tags: the job of each flow by its cookie, as just read. The records are read only where these
    differ from what is expected, or something is left alone.
    """
    known = [each for each in watched if each.job is not None]
    if not any(each.left or _missing(each, tags) for each in known):
        return
    owners = {
        record.cookie: state.job
        for state in (files or StateFiles()).read()
        for record in state.sockets
    }
    for each in known:
        _notice(each, tags, owners, notices)


def _missing(watched: Watched, tags: Mapping[int, int]) -> set[int]:
    """Cookies of attached connections that the kernel doesn't show as this job's."""
    assert watched.job is not None
    return {cookie for cookie in watched.ours if tags.get(cookie) != watched.job.job.id}


def _notice(
    watched: Watched, tags: Mapping[int, int], owners: Mapping[int, Job], notices: Notices
) -> None:
    assert watched.job is not None
    job, pid = watched.job.job, watched.process.pid
    # What is on record as this job's is so, though the kernel has lost its tag by an unload.
    taken = {
        cookie
        for cookie in _missing(watched, tags)
        if cookie not in owners or owners[cookie].name != job.name
    }
    watched.ours -= taken
    # What is missing may have closed since it was looked at, which is nobody's doing.
    taken = {each for each in taken if each in owners} | _open(watched, taken - owners.keys())
    watched.left |= taken
    missing = _missing(watched, tags)
    watched.ours -= missing
    if lost := _open(watched, missing):
        _take_in_again(watched, lost, notices)
    where = Counter(owners[cookie].name if cookie in owners else "" for cookie in taken)
    for other, count in where.items():
        what = f"{job.name}: {counted(count, 'connection')} of process {pid}"
        if other:
            notices.say(
                f"{what} moved by hand to job {other}, job {job.name} -> {other};"
                f" `mltcp detach {other}` restores the original."
            )
        else:
            notices.say(
                f"{what} detached by hand, and left detached; `mltcp attach {pid} --job"
                f" {job.name}` gives them back."
            )
    back = {
        cookie for cookie in watched.left if cookie in owners and owners[cookie].name == job.name
    }
    if back:
        watched.left -= back
        watched.ours |= back
        watched.job.job = replace(job, id=owners[next(iter(back))].id)
        notices.say(f"{job.name}: {counted(len(back), 'connection')} of process {pid} given back.")


def _take_in_again(watched: Watched, lost: Set[int], notices: Notices) -> None:
    """Have lost connections attached anew: at once, or later if they are lost again and again."""
    assert watched.job is not None
    now_s, name, pid = time.monotonic(), watched.job.job.name, watched.process.pid
    again = {
        each: loss
        for each in lost
        if (loss := watched.losses.get(each)) and now_s - loss.at_s < loss.wait_s + _AGAIN_S
    }
    for each in lost:
        count, wait_s = 1, 0.0
        if each in again:
            count = again[each].count + 1
            wait_s = min(_WAIT_MOST_S, max(_WAIT_S, 2 * again[each].wait_s))
            watched.doubted[each] = now_s + wait_s, wait_s
        watched.losses[each] = Loss(now_s, count, wait_s)
    watched.settled -= lost
    watched.known = set()
    if len(again) < len(lost):
        notices.say(
            f"{name}: the kernel has lost {counted(len(lost) - len(again), 'connection')} of"
            f" process {pid}, probably by an unload; attaching them again."
        )
    if again:
        most = max((watched.losses[each] for each in again), key=lambda loss: loss.count)
        watched.job.overridden = (
            now_s + 2 * _WAIT_MOST_S,
            f"{name}: another program sets the congestion control of"
            f" {counted(len(again), 'connection')} of process {pid}, {most.count} times so"
            " far (sock_ops programs of its cgroups:"
            f" {_others_programs(watched.process.cgroup)}); stop that program, or leave the job out"
            " of the rules.",
        )
        sentence = f"{watched.job.overridden[1]} Next try in {most.wait_s:g} s."
        notices.tell(f"overriding {name}", sentence, f"{name}: this goes on.")


def _others_programs(cgroup: str) -> str:
    """Names of the programs, but ours, that see each connection of a cgroup, each with where it is
    attached."""
    found = []
    try:
        folder = cgroups.root() / cgroup.removeprefix("/")
        while folder.is_relative_to(cgroups.root()):
            for name in sock_ops_programs(folder):
                if name != CATCHING:
                    found.append(f"{name} of {cgroups.below_mount(str(folder))}")
            folder = folder.parent
    except (HostError, OSError) as error:
        return f"unknown, {reason(error)}"
    return ", ".join(found) or "none"


def _open(watched: Watched, cookies: Set[int]) -> set[int]:
    """Return those of the process's connections that are there now."""
    if not cookies:
        return set()
    found, _ = sockets_of([watched.process])
    return {each.cookie for each in found if each.state in CAN_SEND} & cookies
