# SPDX-License-Identifier: BSD-2-Clause
"""Puts this tool's build of MLTCP in place of the one that is loaded, under connections that run.

With eBPF a connection runs the old programs until it is switched to the new ones, and is never
without. A module has to go before another comes: meanwhile its connections run their base.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from mltcp_tools.base.errors import BusyError, HostError, MltcpError
from mltcp_tools.kernel.backends import checks, struct_ops
from mltcp_tools.kernel.backends.base import Backend, Job, JobParams, Status
from mltcp_tools.kernel.congestion_controls import NAMES, base_of
from mltcp_tools.kernel.host import namespaces
from mltcp_tools.kernel.host.leases import leases
from mltcp_tools.kernel.host.locks import exclusive
from mltcp_tools.live.attach import privileges
from mltcp_tools.live.attach.all_jobs import HeldSocket, every_socket
from mltcp_tools.live.attach.pidfd import Gone, put_back
from mltcp_tools.live.attach.state import LOCK, StateFiles

Say = Callable[[str], None]


@dataclass(frozen=True)
class _Before:
    """The state before: sockets, the job of each by cookie, jobs, and defaults of namespaces."""

    sockets: list[HeldSocket]
    tags: dict[int, int]
    jobs: dict[int, Job]
    defaults: list[tuple[namespaces.NetNamespace, str]]


def replace_build(backend: Backend, defaults: JobParams | None, say: Say) -> None:
    """Replace what is loaded; every socket, job, tag and namespace's default keeps what it had.

    What the flows have learned they learn anew. Raises MltcpError where the backend isn't loaded,
    HostError or BusyError before anything has changed; MltcpError at the end names sockets that
    could not be switched.
    """
    privileges.require_capabilities()
    if not backend.is_present() and not _is_elsewhere(backend):
        raise checks.not_loaded(backend.name)
    with exclusive(LOCK):
        before = _look(backend)
        if backend.name == "bpf":
            backend.renew(defaults)
        else:
            _renew_module(backend, defaults, before)
        _set_jobs(backend, before)
        for namespace, name in before.defaults:
            now = namespaces.set_default(namespace, name)
            if now != name:
                say(f"The default of {namespace.name} was {name} and is {now}.")
        # Those that were opened meanwhile run the new ones, which switching leaves as they are.
        failed = [
            *filter(None, (_switch(each, each.name, backend, before) for each in before.sockets))
        ]
    say(f"{len(before.sockets) - len(failed)} sockets run the new programs.")
    for each in leases(backend.name):
        say(f"Restart {each}: it still runs the earlier version of this tool.")
    if failed:
        raise MltcpError(f"{len(failed)} sockets could not be switched: {checks.few(failed)}.")


def ensure_build(backend: Backend, names: Sequence[str] | None, say: Say) -> Status:
    """Have this tool's build loaded, with these names at least, and every socket run it.

    Nothing is done where that is so already. Raises as Backend.load and replace_build do.
    """
    try:
        status = backend.status()
        stale = bool(status.loaded) and status.build != backend.build_here()
    except HostError:  # of another layout, as far as that can be told; else replacing says so
        if not backend.is_present():
            raise
        stale = True
    if stale:
        replace_build(backend, None, say)
    # What is loaded already stays as it is.
    status = backend.load(names)
    if not orphaned(status):
        return status
    replace_build(backend, None, say)
    return backend.status()


def orphaned(status: Status) -> list[str]:
    """Names whose programs of an earlier load the kernel still has, as sockets run them."""
    found = status.details.get("unregistered")
    return list(found) if isinstance(found, list) else []


def _look(backend: Backend) -> _Before:
    states = StateFiles().read()
    jobs: dict[int, Job] = {}
    tags: dict[int, int] = {}
    with suppress(HostError):  # of another version: what is on record is all there is to know
        jobs = {job.id: job for job in backend.jobs()}
        tags = {flow.cookie: flow.job_id for flow in backend.flows() if flow.job_id}
    # The kernel shows no tags of sockets that run the programs of an earlier load.
    for state in states:
        if jobs.setdefault(state.job.id, state.job).name == state.job.name:
            tags = {each.cookie: state.job.id for each in state.sockets} | tags
    return _Before(
        sockets=list(every_socket(backend.names)),
        tags=tags,
        jobs=jobs,
        defaults=[each for each in namespaces.defaults() if each[1] in backend.names],
    )


def _is_elsewhere(backend: Backend) -> bool:
    """Return whether it was loaded by somebody whose pins this process doesn't see."""
    return backend.name == "bpf" and bool(struct_ops.registered())


def _renew_module(backend: Backend, defaults: JobParams | None, before: _Before) -> None:
    """Have everything let go of the module, and replace it; put all back where that is refused."""
    if users := [each for each in leases(backend.name) if "testbed" in each.what]:
        raise BusyError(f"In use by {', '.join(map(str, users))}; stop what uses it first.")
    try:
        for namespace, name in before.defaults:
            namespaces.set_default(namespace, base_of(name))
        for each in before.sockets:
            _switch(each, base_of(each.name), None, before)
        backend.renew(defaults)
    except MltcpError as error:
        if backend.is_present():
            for namespace, name in before.defaults:
                namespaces.set_default(namespace, name)
            for each in before.sockets:
                _switch(each, each.name, backend, before)
            raise
        raise MltcpError(
            "The module was unloaded and the new one couldn't be loaded, so"
            f" {len(before.sockets)} sockets run their base algorithm: {error}"
        ) from error


def _set_jobs(backend: Backend, before: _Before) -> None:
    present = {job.id for job in backend.jobs()}
    for job in before.jobs.values():
        if job.id not in present:
            backend.set_job(job)


def _switch(found: HeldSocket, name: str, backend: Backend | None, before: _Before) -> str:
    """Give the socket the congestion control, and its tag with a backend; why not, if so."""
    try:
        with found.borrow() as ours:
            put_back(ours, name)
            job = before.tags.get(found.cookie)
            if backend is not None and job in before.jobs and name in NAMES:
                backend.tag(ours.fileno(), job)
    except Gone:
        return ""
    except (MltcpError, OSError) as error:
        return f"process {found.process.pid} fd {found.fd}: {str(error).rstrip('.')}"
    return ""
