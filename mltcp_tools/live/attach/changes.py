# SPDX-License-Identifier: BSD-2-Clause
"""Changes: what each socket was before an attach, what it is to be, and what became of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mltcp_tools.base.errors import BusyError, MltcpError
from mltcp_tools.kernel.backends.base import Job
from mltcp_tools.kernel.congestion_controls import NAMES, OBSERVED, observer_of
from mltcp_tools.live.attach.access import Sight
from mltcp_tools.live.attach.sockets import Socket
from mltcp_tools.live.attach.state import AttachedJob, StateFiles

DONE = ("switched", "tagged")
"""Outcomes of a socket that is attached."""


@dataclass(frozen=True)
class Change:
    """The outcome for one socket. old, new: congestion control before and after, as read back.

    outcome: `switched`; `tagged` (it ran that congestion control already); `planned` (a dry run);
    `gone` (the socket or its process went in between, which is no error); `taken` (it is another
    job's, and stays so); `failed` (it is as it was, unless `reason` says otherwise).
    before: the job that it belonged to, empty without any. first: what it ran before it was first
    attached, empty where it isn't attached.
    """

    socket: Socket
    job: str
    old: str
    new: str
    outcome: str
    reason: str = ""
    before: str = ""
    first: str = ""


@dataclass(frozen=True)
class Wanted:
    """Sockets, the job that they are to belong to, asked for when it is set, and what they get.

    find_job: is given what is on record then.
    """

    sockets: Sequence[Socket]
    find_job: Callable[[StateFiles], Job]
    congestion_control: str


@dataclass
class Outcome:
    """The outcome for one job: the job and what became of each socket, or why nothing was done."""

    job: Job | None = None
    changes: list[Change] = field(default_factory=list)
    error: MltcpError | OSError | None = None

    def get(self) -> tuple[Job, list[Change]]:
        """The job and the changes. Raises the error."""
        if self.error is not None:
            raise self.error
        assert self.job is not None
        return self.job, self.changes


def as_seen(sock: Socket, job: str, sight: Sight, firsts: Mapping[int, str]) -> Change:
    """Return what the socket runs; where it is still there, its outcome is open.

    firsts: what is on record of sockets, by cookie.
    """
    first = ""
    if sight.name in NAMES:  # else somebody has switched it since it was attached, if it was
        first = firsts.get(sock.cookie, sight.first)
    outcome = "gone" if sight.gone else ""
    return Change(sock, job, sight.name, sight.name, outcome, sight.gone, first=first)


def mark_taken(
    changes: Sequence[Change],
    tagged: Mapping[int, int],
    states: Sequence[AttachedJob],
    move: bool | None,
) -> list[Change]:
    """The changes with the job that each socket belongs to now, if to another one than is meant.

    tagged: ids of jobs by cookie; the kernel may have caught a socket that isn't on record yet.
    move: as in switch.attach, with its BusyError.
    """
    names = {state.job.id: state.job.name for state in states}
    owners = {cookie: names[job] for cookie, job in tagged.items() if job in names}
    owners |= {each.cookie: state.job.name for state in states for each in state.sockets}
    marked = []
    for change in changes:
        owner = owners.get(change.socket.cookie, change.job)
        if not change.outcome and owner != change.job:
            change = replace(change, before=owner)
            if move is None:
                reason = f"it belongs to job {owner}; `mltcp attach --move` takes it"
                change = replace(change, outcome="taken", reason=reason)
        marked.append(change)
    if move is False and (taken := Counter(each.before for each in marked if each.before)):
        listed = ", ".join(
            f"{owner} -> {changes[0].job} ({count} connections)" for owner, count in taken.items()
        )
        raise BusyError(
            f"Nothing was changed: these already belong to another job: {listed}; give --move to"
            " take them, or `mltcp detach` them first."
        )
    return marked


def as_planned(change: Change, name: str) -> Change:
    """Return it with what the socket would be given; failed, and why, where nothing fits."""
    if change.outcome:
        return change
    try:
        return replace(change, new=name_for(name, change), outcome="planned")
    except MltcpError as error:
        return replace(change, outcome="failed", reason=str(error))


def name_for(name: str, change: Change) -> str:
    """Return what a socket is given; MltcpError, a part of a sentence, if nothing fits.

    To be observed, one that is attached gets the observer of what it ran before.
    """
    old = change.first or change.old
    if name != OBSERVED:
        return name
    if not (observer := observer_of(old)):
        raise MltcpError(
            f"MLTCP has no congestion control built on {old} to observe it with; `mltcp lab record"
            f" --job NAME=TARGET`"
            " sees such jobs from outside"
        )
    return observer
