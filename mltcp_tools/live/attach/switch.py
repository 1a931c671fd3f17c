"""Make the sockets of running processes flows of a job.

What each ran before is on disk before it is touched; `restore` puts it back. The host decides how a
socket is reached (see reach).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any

from mltcp_tools.errors import BusyError, MltcpError, UsageError
from mltcp_tools.kernel.backends import checks
from mltcp_tools.kernel.backends.base import Backend, Job
from mltcp_tools.kernel.host.locks import exclusive
from mltcp_tools.kernel.variants import NAMES, OBSERVED, observer_of
from mltcp_tools.live.attach import privileges
from mltcp_tools.live.attach.audit import Changed, audit
from mltcp_tools.live.attach.jobs import forget, named_job
from mltcp_tools.live.attach.processes import is_running, process, processes
from mltcp_tools.live.attach.reach import Gift, Reach, Result, Sight
from mltcp_tools.live.attach.sockets import CAN_SEND, Socket, holders
from mltcp_tools.live.attach.state import LOCK, AttachedJob, SocketRecord, StateFiles
from mltcp_tools.live.attach.ways import reach_for

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


def attach(
    sockets: Sequence[Socket],
    job: Job,
    congestion_control: str,
    backend: Backend,
    dry_run: bool = False,
    files: StateFiles | None = None,
    move: bool | None = False,
) -> list[Change]:
    """Give the sockets to the job under the congestion control; say what became of each.

    The job is set in the backend. move: what to do with sockets of another job: True takes them
    (what they ran first stays on record), False is refused with BusyError, None leaves them.

    A socket that several processes share is changed once. On any error that is not a single
    socket's nothing is changed: HostError names the capability or setting that is missing,
    MltcpError says when the congestion control isn't loaded, UsageError is for sockets that can't
    send. dry_run makes the same checks and changes nothing. files: where to record it, unless in
    STATE_DIR.
    """
    return _attach(sockets, lambda: job, congestion_control, backend, dry_run, files, move)[1]


def attach_by_name(
    sockets: Sequence[Socket],
    name: str,
    given: dict[str, Any],
    congestion_control: str,
    backend: Backend,
    dry_run: bool = False,
    files: StateFiles | None = None,
    preferred: int | None = None,
    move: bool | None = False,
) -> tuple[Job, list[Change]]:
    """As `attach`, to the job that jobs.named_job says, which nobody else can take meanwhile."""

    def job() -> Job:
        return named_job(name, backend, given, files, preferred=preferred)

    return _attach(sockets, job, congestion_control, backend, dry_run, files, move)


def _attach(
    sockets: Sequence[Socket],
    find_job: Callable[[], Job],
    congestion_control: str,
    backend: Backend,
    dry_run: bool,
    files: StateFiles | None,
    move: bool | None,
) -> tuple[Job, list[Change]]:
    files = files or StateFiles()
    single = list({each.cookie: each for each in sockets}.values())
    require_ready(congestion_control, backend)
    _check(single)
    reach = reach_for(backend)
    with nullcontext() if dry_run else exclusive(LOCK):
        job = find_job()
        sights = reach.look(single)
        firsts = {each.cookie: each.old for state in files.read() for each in state.sockets}
        looked = [_looked(each, job.name, sights[each.cookie], firsts) for each in single]
        tagged = {cookie: each.job for cookie, each in sights.items() if each.job}
        found = _mark_taken(looked, tagged, files, move)
        if dry_run:
            return job, [_planned(each, congestion_control) for each in found]
        steps = _Steps(job, congestion_control, backend, files)
        steps.record([each for each in found if not each.outcome])
        changes = _read_back(steps.change(found, reach), job, reach)
        steps.settle()
    audit(
        Changed(
            each.job,
            each.socket.process.pid,
            each.socket.local,
            each.socket.remote,
            each.old,
            each.new,
            each.outcome,
            each.reason,
        )
        for each in changes
    )
    return job, changes


def require_ready(name: str, backend: Backend) -> None:
    """Raise, as `attach` does, unless sockets can be given the congestion control here and now."""
    privileges.require_capabilities()
    loaded = backend.loaded()
    if name == OBSERVED and loaded:
        return  # which of them it takes is each socket's own
    if name != OBSERVED:
        checks.check_offered(backend.name, [name], backend.names)
    if not loaded:
        raise checks.not_loaded(backend.name)
    if name not in loaded:
        raise MltcpError(f"{name} isn't loaded; run `mltcp load {name}`.")


def _check(sockets: Iterable[Socket]) -> None:
    """Raise unless these can be attached, as far as that shows without touching them."""
    for each in sockets:
        if each.state not in CAN_SEND:
            raise UsageError(
                f"Descriptor {each.fd} of process {each.process.pid} is in state {each.state};"
                " only connections that can send are attached."
            )


def _looked(sock: Socket, job: str, sight: Sight, firsts: Mapping[int, str]) -> Change:
    """Return what the socket runs; where it is still there, its outcome is open.

    firsts: what is on record of sockets, by cookie.
    """
    first = ""
    if sight.name in NAMES:  # else somebody has switched it since it was attached, if it was
        first = firsts.get(sock.cookie, sight.first)
    outcome = "gone" if sight.gone else ""
    return Change(sock, job, sight.name, sight.name, outcome, sight.gone, first=first)


def _mark_taken(
    changes: Sequence[Change], tagged: Mapping[int, int], files: StateFiles, move: bool | None
) -> list[Change]:
    """The changes with the job that each socket belongs to now, if to another one than is meant.

    tagged: ids of jobs by cookie; the kernel may have caught a socket that isn't on record yet.
    """
    states = files.read()
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


def _planned(change: Change, name: str) -> Change:
    if change.outcome:
        return change
    try:
        return replace(change, new=_given(name, change), outcome="planned")
    except MltcpError as error:
        return replace(change, outcome="failed", reason=str(error))


def _given(name: str, change: Change) -> str:
    """Return what a socket is given; MltcpError, a part of a sentence, if nothing fits.

    To be observed, one that is attached gets the observer of what it ran before.
    """
    old = change.first or change.old
    if name != OBSERVED:
        return name
    if not (observer := observer_of(old)):
        raise MltcpError(
            f"MLTCP has no variant of {old} to observe it with; `mltcp record --job NAME=TARGET`"
            " sees such jobs from outside"
        )
    return observer


def _read_back(changes: Sequence[Change], job: Job, reach: Reach) -> list[Change]:
    """The changes as the kernel shows them: each socket with its tag."""
    done = [each for each in changes if each.outcome in DONE]
    tags = reach.tags([each.socket for each in done])
    lost = [each.socket for each in done if tags.get(each.socket.cookie) != job.id]
    again = reach.look(lost) if lost else {}
    return [
        replace(
            each,
            outcome="gone" if again[each.socket.cookie].gone else "failed",
            reason=again[each.socket.cookie].gone or _LOST,
        )
        if each.socket.cookie in again
        else each
        for each in changes
    ]


_LOST = "it was switched, but the kernel doesn't show its tag; `mltcp detach` puts it back"


def _still_open(records: Sequence[SocketRecord]) -> list[SocketRecord]:
    """Return those whose socket some process still has; mostly it is the one where it was found."""
    inodes = {each.inode for each in records}
    owners = []
    for pid in {each.pid for each in records}:
        with suppress(MltcpError):  # it has ended
            owners.append(process(pid))
    held = holders(inodes, owners)
    if missing := inodes - held.keys():
        held |= holders(missing, processes())
    return [each for each in records if each.inode in held]


class _Steps:
    """The steps of one attach: record, change each socket, settle the record."""

    def __init__(self, job: Job, name: str, backend: Backend, files: StateFiles) -> None:
        self._job, self._name, self._backend, self._files = job, name, backend, files
        self._states = files.read()
        self._kept: dict[int, SocketRecord] = {}
        """By cookie, what the job's file had before."""
        self._recorded: dict[int, SocketRecord] = {}
        """The bytes that were added to it before any change."""
        self._new_here = True
        """True: the job had no file."""
        self._unchanged: set[int] = set()
        """The cookies of those that then were not changed, or put back at once."""

    def record(self, open_changes: Sequence[Change]) -> None:
        """Write what the sockets run now, and set the job. On an error neither stays."""
        for state in self._states:
            if state.job.id == self._job.id and state.job.name != self._job.name:
                raise UsageError(f"Job {self._job.id} is already attached as {state.job.name!r}.")
        before = next((each for each in self._states if each.job.name == self._job.name), None)
        self._new_here = before is None
        self._kept = {each.cookie: each for each in _still_open(before.sockets)} if before else {}
        for change in open_changes:
            sock = change.socket
            pid, start_ticks, fd = self._holder(sock)
            self._recorded[sock.cookie] = SocketRecord(
                pid=pid,
                start_ticks=start_ticks,
                fd=fd,
                netns=sock.netns,
                inode=sock.inode,
                cookie=sock.cookie,
                local=sock.local,
                remote=sock.remote,
                # Where it runs what we gave it, what was there before that; else what it runs.
                old=change.first or change.old,
                new=self._new(change),
            )
        if not self._recorded:
            return
        self._files.write(self._state(self._kept | self._recorded))
        try:
            self._backend.set_job(self._job)
        except BaseException:
            if before is None or before.job.id != self._job.id:
                self._files.remove(self._job.id)
            else:
                self._files.write(before)
            raise
        if before and before.job.id != self._job.id:  # the name has a new id
            forget(before, self._files)

    def _new(self, change: Change) -> str:
        """Return what the socket is to run; what it runs, where nothing fits."""
        with suppress(MltcpError):
            return _given(self._name, change)
        return change.old

    def _holder(self, sock: Socket) -> tuple[int, int, int]:
        """Pid, start and descriptor by which to find the socket again.

        Those that are recorded, as long as that process runs: another one that shares the socket
        may be a child that soon ends.
        """
        kept = self._kept.get(sock.cookie)
        if kept and is_running(kept.pid, kept.start_ticks):
            return kept.pid, kept.start_ticks, kept.fd
        return sock.process.pid, sock.process.start_ticks, sock.fd

    def change(self, changes: Sequence[Change], reach: Reach) -> list[Change]:
        """Switch and tag those whose outcome is open, or leave them as they were."""
        gifts = {}
        for change in changes:
            if not change.outcome:
                with suppress(MltcpError):  # nothing fits
                    given = _given(self._name, change)
                    gifts[change.socket.cookie] = Gift(change.socket, change.old, given)
        results = reach.give([*gifts.values()], self._job)
        return [each if each.outcome else self._changed(each, gifts, results) for each in changes]

    def _changed(
        self, change: Change, gifts: Mapping[int, Gift], results: Mapping[int, Result]
    ) -> Change:
        cookie = change.socket.cookie
        if cookie not in gifts:
            self._unchanged.add(cookie)
            return _planned(change, self._name)
        result, given = results[cookie], gifts[cookie].name
        if result.outcome == "done":
            outcome = "tagged" if change.old == given else "switched"
            return replace(change, new=given, outcome=outcome)
        if not result.changed:
            self._unchanged.add(cookie)
        return replace(change, outcome=result.outcome, reason=result.reason)

    def settle(self) -> None:
        """Take out of the record what wasn't changed, here and in the jobs that sockets left."""
        changed = {
            cookie: record
            for cookie, record in self._recorded.items()
            if cookie not in self._unchanged
        }
        if not self._recorded:
            return
        if records := self._kept | changed:
            self._files.write(self._state(records))
        elif self._new_here:
            forget(self._state({}), self._files)
        else:  # new connections may be caught for it
            self._files.write(self._state({}))
        for state in self._states:
            left = tuple(each for each in state.sockets if each.cookie not in changed)
            if state.job.name == self._job.name or len(left) == len(state.sockets):
                continue
            if left:
                self._files.write(replace(state, sockets=left))
            else:
                forget(state, self._files)

    def _state(self, records: dict[int, SocketRecord]) -> AttachedJob:
        return AttachedJob(self._job, self._backend.name, tuple(records.values()))
