# SPDX-License-Identifier: BSD-2-Clause
"""Attach what watched processes open, each connection once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace

from mltcp_tools.base.errors import HostError, MltcpError, reason
from mltcp_tools.base.units import counted, endpoint
from mltcp_tools.kernel.backends.base import Backend, Job
from mltcp_tools.kernel.host.locks import exclusive
from mltcp_tools.live.agent.notices import Notices
from mltcp_tools.live.agent.watchlist import Watched
from mltcp_tools.live.attach.access import DONE, Change
from mltcp_tools.live.attach.all_jobs import is_tcp
from mltcp_tools.live.attach.classify import classify, wanted
from mltcp_tools.live.attach.jobs import named_job
from mltcp_tools.live.attach.processes import Process, processes
from mltcp_tools.live.attach.sockets import CAN_SEND, Socket, socket_descriptors, sockets_of
from mltcp_tools.live.attach.state import LOCK, StateFiles
from mltcp_tools.live.attach.switch import AttachOutcome, Wanted, attach_all

_RETRY_S = 5.0
_DOUBT_S = 0.5
_DOUBT_MOST_S = 60.0
_UNCONNECTED = ("syn-sent", "syn-recv", "close")


def have_new(watched: Iterable[Watched]) -> list[Watched]:
    """Return those of the processes that may have connections which weren't looked at.

    Asking sock_diag takes the kernel a walk over all its sockets, which is too long to do it often;
    which descriptors a process has is known at once.
    """
    found = []
    for each in watched:
        with suppress(HostError):  # the closer look reports it
            if socket_descriptors(each.process).keys() - each.known:
                found.append(each)
    return found


def _known(process: Process, sockets: Iterable[Socket]) -> set[int]:
    """Inodes of the process's sockets that will not become connections unnoticed.

    A TCP socket that isn't connected yet is not one of them; sock_diag doesn't list it at all.
    """
    settled = {each.inode for each in sockets if each.state not in _UNCONNECTED}
    known = set()
    with suppress(HostError):
        for inode, fd in socket_descriptors(process).items():
            if inode in settled or not is_tcp(process.pid, fd):
                known.add(inode)
    return known


def attach_new(
    watched: Iterable[Watched], backend: Backend, notices: Notices, now_s: float
) -> None:
    """Look at the sockets of these processes, whose jobs are known, and attach the new ones."""
    by_key = {each.key: each for each in watched}
    found, refused = sockets_of([each.process for each in by_key.values()])
    own: dict[tuple[int, int], list[Socket]] = {key: [] for key in by_key}
    for process, why in refused:
        notices.warn(f"Process {process.pid}: {why}")
        del own[process.pid, process.start_ticks]
    for sock in found:
        own[sock.process.pid, sock.process.start_ticks].append(sock)
    chosen: dict[tuple[int, int], list[Socket]] = {}
    for key, sockets in own.items():
        by_key[key].known = _known(by_key[key].process, sockets)
        if (fresh := _fresh(by_key[key], sockets, now_s)) and (
            meant := _chosen(by_key[key], sockets, fresh, now_s)
        ):
            chosen[key] = meant
    for name in {each.rule.congestion_control for each in by_key.values()}:
        some = [by_key[key] for key in chosen if by_key[key].rule.congestion_control == name]
        by_job: defaultdict[int, list[tuple[Watched, list[Socket]]]] = defaultdict(list)
        for each in some:
            by_job[id(each.job)].append((each, chosen[each.key]))
        _attach([*by_job.values()], name, backend, notices, now_s)


def forget_closed(files: StateFiles | None = None) -> None:
    """Take records of sockets that no process holds any more out of the state files.

    So a process that opens and closes connections all its life doesn't fill them. What a process
    that can't be looked into holds could not be restored either.
    """
    files = files or StateFiles()
    with exclusive(LOCK):
        states = files.read()
        held: set[int] = set()
        for each in processes():
            with suppress(HostError):
                held |= socket_descriptors(each).keys()
        for state in states:
            left = tuple(record for record in state.sockets if record.inode in held)
            if len(left) < len(state.sockets):
                files.write(replace(state, sockets=left))


def _fresh(watched: Watched, sockets: Sequence[Socket], now_s: float) -> set[int]:
    """Cookies of connections that are not settled yet."""
    cookies = {each.cookie for each in sockets}
    watched.closed |= not watched.settled <= cookies
    watched.settled &= cookies
    watched.ours &= cookies
    watched.left &= cookies
    watched.senders = sum(
        each.cookie in watched.settled and each.bytes_sent > each.bytes_received for each in sockets
    )
    watched.losses = {each: loss for each, loss in watched.losses.items() if each in cookies}
    watched.doubted = {each: when for each, when in watched.doubted.items() if each in cookies}
    return {
        each.cookie
        for each in sockets
        if each.state in CAN_SEND
        and each.cookie not in watched.settled | watched.left
        and now_s >= watched.doubted.get(each.cookie, (0.0, 0.0))[0]
    }


def _chosen(
    watched: Watched, sockets: Sequence[Socket], fresh: set[int], now_s: float
) -> list[Socket]:
    """Return those of the fresh ones that the rule means; a later look may judge the others
    differently, as what a connection carries shows by and by.
    """
    meant = wanted(classify(watched.process, sockets), watched.rule.kinds)
    chosen = [each for each in meant if each.cookie in fresh]
    for cookie in fresh - {each.cookie for each in chosen}:
        wait_s = min(_DOUBT_MOST_S, 2 * watched.doubted.get(cookie, (0.0, _DOUBT_S / 2))[1])
        watched.doubted[cookie] = (now_s + wait_s, wait_s)
    return chosen


def _attach(
    jobs: Sequence[Sequence[tuple[Watched, Sequence[Socket]]]],
    name: str,
    backend: Backend,
    notices: Notices,
    now_s: float,
) -> None:
    """Give that congestion control to these connections: of each job, those of its processes."""
    wanted = [
        Wanted([sock for _, own in job for sock in own], _finder(job[0][0], backend), name)
        for job in jobs
    ]
    try:
        done = attach_all(wanted, backend) if wanted else []
    except (MltcpError, OSError) as error:
        done = [AttachOutcome(error=error)] * len(jobs)
    for job, attached in zip(jobs, done, strict=True):
        for watched, sockets in job:
            _take_over(watched, sockets, attached, notices, now_s)


def _finder(watched: Watched, backend: Backend) -> Callable[[StateFiles], Job]:
    """Return the finder of the process's job, whose id is reserved only then."""
    assert watched.job is not None
    job = watched.job.job
    given = asdict(job.params)
    return lambda present: named_job(job.name, backend, given, present, preferred=job.id)


def _take_over(
    watched: Watched,
    sockets: Sequence[Socket],
    attached: AttachOutcome,
    notices: Notices,
    now_s: float,
) -> None:
    """Know what became of a process's connections, and say it."""
    assert watched.job is not None
    try:
        watched.job.job, found = attached.get()
    except (MltcpError, OSError) as error:
        notices.warn(f"{watched.job.job.name}, process {watched.process.pid}: {reason(error)}")
        for each in sockets:
            watched.doubted[each.cookie] = (now_s + _RETRY_S, _RETRY_S)
        return
    own = {each.cookie for each in sockets}
    changes = [each for each in found if each.socket.cookie in own]
    watched.settled |= {each.socket.cookie for each in changes if each.outcome != "gone"}
    watched.ours |= {each.socket.cookie for each in changes if each.outcome in DONE}
    watched.attached |= any(each.outcome in DONE for each in changes)
    _report(watched, changes, notices)


def _report(watched: Watched, changes: Sequence[Change], notices: Notices) -> None:
    done = [each for each in changes if each.outcome in DONE]
    if done:
        olds = ", ".join(sorted({each.first or each.old for each in done}))
        count = counted(len(done), "connection")
        notices.tell(
            f"attaching {done[0].job}",
            f"{done[0].job}: {count} of process {watched.process.pid} attached"
            f" ({olds} -> {done[0].new}).",
            f"{done[0].job}: further connections are attached without a message for each.",
        )
    for each in changes:
        if each.outcome in ("failed", "taken"):
            notices.say(
                f"{each.job}: {endpoint(*each.socket.remote)} is not attached: {each.reason}."
            )
