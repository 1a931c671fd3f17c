# SPDX-License-Identifier: BSD-2-Clause
"""Make the sockets of running processes flows of a job.

What each ran before is on disk before it is touched; `restore` puts it back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from mltcp_tools.base.errors import BusyError, MltcpError, UsageError
from mltcp_tools.kernel.backends import checks
from mltcp_tools.kernel.backends.base import Backend, Job
from mltcp_tools.kernel.congestion_controls import NAMES, OBSERVED, observer_of
from mltcp_tools.kernel.host.locks import exclusive
from mltcp_tools.live.attach import privileges
from mltcp_tools.live.attach.access import (
    DONE,
    Change,
    SocketAccess,
    SocketState,
    SwitchRequest,
)
from mltcp_tools.live.attach.audit import audit
from mltcp_tools.live.attach.jobs import forget, named_job
from mltcp_tools.live.attach.processes import is_running, process, processes
from mltcp_tools.live.attach.select_access import select_access
from mltcp_tools.live.attach.sockets import CAN_SEND, Socket, holders
from mltcp_tools.live.attach.state import LOCK, AttachedJob, KnownFiles, SocketRecord, StateFiles

_LOST = "it was switched, but the kernel doesn't show its tag; `mltcp detach` puts it back"


@dataclass(frozen=True)
class Wanted:
    """Sockets, the job that they are to belong to, and the congestion control they get.

    find_job: called with what is on record when the job is set.
    """

    sockets: Sequence[Socket]
    find_job: Callable[[StateFiles], Job]
    congestion_control: str


@dataclass
class AttachOutcome:
    """The outcome for one job: the job and what came of each socket, or why nothing was done."""

    job: Job | None = None
    changes: list[Change] = field(default_factory=list)
    error: MltcpError | OSError | None = None

    def get(self) -> tuple[Job, list[Change]]:
        """The job and the changes. Raises the error."""
        if self.error is not None:
            raise self.error
        assert self.job is not None
        return self.job, self.changes


def attach_by_name(
    sockets: Sequence[Socket],
    name: str,
    given: dict[str, Any],
    congestion_control: str,
    backend: Backend,
    dry_run: bool = False,
    preferred: int | None = None,
    move: bool | None = False,
) -> tuple[Job, list[Change]]:
    """As attach_all, to the job that jobs.named_job says, which nobody else can take meanwhile."""

    def job(present: StateFiles) -> Job:
        return named_job(name, backend, given, present, preferred=preferred)

    wanted = Wanted(sockets, job, congestion_control)
    return attach_all([wanted], backend, dry_run, None, move)[0].get()


def attach_all(
    wanted: Sequence[Wanted],
    backend: Backend,
    dry_run: bool = False,
    files: StateFiles | None = None,
    move: bool | None = None,
) -> list[AttachOutcome]:
    """Give sockets to their jobs, none of which may be there twice; say what came of each.

    The jobs are set in the backend. move: what to do with sockets of another job: True takes them
    (what they ran first stays on record), False is refused with BusyError, None leaves them.

    A socket that several processes share is changed once. On any error that is not a single
    socket's nothing of that job is changed: HostError names the capability or setting that is
    missing, MltcpError says when the congestion control isn't loaded, UsageError is for sockets
    that can't send. The error of one job keeps no other from being attached. dry_run makes the same
    checks and changes nothing. files: where to record it, unless in STATE_DIR.
    """
    access = select_access(backend)
    with nullcontext() if dry_run else exclusive(LOCK):
        present = KnownFiles(files or StateFiles())
        steps = [_Steps(each, backend, access, present, move) for each in wanted]
        for each in steps:
            each.attempt(each.check)
        _look(steps, access)
        for each in steps:
            each.attempt(each.plan)
            if not dry_run:
                each.attempt(each.record)
        if not dry_run:
            results = access.give([request for each in steps for request in each.requests.values()])
            for each in steps:
                each.take(results)
            given = [change.socket for each in steps for change in each.done()]
            tags = access.tags(given) if given else {}
            for each in steps:
                each.read_back(tags)
                each.settle()
    outcomes = [each.outcome for each in steps]
    if not dry_run:
        audit(change for each in outcomes for change in each.changes)
    return outcomes


def _look(steps: Sequence[_Steps], access: SocketAccess) -> None:
    """Have each see what its sockets are; one job's that can't be reached hide no other's."""
    try:
        states = access.look([sock for each in steps for sock in each.sockets])
    except (MltcpError, OSError):
        for each in steps:
            each.attempt(each.look)
    else:
        for each in steps:
            each.states = states


def require_ready(name: str, backend: Backend) -> None:
    """Raise, as attach_all, unless sockets can be given the congestion control here and now."""
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


def _name_for(name: str, old: str) -> str:
    """Return what a socket that ran `old` is given; MltcpError, part of a sentence, if nothing
    fits."""
    if name != OBSERVED:
        return name
    if not (observer := observer_of(old)):
        raise MltcpError(
            f"MLTCP has no congestion control built on {old} to observe it with; `mltcp lab"
            " record --job NAME=TARGET` measures such jobs passively"
        )
    return observer


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
    """The steps of one job's attach: check, look, plan, record, take, read back, settle.

    outcome: of it all; once it has an error, the other steps do nothing.
    """

    def __init__(
        self,
        wanted: Wanted,
        backend: Backend,
        access: SocketAccess,
        files: StateFiles,
        move: bool | None,
    ) -> None:
        self._wanted, self._name = wanted, wanted.congestion_control
        self._backend, self._access, self._files, self._move = backend, access, files, move
        self.sockets = list({each.cookie: each for each in wanted.sockets}.values())
        self.states: Mapping[int, SocketState] = {}
        """Their states, by cookie."""
        self.outcome = AttachOutcome()
        self.requests: dict[int, SwitchRequest] = {}
        """Of sockets to be switched or tagged, by cookie."""
        self._attached: list[AttachedJob] = []
        """All jobs on record before."""
        self._kept: dict[int, SocketRecord] = {}
        """Of the job's file as it was before, by cookie."""
        self._recorded: dict[int, SocketRecord] = {}
        """Added to that file before any change."""

    def attempt(self, step: Callable[[], None]) -> None:
        """Take the step, unless one before has failed; keep why this one fails."""
        if self.outcome.error is None:
            try:
                step()
            except (MltcpError, OSError) as error:
                self.outcome = AttachOutcome(error=error)
                self.sockets, self.requests, self._recorded = [], {}, {}

    @property
    def _job(self) -> Job:
        assert self.outcome.job is not None
        return self.outcome.job

    def check(self) -> None:
        """Raise unless the sockets can be attached, as far as that shows without touching them."""
        require_ready(self._name, self._backend)
        for each in self.sockets:
            if each.state not in CAN_SEND:
                raise UsageError(
                    f"Descriptor {each.fd} of process {each.process.pid} is in state {each.state};"
                    " only connections that can send are attached."
                )

    def look(self) -> None:
        """See what its own sockets are, as they can't be seen with all others'."""
        self.states = self._access.look(self.sockets)

    def plan(self) -> None:
        """Find the job, and what is to be done to each socket; BusyError, see attach_all."""
        self.outcome.job = self._wanted.find_job(self._files)
        self._attached = self._files.read()
        names = {each.job.id: each.job.name for each in self._attached}
        owners = {  # the kernel may have caught a socket that isn't on record yet
            cookie: names[state.job] for cookie, state in self.states.items() if state.job in names
        }
        owners |= {s.cookie: each.job.name for each in self._attached for s in each.sockets}
        firsts = {s.cookie: s.old for each in self._attached for s in each.sockets}
        self.outcome.changes = [self._planned(each, owners, firsts) for each in self.sockets]
        taken = Counter(each.before for each in self.outcome.changes if each.before)
        if taken and self._move is False:
            listed = ", ".join(
                f"{owner} -> {self._job.name} ({count} connections)"
                for owner, count in taken.items()
            )
            raise BusyError(
                f"Nothing was changed: these already belong to another job: {listed}; give --move"
                " to take them, or `mltcp detach` them first."
            )

    def _planned(
        self, sock: Socket, owners: Mapping[int, str], firsts: Mapping[int, str]
    ) -> Change:
        """owners: the name of each socket's job, firsts: what each ran first, both by cookie."""
        state, name = self.states[sock.cookie], self._job.name
        if state.gone:
            return Change(sock, name, state.name, "", "gone", state.gone)
        first = ""
        if state.name in NAMES:  # else somebody has switched it since it was attached, if it was
            first = firsts.get(sock.cookie, state.first)
        owner = owners.get(sock.cookie, name)
        before = owner if owner != name else ""
        change = Change(sock, name, state.name, state.name, "planned", before=before, first=first)
        if before and self._move is None:
            reason = f"it belongs to job {owner}; `mltcp attach --move` takes it"
            return replace(change, outcome="taken", reason=reason)
        try:
            new = _name_for(self._name, first or state.name)
        except MltcpError as error:
            return replace(change, outcome="failed", reason=str(error))
        if state.name == new and state.job == self._job.id:  # as the kernel has caught it
            return replace(change, outcome="tagged")
        self.requests[sock.cookie] = SwitchRequest(sock, self._job, state.name, new)
        return replace(change, new=new)

    def record(self) -> None:
        """Write what the sockets run now, and set the job. On an error neither stays."""
        for each in self._attached:
            if each.job.id == self._job.id and each.job.name != self._job.name:
                raise UsageError(f"Job {self._job.id} is already attached as {each.job.name!r}.")
        before = self._before()
        self._kept = {each.cookie: each for each in _still_open(before.sockets)} if before else {}
        self._recorded = {
            each.socket.cookie: self._record(each)
            for each in self.outcome.changes
            if each.outcome in ("planned", "tagged")
        }
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

    def _before(self) -> AttachedJob | None:
        """The job's own record before."""
        return next((each for each in self._attached if each.job.name == self._job.name), None)

    def _record(self, change: Change) -> SocketRecord:
        sock = change.socket
        holder = sock
        # Another process that shares the socket may be a child that soon ends.
        kept = self._kept.get(sock.cookie)
        if kept and is_running(kept.pid, kept.start_ticks):
            holder = kept
        return SocketRecord(
            pid=holder.pid,
            start_ticks=holder.start_ticks,
            fd=holder.fd,
            netns=sock.netns,
            inode=sock.inode,
            cookie=sock.cookie,
            local=sock.local,
            remote=sock.remote,
            # Where it runs what we gave it, what was there before that; else what it runs.
            old=change.first or change.old,
            new=change.new,
        )

    def take(self, results: Mapping[int, Change]) -> None:
        """Know what came of those that were to be changed."""
        self.outcome.changes = [
            replace(results[cookie], before=each.before, first=each.first)
            if (cookie := each.socket.cookie) in self.requests
            else each
            for each in self.outcome.changes
        ]

    def done(self) -> list[Change]:
        """The changes of sockets that are attached, for all that is known."""
        return [each for each in self.outcome.changes if each.outcome in DONE]

    def read_back(self, tags: Mapping[int, int]) -> None:
        """Believe only what the kernel shows: each socket with its tag."""
        lost = {
            each.socket.cookie
            for each in self.done()
            if tags.get(each.socket.cookie) != self._job.id
        }
        sockets = [each for each in self.sockets if each.cookie in lost]
        again = self._access.look(sockets) if sockets else {}
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
        if not self._recorded:
            return
        unchanged = {
            each.socket.cookie
            for each in self.outcome.changes
            if each.outcome not in DONE and each.new in ("", each.old)
        }
        changed = {
            cookie: record for cookie, record in self._recorded.items() if cookie not in unchanged
        }
        if records := self._kept | changed:
            if len(changed) < len(self._recorded):
                self._files.write(self._state(records))
        elif self._before() is None:
            forget(self._state({}), self._files)
        else:  # new connections may be caught for it
            self._files.write(self._state({}))
        for each in self._attached:
            left = tuple(record for record in each.sockets if record.cookie not in changed)
            if each.job.name == self._job.name or len(left) == len(each.sockets):
                continue
            if left:
                self._files.write(replace(each, sockets=left))
            else:
                forget(each, self._files)

    def _state(self, records: dict[int, SocketRecord]) -> AttachedJob:
        return AttachedJob(self._job, self._backend.name, tuple(records.values()))
