# SPDX-License-Identifier: BSD-2-Clause
"""The kernel module backend: tcp_mltcp, controlled over generic netlink.

What stays on the host while loaded is the module. Its jobs belong to a network namespace: a
`KmodBackend` works in the one from which it is first used.
"""

from __future__ import annotations

import errno
import struct
import time
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from mltcp_tools import __version__
from mltcp_tools.base.errors import BusyError, HostError, MltcpError, UsageError
from mltcp_tools.kernel.backends import checks, module
from mltcp_tools.kernel.backends.attributes import (
    flow_from,
    iteration_from,
    job_attributes,
    job_from,
)
from mltcp_tools.kernel.backends.base import (
    Backend,
    Flow,
    IterationEvent,
    IterationStream,
    Job,
    JobParams,
    Status,
)
from mltcp_tools.kernel.backends.genl import GenericSocket, NetlinkError, decode, number, text
from mltcp_tools.kernel.backends.kmod_catch import KmodCatcher, rules
from mltcp_tools.kernel.backends.pins import PIN_ROOT
from mltcp_tools.kernel.congestion_controls import offered_by
from mltcp_tools.kernel.host import facts
from mltcp_tools.kernel.host.cc_sockets import Driven, driven
from mltcp_tools.kernel.host.locks import exclusive
from mltcp_tools.kernel.native.uapi import (
    GENL_GROUP,
    GENL_NAME,
    GENL_VERSION,
    Attribute,
    Command,
)

_THOUSANDTHS = ("slope", "intercept", "yield_min", "yield_max")
"""Parameters that the module takes as integers, a thousandth each."""

_UNREAD_BYTES = 8 << 20
"""Room for iterations that nobody has read yet: about 10,000."""

_BUSY_S = 1.0
_ASK_AGAIN_S = 0.0002
"""The time for which a socket to be tagged may be in use, and that between two looks at it."""

_LET_GO_S = 10.0


def module_arguments(defaults: JobParams | None) -> list[str]:
    """The module's parameters for these defaults of flows without a job, as insmod takes them."""
    if defaults is None:
        return []
    if defaults.mechanisms is not None:
        raise UsageError(
            "The kernel module's defaults have no mechanisms; give the flows a job that has them."
        )
    gap_ns = round(defaults.gap_s * 1e9)
    shares = [f"{name}={round(getattr(defaults, name) * 1000)}" for name in _THOUSANDTHS]
    return [*shares, f"burst_bytes={defaults.burst_bytes}", f"gap_ns={gap_ns}"]


def defaults_from(parameters: Mapping[str, int]) -> JobParams:
    """The defaults of flows without a job that these parameters of the module stand for."""
    shares = {name: parameters[name] / 1000 for name in _THOUSANDTHS}
    told = JobParams(burst_bytes=parameters["burst_bytes"], gap_s=parameters["gap_ns"] / 1e9)
    return replace(told, **shares)  # type: ignore[arg-type]


def _descriptor(fd: int) -> bytes:
    """The attribute's bytes; UsageError when there can't be such a descriptor."""
    if not 0 <= fd < 2**31:
        checks.check_tcp(fd)
    return struct.pack("=i", fd)


def explain(error: NetlinkError, doing: str) -> MltcpError:
    """One sentence for what the kernel refused."""
    if error.errno == errno.EPERM:
        return HostError(
            f"{doing} failed: this process lacks CAP_NET_ADMIN in its network namespace or the "
            "socket's; run it as root (sudo)."
        )
    if error.errno == errno.EACCES:
        return HostError(
            f"{doing} failed: its parameters are more aggressive than the defaults, which only"
            " the host's root may set; lower slope or intercept."
        )
    if error.errno == errno.EBUSY:
        return BusyError(f"{doing} failed: its process kept the socket locked for a second; retry.")
    if error.errno == errno.ENOSPC:
        return BusyError(f"{doing} failed: the table of jobs is full; delete jobs first.")
    return MltcpError(f"{doing} failed: {error.strerror}.")


class KmodBackend(Backend):
    """MLTCP as the kernel module tcp_mltcp."""

    name = "kmod"
    names = offered_by(name)

    def __init__(self) -> None:
        self._open: tuple[int, GenericSocket] | None = None

    def is_present(self) -> bool:
        return module.is_loaded()

    def load(self, names: Sequence[str] | None = None, defaults: JobParams | None = None) -> Status:
        checks.check_offered(self.name, names or (), self.names)
        arguments = module_arguments(defaults)
        with exclusive(self.name):
            if module.is_loaded():
                if defaults is not None:
                    raise checks.loaded_already(self._registered())
                self._check_loaded(names)
                module.set_parameter("enabled", 1)  # which unload with force had taken away
            else:
                module.require_loading()
                self._check_free(self.names)
                module.insert(arguments)
                try:
                    self._check_loaded(names)
                except BaseException:
                    module.remove()
                    raise
        return self.status()

    @staticmethod
    def _check_free(names: Sequence[str]) -> None:
        """BusyError when another congestion control has one of the names."""
        available = facts.available_congestion_controls()
        taken = ", ".join(name for name in names if name in available)
        if taken and PIN_ROOT.exists():
            raise BusyError(
                f"The bpf backend has registered {taken} already; to use the kernel "
                "module instead, run `mltcp unload --backend bpf`."
            )
        if taken:
            raise BusyError(
                f"Another congestion control is registered as {taken}; unload it first."
            )

    def _check_loaded(self, names: Sequence[str] | None) -> None:
        """Raise unless the module in the kernel is of this version and has the names."""
        version = text(self._ask()[Attribute.VERSION])
        if version != __version__:
            raise HostError(
                f"The module {module.NAME} is version {version} and this tool {__version__}; build "
                "and install the module of this version (`mltcp unload` removes a loaded one)."
            )
        registered = self._registered()
        missing = [name for name in names or self.names if name not in registered]
        self._check_free(missing)
        if missing and names:
            raise HostError(f"This kernel lacks the base algorithm of {', '.join(missing)}.")

    def _registered(self) -> tuple[str, ...]:
        """The names that the module has and the kernel lists."""
        said = text(self._ask()[Attribute.NAMES]).split()
        listed = facts.available_congestion_controls()
        return tuple(name for name in self.names if name in said and name in listed)

    def unload(self, force: bool = False) -> int:
        with exclusive(self.name):
            if not module.is_loaded():
                return 0
            sockets = [each for each in driven(self.names) if each.state != "listen"]
            if force:
                self._let_go(sockets)
                checks.check_no_default(self.names)
            else:
                checks.check_unused(self.name, sockets, self._registered())
            try:
                module.remove()
            except BusyError as error:
                holders = checks.few(driven(self.names)) or (
                    "sockets that are neither bound nor connected"
                )
                raise BusyError(
                    f"{module.references()} sockets still hold {module.NAME}: {holders}; close or "
                    "switch them, or use `mltcp unload --everything`."
                ) from error
            if module.is_loaded():
                raise HostError(f"rmmod reported success, but {module.NAME} is still loaded.")
        return 0

    def _let_go(self, sockets: Sequence[Driven]) -> None:
        """Make all flows their base; BusyError when there are any, for they hold the module."""
        for job in self.jobs():
            self.delete_job(job.id)
        module.set_parameter("enabled", 0)
        if sockets:
            raise BusyError(
                f"{len(sockets)} sockets ({checks.usage(sockets)}) run on as their base algorithm "
                f"from now, and the module stays until they close: {checks.few(sockets)}; then "
                "unload again."
            )

    def _remove_patiently(self) -> None:
        """Take the module out as soon as sockets that were switched just now have let it go."""
        deadline = time.monotonic() + _LET_GO_S
        while True:
            try:
                return module.remove()
            except BusyError as error:
                if time.monotonic() > deadline:
                    holders = checks.few(driven(self.names)) or "sockets that nobody has any more"
                    raise BusyError(
                        f"The module can't be replaced while it is held by {holders}."
                    ) from error
                time.sleep(0.05)

    def status(self) -> Status:
        if not module.is_loaded():
            return Status(self.name, (), {}, (), {"installed": module.installed()})
        answer = self._ask()
        loaded = self._registered()
        sockets = Counter(dict.fromkeys(loaded, 0))
        sockets.update(flow.congestion_control for flow in self.flows())
        details: dict[str, object] = {
            "module": module.NAME,
            "version": text(answer[Attribute.VERSION]),
            "references": module.references(),
            "dropped": number(answer[Attribute.DROPPED]),
            "parameters": module.parameters(),
            "default_here": facts.default_congestion_control(),
        }
        jobs = tuple(self.jobs())
        defaults = defaults_from(module.parameters())
        return Status(
            self.name, loaded, dict(sockets), jobs, details, defaults, module.build_loaded()
        )

    def loaded(self) -> tuple[str, ...]:
        return self._registered() if module.is_loaded() else ()

    def build_here(self) -> str:
        return module.build_here()

    def renew(self, defaults: JobParams | None = None) -> None:
        jobs = self.jobs()
        kept = defaults or defaults_from(module.parameters())
        with exclusive(self.name):
            self._remove_patiently()
        self.load(defaults=kept)
        for job in jobs:
            self.set_job(job)

    def _socket(self) -> GenericSocket:
        """The socket to the module that is loaded now."""
        try:
            generation = module.generation()
        except FileNotFoundError as error:
            raise checks.not_loaded(self.name) from error
        if self._open is None or self._open[0] != generation:
            opened = self._new_socket()
            weakref.finalize(self, opened.close)
            self._open = generation, opened
        return self._open[1]

    def _new_socket(self) -> GenericSocket:
        try:
            opened = GenericSocket(GENL_NAME)
        except NetlinkError as error:
            if error.errno == errno.ENOENT:
                raise checks.not_loaded(self.name) from error
            raise explain(error, "Reaching the module") from error
        if opened.version != GENL_VERSION:
            opened.close()
            raise HostError(
                f"The module {module.NAME} speaks version {opened.version} of its protocol and "
                f"this tool {GENL_VERSION}; build and install the module of this version."
            )
        return opened

    def _request(
        self, command: int, attributes: Mapping[int, bytes], doing: str
    ) -> dict[int, bytes]:
        try:
            return self._socket().request(command, attributes)
        except NetlinkError as error:
            raise explain(error, doing) from error

    def _ask(self) -> dict[int, bytes]:
        return self._request(Command.STATUS_GET, {}, "Asking the module")

    def _dump(self, command: int, doing: str) -> list[bytes]:
        """Answers to a dump, still encoded; none when the module isn't loaded."""
        if not module.is_loaded():
            return []
        try:
            return self._socket().dump(command)
        except NetlinkError as error:
            raise explain(error, doing) from error

    def set_job(self, job: Job) -> None:
        self._request(Command.JOB_SET, job_attributes(job), f"Setting job {job.id}")

    def delete_job(self, job_id: int) -> None:
        if not 1 <= job_id < 2**32:
            raise checks.no_job(job_id)
        try:
            self._socket().request(Command.JOB_DEL, {Attribute.JOB_ID: struct.pack("=I", job_id)})
        except NetlinkError as error:
            if error.errno == errno.ENOENT:
                raise checks.no_job(job_id) from error
            raise explain(error, f"Deleting job {job_id}") from error

    def jobs(self) -> list[Job]:
        found = [job_from(decode(data)) for data in self._dump(Command.JOB_GET, "Reading the jobs")]
        return sorted(found, key=lambda job: job.id)

    def _change_tag(self, command: int, attributes: Mapping[int, bytes]) -> None:
        """Ask again while the socket is in use: the kernel doesn't wait for who may sleep so."""
        deadline = time.monotonic() + _BUSY_S
        while True:
            try:
                self._socket().request(command, attributes)
                return
            except NetlinkError as error:
                if error.errno != errno.EBUSY or time.monotonic() > deadline:
                    raise
            time.sleep(_ASK_AGAIN_S)

    def tag(self, fd: int, job_id: int) -> None:
        # The kernel checks all of it; why it refused is looked into only then.
        if not 1 <= job_id < 2**32:
            raise checks.no_job(job_id)
        attributes: dict[int, bytes] = {
            Attribute.FD: _descriptor(fd),
            Attribute.JOB_ID: struct.pack("=I", job_id),
        }
        try:
            self._change_tag(Command.TAG, attributes)
        except NetlinkError as error:
            if error.errno == errno.ENOENT:
                raise checks.no_job(job_id) from error
            if error.errno != errno.EPERM:
                checks.check_taggable(fd, self.names)
            raise explain(error, f"Tagging descriptor {fd}") from error

    def untag(self, fd: int) -> None:
        try:
            self._change_tag(Command.UNTAG, {Attribute.FD: _descriptor(fd)})
        except NetlinkError as error:
            if error.errno == errno.ENOTCONN:
                return  # not under MLTCP: it has no tag
            if error.errno != errno.EPERM:
                checks.check_tcp(fd)
            raise explain(error, f"Untagging descriptor {fd}") from error

    def flows(self) -> list[Flow]:
        dumped = self._dump(Command.FLOW_GET, "Reading the flows")
        return [flow_from(decode(data)[Attribute.FLOW]) for data in dumped]

    def catcher(self) -> KmodCatcher:
        """A holder of rules for cgroups; for as long as the module is loaded."""
        return KmodCatcher(self._new_socket())

    def rules(self) -> dict[int, int]:
        """The job of each cgroup that has a rule, by their ids; none without the module."""
        return rules(self._socket()) if module.is_loaded() else {}

    def iterations(self) -> IterationStream:
        return _KmodIterations(self._new_socket())


class _KmodIterations(IterationStream):
    """The multicast group of finished iterations, on a socket of its own."""

    def __init__(self, opened: GenericSocket) -> None:
        self._socket: GenericSocket | None = opened
        try:
            opened.join(GENL_GROUP, _UNREAD_BYTES)
        except BaseException as error:
            self.close()
            if isinstance(error, PermissionError):
                raise explain(NetlinkError(errno.EPERM), "Hearing of iterations") from error
            raise

    def poll(self, timeout_s: float) -> list[IterationEvent]:
        if self._socket is None:
            return []
        heard = self._socket.notifications(timeout_s)
        self.dropped = self._socket.dropped()
        return [
            iteration_from(decode(data)[Attribute.ITERATION])
            for command, data in heard
            if command == Command.ITERATION
        ]

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
