# SPDX-License-Identifier: BSD-2-Clause
"""Put the sockets that were attached back to what they ran before."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from mltcp_tools.base.errors import UsageError
from mltcp_tools.kernel.backends import get_backend
from mltcp_tools.kernel.backends.bpf import BpfBackend
from mltcp_tools.kernel.backends.bpf_sockets import forget_first
from mltcp_tools.kernel.host.locks import exclusive
from mltcp_tools.live.attach import privileges
from mltcp_tools.live.attach.access import Result
from mltcp_tools.live.attach.audit import Changed, audit
from mltcp_tools.live.attach.jobs import forget
from mltcp_tools.live.attach.select_access import pids_of, reach_for, with_caught
from mltcp_tools.live.attach.state import LOCK, AttachedJob, SocketRecord, StateFiles


@dataclass(frozen=True)
class Restoration:
    """The outcome for one recorded socket. now: what it runs, as read back; empty when it is gone.

    outcome: `restored`; `gone` (closed since, nothing to restore); `left` (somebody gave it another
    congestion control since, which stays); `failed` (it stays recorded, and `reason` says why).
    """

    record: SocketRecord
    job: str
    now: str
    outcome: str
    reason: str = ""


def detach(
    *, job: str | None = None, pid: int | None = None, files: StateFiles | None = None
) -> list[Restoration]:
    """Put back the sockets of a job, or of a process, or all; say what became of each.

    A job without recorded sockets left is deleted from its backend, if that still has it, and its
    state file goes. Works as well when the backend is unloaded, or whoever attached has crashed.
    Raises UsageError when no such job or process is attached, HostError as `attach` does.
    """
    files = files or StateFiles()
    privileges.require_capabilities()
    with exclusive(LOCK):
        states = with_caught(files.read())
        if pid is not None:
            states = [_with_pids(each) for each in states]
        chosen = [(state, _chosen(state, job, pid)) for state in states]
        if job is not None and job not in {state.job.name for state in states}:
            raise UsageError(f"No job {job!r} is attached; {_attached(states)}.")
        if pid is not None and not any(records for _, records in chosen):
            raise UsageError(f"No socket of process {pid} is attached; {_attached(states)}.")
        meant = [
            (state, records)
            for state, records in chosen
            if records or job == state.job.name or (job is None and pid is None)
        ]
        done = _put_back(meant, files)
    _audit(done)
    return done


def detach_jobs(names: Collection[str], files: StateFiles | None = None) -> list[Restoration]:
    """As `detach`, of several jobs at once; those that aren't attached are passed over."""
    files = files or StateFiles()
    privileges.require_capabilities()
    with exclusive(LOCK):
        states = [each for each in with_caught(files.read()) if each.job.name in names]
        done = _put_back([(state, list(state.sockets)) for state in states], files)
    _audit(done)
    return done


def _audit(done: Iterable[Restoration]) -> None:
    audit(
        Changed(
            each.job,
            each.record.pid,
            each.record.local,
            each.record.remote,
            each.record.new,
            each.now,
            each.outcome,
            each.reason,
        )
        for each in done
    )


def _with_pids(state: AttachedJob) -> AttachedJob:
    """The job with a process for each socket that was recorded without one."""
    pids = pids_of({each.cookie for each in state.sockets if not each.pid})
    found = (replace(each, pid=each.pid or pids.get(each.cookie, 0)) for each in state.sockets)
    return replace(state, sockets=tuple(found))


def _chosen(state: AttachedJob, job: str | None, pid: int | None) -> list[SocketRecord]:
    if job not in (None, state.job.name):
        return []
    return [each for each in state.sockets if pid in (None, each.pid)]


def _attached(states: Iterable[AttachedJob]) -> str:
    names = ", ".join(state.job.name for state in states)
    return f"attached are: {names}" if names else "nothing is"


def _put_back(
    chosen: Sequence[tuple[AttachedJob, Sequence[SocketRecord]]], files: StateFiles
) -> list[Restoration]:
    """Restore these sockets of the jobs, all at once, and write down which are left."""
    results: dict[int, Result] = {}
    for name in {state.backend for state, _ in chosen}:
        own = [each for state, records in chosen if state.backend == name for each in records]
        results |= reach_for(get_backend(name)).restore(own)
    done = []
    for state, records in chosen:
        told = [_restoration(each, state.job.name, results[each.cookie]) for each in records]
        settled = {each.record.cookie for each in told if each.outcome != "failed"}
        left = tuple(each for each in state.sockets if each.cookie not in settled)
        if left:
            files.write(replace(state, sockets=left))
        else:
            forget(state, files)
        done += told
    if not get_backend(BpfBackend.name).is_present():
        forget_first()  # kept for these by an unload
    return done


def _restoration(record: SocketRecord, job: str, result: Result) -> Restoration:
    outcome = "restored" if result.outcome == "done" else result.outcome
    left = f"somebody else has since switched it to {result.now}"
    reason = left if outcome == "left" else result.reason
    return Restoration(record, job, result.now, outcome, reason)
