"""Names, ids and parameters of attached jobs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Any

from mltcp_tools.attach.state import JobState, StateFiles
from mltcp_tools.backends import get_backend
from mltcp_tools.backends.base import Backend, Job, JobParams
from mltcp_tools.errors import MltcpError


def named_job(
    name: str, backend: Backend, given: dict[str, Any], files: StateFiles | None = None
) -> Job:
    """The job of that name, with the parameters of `given` (fields of JobParams) replaced.

    A name attached on this host keeps its parameters, and its id unless the backend has a job of
    another name under it by now; else it gets the lowest id that neither the backend nor a state
    file has. Nothing is set by asking.
    """
    attached = {state.job.name: state.job for state in (files or StateFiles()).read()}
    names = {job.id: job.name for job in backend.jobs()}
    known = attached.get(name)
    if known and names.get(known.id, name) == name:
        return replace(known, params=replace(known.params, **given))
    taken = {job.id for job in attached.values()} | names.keys()
    free = next(each for each in count(1) if each not in taken)
    return Job(free, name, replace(known.params if known else JobParams(), **given))


def forget(state: JobState, files: StateFiles) -> None:
    """Take the job out of its backend, if that still has it, and out of the state files.

    A backend that can't be read (one of another version) keeps it, without flows, until unloaded.
    """
    backend = get_backend(state.backend)
    with suppress(MltcpError):
        if any((job.id, job.name) == (state.job.id, state.job.name) for job in backend.jobs()):
            backend.delete_job(state.job.id)
    files.remove(state.job.id)
