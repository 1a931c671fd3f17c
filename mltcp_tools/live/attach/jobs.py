# SPDX-License-Identifier: BSD-2-Clause
"""Names, ids and parameters of attached jobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import count
from typing import Any

from mltcp_tools.base.errors import BusyError, MltcpError
from mltcp_tools.kernel.backends import get_backend
from mltcp_tools.kernel.backends.base import Backend, Job, JobParams
from mltcp_tools.kernel.host.locks import exclusive
from mltcp_tools.live.attach.state import LOCK, AttachedJob, KnownFiles, StateFiles


def named_job(
    name: str,
    backend: Backend,
    given: dict[str, Any],
    files: StateFiles | None = None,
    promised: Iterable[int] = (),
    preferred: int | None = None,
) -> Job:
    """The job of that name, with the parameters of `given` (fields of JobParams) replaced.

    A name attached on this host keeps its parameters, and its id unless the backend has a job of
    another name under it by now; else it gets an id that neither the backend nor a state file has,
    nor is among those promised: the preferred one, or the lowest. Nothing is set by asking.
    """
    attached = {state.job.name: state.job for state in (files or StateFiles()).read()}
    names = {job.id: job.name for job in backend.jobs()}
    known = attached.get(name)
    if known and names.get(known.id, name) == name:
        return replace(known, params=replace(known.params, **given))
    taken = {job.id for job in attached.values()} | names.keys() | set(promised)
    if preferred is None or preferred in taken:
        preferred = next(each for each in count(1) if each not in taken)
    return Job(preferred, name, replace(known.params if known else JobParams(), **given))


def change_parameters(job: Job, backend: Backend, files: StateFiles | None = None) -> bool:
    """Give the job its parameters anew, on record and in the kernel.

    False, and nothing done, where no job of that id and name is attached (any more).
    """
    files = files or StateFiles()
    with exclusive(LOCK):
        for state in files.read():
            if (state.job.id, state.job.name) == (job.id, job.name):
                files.write(replace(state, job=job))
                backend.set_job(job)
                return True
    return False


def announce(jobs: Sequence[Job], backend: Backend, files: StateFiles | None = None) -> list[Job]:
    """Put the jobs on record and into the kernel before their first sockets are, if they aren't.

    Returns them: an id that somebody has taken since it was promised is another's, so its job gets
    a new one.
    """
    with exclusive(LOCK):
        present = KnownFiles(files or StateFiles())
        return [_announced(each, backend, present) for each in jobs]


def _announced(job: Job, backend: Backend, files: StateFiles) -> Job:
    job = named_job(job.name, backend, asdict(job.params), files, preferred=job.id)
    states = files.read()
    if not any((each.job.id, each.job.name) == (job.id, job.name) for each in states):
        if any(each.job.name == job.name for each in states):
            raise BusyError(
                f"Job {job.name} is attached under an id that now belongs to another job."
            )
        files.write(AttachedJob(job, backend.name, ()))
    backend.set_job(job)
    return job


def forget(state: AttachedJob, files: StateFiles) -> None:
    """Take the job out of its backend, if that still has it, and out of the state files.

    A backend that can't be read (one of another version) keeps it, without flows, until unloaded.
    """
    backend = get_backend(state.backend)
    with suppress(MltcpError):
        if any((job.id, job.name) == (state.job.id, state.job.name) for job in backend.jobs()):
            backend.delete_job(state.job.id)
    files.remove(state.job.id)
