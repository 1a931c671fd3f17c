# SPDX-License-Identifier: BSD-2-Clause
"""Make the sockets of running processes flows of a job.

What each ran before is on disk before it is touched; `restore` puts it back. The host decides how a
socket is reached (see reach).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any

from mltcp_tools.base.errors import MltcpError, UsageError
from mltcp_tools.kernel.backends import checks
from mltcp_tools.kernel.backends.base import Backend, Job
from mltcp_tools.kernel.congestion_controls import OBSERVED
from mltcp_tools.kernel.host.locks import exclusive
from mltcp_tools.live.attach import privileges
from mltcp_tools.live.attach.access import Gift, Reach, Result, Sight
from mltcp_tools.live.attach.audit import Changed, audit
from mltcp_tools.live.attach.changes import (
    DONE,
    Change,
    Outcome,
    Wanted,
    as_planned,
    as_seen,
    mark_taken,
    name_for,
)
from mltcp_tools.live.attach.jobs import forget, named_job
from mltcp_tools.live.attach.processes import is_running, process, processes
from mltcp_tools.live.attach.select_access import reach_for
from mltcp_tools.live.attach.sockets import CAN_SEND, Socket, holders
from mltcp_tools.live.attach.state import LOCK, AttachedJob, KnownFiles, SocketRecord, StateFiles


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
    wanted = Wanted(sockets, lambda _: job, congestion_control)
    return attach_all([wanted], backend, dry_run, files, move)[0].get()[1]


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

    def job(present: StateFiles) -> Job:
        return named_job(name, backend, given, present, preferred=preferred)

    wanted = Wanted(sockets, job, congestion_control)
    return attach_all([wanted], backend, dry_run, files, move)[0].get()


def attach_all(
    wanted: Sequence[Wanted],
    backend: Backend,
    dry_run: bool = False,
    files: StateFiles | None = None,
    move: bool | None = None,
) -> list[Outcome]:
    """As `attach`, for several jobs at once, none of which may be there twice.

    The kernel walks through its sockets once for all of them. The error of one job keeps no other
    from being attached.
    """
    reach = reach_for(backend)
    with nullcontext() if dry_run else exclusive(LOCK):
        present = KnownFiles(files or StateFiles())
        steps = [_Steps(each, backend, reach, present, move) for each in wanted]
        for each in steps:
            each.attempt(each.check)
        _look(steps, reach)
        for each in steps:
            each.attempt(each.plan if dry_run else each.record)
        if not dry_run:
            results = reach.give([gift for each in steps for gift in each.gifts.values()])
            for each in steps:
                each.change(results)
            given = [sock for each in steps for sock in each.done()]
            tags = reach.tags(given) if given else {}
            for each in steps:
                each.read_back(tags)
                each.settle()
    if not dry_run:
        _audit(change for each in steps for change in each.outcome.changes)
    return [each.outcome for each in steps]


def _look(steps: Sequence[_Steps], reach: Reach) -> None:
    """Have each see what its sockets are; one job's that can't be reached hide no other's."""
    try:
        sights = reach.look([sock for each in steps for sock in each.sockets])
    except (MltcpError, OSError):
        for each in steps:
            each.attempt(each.look)
    else:
        for each in steps:
            each.see(sights)


def _audit(changes: Iterable[Change]) -> None:
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
    """The steps of one job's attach: check, see, record, have changed, read back, settle.

    outcome: of it all; once it has an error, the other steps do nothing.
    """

    def __init__(
        self,
        wanted: Wanted,
        backend: Backend,
        reach: Reach,
        files: StateFiles,
        move: bool | None,
    ) -> None:
        self._wanted, self._name = wanted, wanted.congestion_control
        self._backend, self._reach, self._files, self._move = backend, reach, files, move
        self.sockets = list({each.cookie: each for each in wanted.sockets}.values())
        self.outcome = Outcome()
        self.gifts: dict[int, Gift] = {}
        """By cookie, what is to be switched or tagged."""
        self._sights: Mapping[int, Sight] = {}
        self._states: list[AttachedJob] = []
        self._kept: dict[int, SocketRecord] = {}
        """By cookie, what the job's file had before."""
        self._recorded: dict[int, SocketRecord] = {}
        """The bytes that were added to it before any change."""
        self._new_here = True
        """True: the job had no file."""
        self._unchanged: set[int] = set()
        """The cookies of those that then were not changed, or put back at once."""

    def attempt(self, step: Callable[[], None]) -> None:
        """Take the step, unless one before has failed; keep why this one fails."""
        if self.outcome.error is None:
            try:
                step()
            except (MltcpError, OSError) as error:
                self.outcome = Outcome(error=error)
                self.sockets, self.gifts, self._recorded = [], {}, {}

    @property
    def _job(self) -> Job:
        assert self.outcome.job is not None
        return self.outcome.job

    def check(self) -> None:
        """Raise unless the sockets can be attached, as far as that shows without touching them."""
        require_ready(self._name, self._backend)
        _check(self.sockets)

    def look(self) -> None:
        """See what its own sockets are, as they can't be seen with all others'."""
        self.see(self._reach.look(self.sockets))

    def see(self, sights: Mapping[int, Sight]) -> None:
        """Know what the sockets are."""
        self._sights = sights

    def _find(self) -> list[Change]:
        """Its sockets as they are, now that the job is known; an outcome to come is open."""
        self.outcome.job = job = self._wanted.find_job(self._files)
        self._states = self._files.read()
        firsts = {each.cookie: each.old for state in self._states for each in state.sockets}
        looked = [
            as_seen(each, job.name, self._sights[each.cookie], firsts) for each in self.sockets
        ]
        tagged = {cookie: each.job for cookie, each in self._sights.items() if each.job}
        return mark_taken(looked, tagged, self._states, self._move)

    def plan(self) -> None:
        """Say what would be done."""
        self.outcome.changes = [as_planned(each, self._name) for each in self._find()]

    def record(self) -> None:
        """Write what the sockets run now, and set the job. On an error neither stays."""
        changes = self._find()
        for state in self._states:
            if state.job.id == self._job.id and state.job.name != self._job.name:
                raise UsageError(f"Job {self._job.id} is already attached as {state.job.name!r}.")
        before = next((each for each in self._states if each.job.name == self._job.name), None)
        self._new_here = before is None
        self._kept = {each.cookie: each for each in _still_open(before.sockets)} if before else {}
        for change in changes:
            if not change.outcome:
                self._recorded[change.socket.cookie] = self._record(change)
                self._wish(change)
        self.outcome.changes = changes
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

    def _record(self, change: Change) -> SocketRecord:
        sock = change.socket
        pid, start_ticks, fd = self._holder(sock)
        return SocketRecord(
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

    def _wish(self, change: Change) -> None:
        """Have it changed, unless it is what it is to be, as what the kernel has caught is."""
        cookie = change.socket.cookie
        with suppress(MltcpError):  # nothing fits
            given = name_for(self._name, change)
            if change.old != given or self._sights[cookie].job != self._job.id:
                self.gifts[cookie] = Gift(change.socket, change.old, given, self._job.id)

    def _new(self, change: Change) -> str:
        """Return what the socket is to run; what it runs, where nothing fits."""
        with suppress(MltcpError):
            return name_for(self._name, change)
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

    def change(self, results: Mapping[int, Result]) -> None:
        """Know what became of those that were to be changed."""
        self.outcome.changes = [
            each if each.outcome else self._changed(each, results) for each in self.outcome.changes
        ]

    def _changed(self, change: Change, results: Mapping[int, Result]) -> Change:
        cookie = change.socket.cookie
        if cookie not in self.gifts:
            planned = as_planned(change, self._name)
            if planned.outcome == "failed":
                self._unchanged.add(cookie)
                return planned
            return replace(planned, outcome="tagged")
        result, given = results[cookie], self.gifts[cookie].name
        if result.outcome == "done":
            outcome = "tagged" if change.old == given else "switched"
            return replace(change, new=given, outcome=outcome)
        if not result.changed:
            self._unchanged.add(cookie)
        return replace(change, outcome=result.outcome, reason=result.reason)

    def done(self) -> list[Socket]:
        """The sockets that are attached, for all that is known."""
        return [each.socket for each in self.outcome.changes if each.outcome in DONE]

    def read_back(self, tags: Mapping[int, int]) -> None:
        """Believe only what the kernel shows: each socket with its tag."""
        if self.outcome.error is not None:
            return
        lost = [each for each in self.done() if tags.get(each.cookie) != self._job.id]
        again = self._reach.look(lost) if lost else {}
        self.outcome.changes = [
            replace(
                each,
                outcome="gone" if again[each.socket.cookie].gone else "failed",
                reason=again[each.socket.cookie].gone or _LOST,
            )
            if each.socket.cookie in again
            else each
            for each in self.outcome.changes
        ]

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
            if self._unchanged:
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
