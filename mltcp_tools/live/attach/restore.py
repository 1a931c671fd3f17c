# SPDX-License-Identifier: BSD-2-Clause
"""Put the sockets that were attached back to what they ran before."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from mltcp_tools.base.errors import UsageError
from mltcp_tools.kernel.backends import get_backend
from mltcp_tools.kernel.backends.bpf import BpfBackend
from mltcp_tools.kernel.backends.bpf_sockets import forget_first
from mltcp_tools.kernel.host.locks import exclusive
from mltcp_tools.live.attach import privileges
from mltcp_tools.live.attach.access import Change, SwitchRequest
from mltcp_tools.live.attach.audit import audit
from mltcp_tools.live.attach.jobs import forget
from mltcp_tools.live.attach.select_access import pids_of, select_access, with_caught
from mltcp_tools.live.attach.state import LOCK, AttachedJob, SocketRecord, StateFiles


def detach(
    *, job: str | None = None, pid: int | None = None, files: StateFiles | None = None
) -> list[Change]:
    """Put back the sockets of a job, or of a process, or all; say what came of each.

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
        chosen = [
            (state, [each for each in state.sockets if pid in (None, each.pid)])
            for state in states
            if job in (None, state.job.name)
        ]
        if job is not None and not chosen:
            raise UsageError(f"No job {job!r} is attached; {_attached(states)}.")
        if pid is not None:
            chosen = [(state, records) for state, records in chosen if records]
            if not chosen:
                raise UsageError(f"No socket of process {pid} is attached; {_attached(states)}.")
        done = _put_back(chosen, files)
    audit(done)
    return done


def detach_jobs(names: Collection[str], files: StateFiles | None = None) -> list[Change]:
    """As `detach`, of several jobs at once; those that aren't attached are passed over."""
    files = files or StateFiles()
    privileges.require_capabilities()
    with exclusive(LOCK):
        states = [each for each in with_caught(files.read()) if each.job.name in names]
        done = _put_back([(state, state.sockets) for state in states], files)
    audit(done)
    return done


def _with_pids(state: AttachedJob) -> AttachedJob:
    """The job with a process for each socket that was recorded without one."""
    pids = pids_of({each.cookie for each in state.sockets if not each.pid})
    found = (replace(each, pid=each.pid or pids.get(each.cookie, 0)) for each in state.sockets)
    return replace(state, sockets=tuple(found))


def _attached(states: Iterable[AttachedJob]) -> str:
    names = ", ".join(state.job.name for state in states)
    return f"attached are: {names}" if names else "nothing is"


def _put_back(
    chosen: Sequence[tuple[AttachedJob, Sequence[SocketRecord]]], files: StateFiles
) -> list[Change]:
    """Restore these sockets of the jobs, all at once, and write down which are left."""
    results: dict[int, Change] = {}
    for name in {state.backend for state, _ in chosen}:
        requests = [
            SwitchRequest(each, state.job, each.new, each.old)
            for state, records in chosen
            if state.backend == name
            for each in records
        ]
        results |= select_access(get_backend(name)).restore(requests)
    done = []
    for state, records in chosen:
        own = [results[each.cookie] for each in records]
        settled = {each.socket.cookie for each in own if each.outcome != "failed"}
        left = tuple(each for each in state.sockets if each.cookie not in settled)
        if left:
            files.write(replace(state, sockets=left))
        else:
            forget(state, files)
        done += own
    if not get_backend(BpfBackend.name).is_present():
        forget_first()  # kept for these by an unload
    return done
