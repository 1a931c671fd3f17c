# SPDX-License-Identifier: BSD-2-Clause
"""The jobs of a trial on this host: their connections, and what these ran before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from mltcp_tools.base.errors import MltcpError, UsageError
from mltcp_tools.kernel.backends import get_backend
from mltcp_tools.kernel.backends.base import Backend
from mltcp_tools.kernel.congestion_controls import is_mltcp
from mltcp_tools.live.attach.processes import Process, is_running, process
from mltcp_tools.live.attach.restore import detach_jobs
from mltcp_tools.live.attach.selection import Target
from mltcp_tools.live.attach.sockets import CAN_SEND, Socket, sockets_of
from mltcp_tools.live.attach.state import AttachedJob, StateFiles
from mltcp_tools.live.attach.switch import attach_by_name
from mltcp_tools.live.attach.targets import sockets_to_attach
from mltcp_tools.live.trial.period import MLTCP


@dataclass
class Subject:
    """One job. target: its processes, where it was not attached; before: how it was attached.

    sockets: its connections, as they were found last. known: cookies of all connections that its
    processes had at the first look; an attached job's others are left alone.
    """

    name: str
    target: Target | None
    before: AttachedJob | None
    sockets: list[Socket]
    known: frozenset[int] = frozenset()

    @property
    def processes(self) -> list[Process]:
        """Return the processes that hold its connections, each once."""
        return list({each.process.pid: each.process for each in self.sockets}.values())

    @property
    def originals(self) -> set[str]:
        """The congestion controls that its connections ran before the trial."""
        if self.before is not None:
            return {each.old for each in self.before.sockets}
        return {each.congestion_control for each in self.sockets}

    def look_again(self) -> None:
        """Find its connections as they are now. Raises MltcpError where none is left."""
        if self.before is not None:
            self.sockets = _sockets_of(self.before)
            present = {each.cookie: each for each in sockets_of(self.processes)[0]}
            self.known = self.known or frozenset(present)
            with suppress(MltcpError):  # opened since, as by a process group's first collective
                pids = tuple(each.pid for each in self.processes)
                found = sockets_to_attach(Target(pids=pids), (), stays_here=True)[0]
                self.sockets += [each for each in found if each.cookie not in self.known]
        elif self.target is not None:
            self.sockets = sockets_to_attach(self.target, (), stays_here=True)[0]
        if not self.sockets:
            raise MltcpError(f"{self.name} has no connection (any more).")

    def switch(self, variant: str, congestion_control: str, backend: Backend) -> None:
        """Give its connections to that variant; MltcpError where one of them doesn't take it."""
        if variant == MLTCP:
            changes = attach_by_name(
                self.sockets, self.name, self._parameters(), congestion_control, backend, move=None
            )[1]
            bad = [each.reason for each in changes if each.outcome in ("failed", "taken")]
        else:
            bad = [each for each in restore(self.name) if each]
        if bad:
            raise MltcpError(f"{self.name} can't be switched: {bad[0]}.")

    def _parameters(self) -> dict[str, Any]:
        """Return the parameters it was attached with; one that was only observed is now to be sped
        up.
        """
        if self.before is None:
            return {}
        given = asdict(self.before.job.params)
        return given | {"mechanisms": given["mechanisms"] or None}


def restore(name: str) -> list[str]:
    """Give a job's connections back what they ran first; why not, for each that doesn't take it."""
    return [each.reason for each in detach_jobs([name]) if each.outcome == "failed"]


def reattach(before: AttachedJob) -> list[str]:
    """Attach a job as it was; why not, for each connection that doesn't take it."""
    backend = get_backend(before.backend)
    names = {each.cookie: each.new for each in before.sockets}
    found = _sockets_of(before)
    bad = []
    for name in {names[each.cookie] for each in found}:
        group = [each for each in found if names[each.cookie] == name]
        changes = attach_by_name(
            group,
            before.job.name,
            asdict(before.job.params),
            name,
            backend,
            preferred=before.job.id,
            move=None,
        )[1]
        bad += [each.reason for each in changes if each.outcome in ("failed", "taken")]
    return bad


def _sockets_of(before: AttachedJob) -> list[Socket]:
    """The recorded connections that are still there."""
    owners = []
    for pid, start in {(each.pid, each.start_ticks) for each in before.sockets}:
        if is_running(pid, start):
            with suppress(MltcpError):  # it has ended
                owners.append(process(pid))
    cookies = {each.cookie for each in before.sockets}
    found = {
        each.cookie: each
        for each in sockets_of(owners)[0]
        if each.cookie in cookies and each.state in CAN_SEND
    }
    return list(found.values())


def find_subjects(
    wanted: Mapping[str, Sequence[str]], files: StateFiles | None = None
) -> list[Subject]:
    """The jobs of a trial. wanted: by name the targets of a job; none: one that is attached.

    Raises UsageError for a name that isn't attached or is, as it must not be; MltcpError where a
    job has no connection, or can't be compared with anything.
    """
    attached = {state.job.name: state for state in (files or StateFiles()).read()}
    found: list[Subject] = []
    taken: dict[int, str] = {}
    for name, words in wanted.items():
        before = attached.get(name)
        if before is None and not words:
            known = f"; attached are: {', '.join(attached)}" if attached else ""
            raise UsageError(
                f"No job {name!r} is attached{known}. Name its processes: --job {name}=TARGET"
            )
        if before is not None and words:
            raise UsageError(f"Job {name!r} is attached already; give --job {name} alone.")
        subject = Subject(name, Target.parse(words) if words else None, before, [])
        subject.look_again()
        subject.sockets = list({each.cookie: each for each in subject.sockets}.values())
        for each in subject.sockets:
            if (other := taken.setdefault(each.cookie, name)) != name:
                raise UsageError(f"{name} and {other} have connections in common.")
        _check_base(subject)
        found.append(subject)
    return found


def _check_base(subject: Subject) -> None:
    """Raise where the jobs would run MLTCP in both variants."""
    if ours := {each for each in subject.originals if is_mltcp(each)}:
        raise MltcpError(
            f"{subject.name} runs {', '.join(sorted(ours))} by itself, so there is nothing to"
            " compare it with; have the host's default or the program choose another one."
        )


def original_names(subjects: Sequence[Subject]) -> str:
    """The congestion controls of the base, for people."""
    return ", ".join(sorted({name for each in subjects for name in each.originals}))
