# SPDX-License-Identifier: BSD-2-Clause
"""The testbed's side of an MLTCP variant: load the backend, set jobs, tag sockets, collect events.

Runs share a backend. Each run that uses one holds a shared lock on /run/mltcp/testbed/NAME.users;
the file says `loaded` if a run, and not the user, loaded it. The last run to leave takes the
backend out of the kernel again, or, where that run was killed, the next to come or to clean.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from mltcp_tools.base.errors import BusyError, MltcpError
from mltcp_tools.kernel.backends import AUTO, BACKENDS, get_backend
from mltcp_tools.kernel.backends.base import Backend, IterationEvent, IterationStream, Job
from mltcp_tools.kernel.backends.checks import check_offered
from mltcp_tools.kernel.host.descriptors import cookie_of
from mltcp_tools.kernel.host.leases import leased
from mltcp_tools.kernel.host.locks import exclusive_file, lock, try_lock, unlock
from mltcp_tools.lab.experiments.jobs import ExperimentJob
from mltcp_tools.lab.experiments.variants import Variant

_LOADED = "loaded\n"
_POLL_S = 0.2
# Sockets of a variant live on for an instant after its processes and namespaces have ended.
_SOCKETS_END_S = 5.0


@contextlib.contextmanager
def use_backend(
    folder: Path, ccs: Collection[str], warn: Callable[[str], None], name: str = AUTO
) -> Iterator[Backend]:
    """The backend `name` with the congestion controls `ccs` in the kernel, loaded if nobody has.

    `folder` holds the lock files. What was loaded here is unloaded when its last user leaves;
    `warn` gets a sentence where sockets of others keep it.
    """
    with contextlib.ExitStack() as stack:
        with _changing(folder):
            for other in BACKENDS:
                # Where sockets of others hold what a killed run loaded, this run takes it over.
                with contextlib.suppress(BusyError):
                    _remove(folder, get_backend(other))
            backend = get_backend(name)
            check_offered(backend.name, sorted(ccs), backend.names)
            users = stack.enter_context(open(_users(folder, backend), "a+"))
            lock(users.fileno(), shared=True)
            stack.callback(_leave, folder, backend, users, warn)
            stack.enter_context(leased("mltcp testbed run", backend.name))
            loaded = backend.status().loaded
            if not loaded:
                _write(users, _LOADED)  # before, so that a kill in between leaves no doubt
                loaded = backend.load().loaded
                if more := sorted(set(ccs) - set(loaded)):
                    loaded = backend.load(more).loaded
        if missing := " ".join(sorted(set(ccs) - set(loaded))):
            raise BusyError(
                f"The {backend.name} backend is loaded without {missing}; run `mltcp load --backend"
                f" {backend.name} {missing}`, which adds it or says why it can't."
            )
        yield backend


def _leave(folder: Path, backend: Backend, users: IO[str], warn: Callable[[str], None]) -> None:
    with _changing(folder):
        unlock(users.fileno())
        try:
            _unload_if_orphaned(backend, users)
        except BusyError as error:
            warn(str(error))


def remove_loaded(folder: Path) -> list[str]:
    """Unload the backends that a run loaded and no run uses any more; name what was removed."""
    with _changing(folder):
        backends = [get_backend(name) for name in BACKENDS]
        return [f"backend {each.name}" for each in backends if _remove(folder, each)]


def _remove(folder: Path, backend: Backend) -> bool:
    """Unload what a run loaded, if no run uses it any more. Call with the change lock held."""
    path = _users(folder, backend)
    if not path.exists():
        return False  # no run has ever used it
    with open(path, "r+") as users:
        return _unload_if_orphaned(backend, users)


def _users(folder: Path, backend: Backend) -> Path:
    return folder / f"{backend.name}.users"


def remove_jobs(folder: Path, ids: range) -> list[str]:
    """Delete the backends' jobs with these ids; name what was removed."""
    removed = []
    for backend in map(get_backend, BACKENDS):
        if not _users(folder, backend).exists():
            continue  # no run has ever used it
        for job in backend.jobs():
            if job.id in ids:
                backend.delete_job(job.id)
                removed.append(f"job {job.name}")
    return removed


def _unload_if_orphaned(backend: Backend, users: IO[str]) -> bool:
    """Unload what a run loaded, if no run uses it any more. Call with the change lock held."""
    users.seek(0)
    if users.read() != _LOADED or not try_lock(users.fileno()):
        return False
    try:
        unloaded = bool(backend.status().loaded)
        deadline = time.monotonic() + _SOCKETS_END_S
        while unloaded:
            try:
                backend.unload()
                break
            except BusyError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        _write(users, "")
        return unloaded
    finally:
        unlock(users.fileno())


def _changing(folder: Path) -> contextlib.AbstractContextManager[None]:
    """Only one run at a time looks whether the backend is loaded and changes that."""
    return exclusive_file(folder / "backend.change")


def _write(file: IO[str], text: str) -> None:
    file.seek(0)
    file.truncate()
    file.write(text)
    file.flush()


class VariantJobs:
    """The jobs of one MLTCP variant in the backend, and the events of their flows.

    A context manager: events are collected, by a thread, from entering to leaving; leaving deletes
    the jobs. `events` has (job name, flow number, event); `warning` says why there are none or
    fewer than there were.
    """

    def __init__(self, backend: Backend, variant: Variant, new_id: Callable[[int], int]) -> None:
        self.events: list[tuple[str, int, IterationEvent]] = []
        self.warning: str | None = None
        self._backend = backend
        self._variant = variant
        self._new_id = new_id
        self._ids: dict[str, int] = {}
        self._flows: dict[int, tuple[str, int]] = {}
        self._stream: IterationStream | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._collect, daemon=True)

    def __enter__(self) -> VariantJobs:
        try:
            self._stream = self._backend.iterations()
        except BusyError as error:
            self.warning = f"No events of flows in this variant: {error}"
        else:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._stream is not None:
            self._thread.join()
            if self._stream.dropped:
                self.warning = f"{self._stream.dropped} events of flows were lost in this variant."
            self._stream.close()
        for name, job_id in self._ids.items():
            try:
                self._backend.delete_job(job_id)
            except MltcpError as error:  # what was measured counts more
                self.warning = f"The job {name} couldn't be deleted after this variant: {error}"

    def tag(self, job: ExperimentJob, fds: Sequence[int]) -> None:
        """Set the job, and give it the sockets `fds`, numbered as flows from 0.

        Where the variant's flows aren't attached, they stay without a job.
        """
        job_id = self._job_id(job) if self._variant.attached else None
        for flow, fd in enumerate(fds):
            if job_id is not None:
                self._backend.tag(fd, job_id)
            self._flows[socket_cookie(fd)] = (job.name, flow)

    def _job_id(self, job: ExperimentJob) -> int:
        if job.name not in self._ids:
            job_id = self._new_id(len(self._ids) + 1)
            self._backend.set_job(Job(job_id, job.name, self._variant.params))
            self._ids[job.name] = job_id
        return self._ids[job.name]

    def _collect(self) -> None:
        assert self._stream is not None
        try:
            while not self._stop.is_set():
                self._keep(self._stream.poll(_POLL_S))
            self._keep(self._stream.poll(0.0))
        except MltcpError as error:
            self.warning = f"Events of flows ended early in this variant: {error}"

    def _keep(self, events: Iterable[IterationEvent]) -> None:
        # The socket's cookie is unique on the host: events of other runs are left out.
        for event in events:
            if event.cookie in self._flows:
                self.events.append((*self._flows[event.cookie], event))


def socket_cookie(fd: int) -> int:
    """The kernel's number for the socket behind `fd`, as in the backend's events."""
    with socket.socket(fileno=os.dup(fd)) as sock:
        return cookie_of(sock)


def describe(backend: Backend) -> dict[str, Any]:
    """The backend's status for the run's records."""
    return dataclasses.asdict(backend.status())
