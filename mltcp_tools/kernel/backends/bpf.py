# SPDX-License-Identifier: BSD-2-Clause
"""The eBPF backend: struct_ops congestion controls, loaded through libbpf.

What stays on the host while loaded: the registered congestion controls and the maps pinned in
/sys/fs/bpf/mltcp. `unload` removes both.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import struct
import time
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import cached_property
from pathlib import Path

from mltcp_tools.base.errors import BusyError, HostError, MltcpError
from mltcp_tools.kernel.backends import checks, records, struct_ops
from mltcp_tools.kernel.backends.base import Backend, Flow, IterationStream, Job, JobParams, Status
from mltcp_tools.kernel.backends.bpf_iterations import BpfIterations
from mltcp_tools.kernel.backends.bpf_sockets import forget_first
from mltcp_tools.kernel.backends.params import params_fields, params_from_struct
from mltcp_tools.kernel.backends.pins import (
    MAPS,
    NEW_ROOT,
    OLD_ROOT,
    PIN_ROOT,
    Home,
    OtherVersionError,
    elsewhere,
    explain,
    is_pinned,
    loaded_elsewhere,
    map_key,
    pinned,
)
from mltcp_tools.kernel.congestion_controls import RECOMMENDED, STANDARD, base_of, offered_by
from mltcp_tools.kernel.host import cgroups, facts
from mltcp_tools.kernel.host.cc_sockets import driven
from mltcp_tools.kernel.host.locks import exclusive
from mltcp_tools.kernel.native import libbpf, requirements
from mltcp_tools.kernel.native import objects as build
from mltcp_tools.kernel.native.bpf_maps import BpfMap
from mltcp_tools.kernel.native.bpf_object import BpfObject
from mltcp_tools.kernel.native.libbpf import BpfError
from mltcp_tools.kernel.native.uapi import ffi, pack, unpack

_NAMES = offered_by("bpf")
COUNTING = ("count_received", "count_sent")
"""Programs of bpf/traffic.bpf.c, and their pins."""

_GONE_S = 10.0
"""The kernel frees programs a grace period after the last socket has let them go."""

_REFUSED_CALL = re.compile(r"calling kernel function \w+ is not allowed")
"""The verifier's words."""


class _RefusedCallError(HostError):
    """eBPF may not call a base: before 6.10 only x86-64 lets it call cubic and dctcp."""


def _wait_until_gone() -> None:
    """Return when the kernel has none of our programs; BusyError names what holds them."""
    deadline = time.monotonic() + _GONE_S
    while left := [*struct_ops.registered(), *struct_ops.unregistered()]:
        if time.monotonic() > deadline:
            holders = checks.few(driven(_NAMES)) or "a socket that is neither bound nor connected"
            raise BusyError(
                f"Unregistered, but the kernel still has the programs of {', '.join(left)}, held"
                f" by: {holders}; close or switch these, then unload again."
            )
        time.sleep(0.05)


class BpfBackend(Backend):
    """MLTCP as eBPF struct_ops programs.

    Jobs belong to a network namespace, as the kernel module's: a backend works in the one from
    which it is first asked for jobs.
    """

    name = "bpf"
    names = _NAMES

    @cached_property
    def home(self) -> Home:
        """The network namespace whose jobs these are."""
        return Home.here()

    def __init__(self) -> None:
        self._reader: tuple[int, Callable[[], object], Callable[[], list[bytes]]] | None = None

    def is_present(self) -> bool:
        return os.path.isdir(PIN_ROOT)  # which a user who may not look there is told isn't

    def load(self, names: Sequence[str] | None = None, defaults: JobParams | None = None) -> Status:
        given, names = names is not None, STANDARD if names is None else names
        checks.check_offered(self.name, names, _NAMES)
        requirements.require_change(PIN_ROOT.parent)
        requirements.require_every_call()
        with exclusive("bpf"):
            self._clean_leftovers()
            present = struct_ops.registered()
            if present and defaults is not None:
                raise checks.loaded_already(present)
            wanted = [name for name in _NAMES if name in names and name not in present]
            for name in wanted:
                if name in facts.available_congestion_controls():
                    raise BusyError(
                        f"The name {name} is taken by another congestion control, which keeps it "
                        "until it is unloaded (a kernel module: mltcp unload --backend kmod)."
                    )
                if not facts.has_congestion_control(base := base_of(name)):
                    raise HostError(
                        f"This kernel has no {base}, which {name} is built on; boot one built with"
                        f" CONFIG_TCP_CONG_{base.upper()}, or do without {name}."
                    )
            fields = params_fields(defaults or JobParams())
            objects = {name: build.build_object(name) for name in wanted}
            traffic = build.build_object("traffic")
            try:
                PIN_ROOT.mkdir(mode=0o700, exist_ok=True)
                for name, path in objects.items():
                    try:
                        with self._open(name, path, PIN_ROOT, fields) as loaded:
                            self._register(name, loaded)
                    except _RefusedCallError:
                        if given or name == RECOMMENDED:
                            raise
                self._count_traffic(traffic, PIN_ROOT)
            except BaseException:
                struct_ops.unregister(wanted)
                if not present:
                    shutil.rmtree(PIN_ROOT, ignore_errors=True)
                raise
        return self.status()

    @staticmethod
    def _open(name: str, path: Path, root: Path, fields: dict[str, int]) -> BpfObject:
        """The object in the kernel, not registered yet, its maps pinned below root."""
        initial = {
            ".rodata.defaults": pack("mltcp_params", fields),
            ".rodata.build": struct_ops.build_here().encode().ljust(struct_ops.BUILD_BYTES, b"\0"),
        }
        try:
            return BpfObject(path, root, initial)
        except BpfError as error:
            if _REFUSED_CALL.search(error.log):
                raise _RefusedCallError(
                    f"This kernel doesn't let eBPF call {base_of(name)}: boot 6.10, or omit {name}."
                ) from error
            raise explain(error, f"Loading {name}") from error

    @staticmethod
    def _register(name: str, loaded: BpfObject) -> None:
        try:
            loaded.register_struct_ops(name)
        except BpfError as error:
            raise explain(error, f"Registering {name}") from error
        # Success of the calls proves little: bpftool 7.1 reports it when the kernel refused.
        if name not in facts.available_congestion_controls():
            raise HostError(f"The kernel accepted {name} but doesn't list it; nothing is loaded.")

    @staticmethod
    def _count_traffic(path: Path, root: Path) -> None:
        """Count what hosts receive and send, until root goes; not where cgroup2 isn't mounted."""
        try:
            everything = os.open(cgroups.root(), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except HostError:
            return
        try:
            with BpfObject(path, root) as loaded:
                for program in COUNTING:
                    if not (root / program).exists():
                        loaded.pin_to_cgroup(program, everything, root / program)
        except BpfError as error:
            raise explain(error, "Counting the host's traffic") from error
        finally:
            os.close(everything)

    @staticmethod
    def _clean_leftovers() -> None:
        """Maps without a registration are a crash's.

        With some of the maps they are another version's, and in use; registrations without their
        maps are somebody's who sees other pins.
        """
        present = struct_ops.registered()
        pinned = [name for name in MAPS if (PIN_ROOT / name).exists()]
        if present and pinned and len(pinned) < len(MAPS):
            raise OtherVersionError()
        if foreign := elsewhere():
            raise BusyError(loaded_elsewhere(foreign))
        if PIN_ROOT.is_dir() and not (present and pinned):
            shutil.rmtree(PIN_ROOT)

    def unload(self, force: bool = False) -> int:
        requirements.require_change(PIN_ROOT.parent)
        with exclusive("bpf"):
            try:
                flows = self.flows()
            except MltcpError:  # such as the maps of another version
                if not force:
                    raise
                flows = []
            if force:
                checks.check_no_default(_NAMES)
                self._switch_off()
            elif PIN_ROOT.exists() or [*struct_ops.registered(), *struct_ops.unregistered()]:
                checks.check_unused(self.name, flows, _NAMES)
            self._forget_jobs()
            struct_ops.unregister(_NAMES)
            self._close_reader()
            for root in (PIN_ROOT, NEW_ROOT, OLD_ROOT):
                if root.is_dir():
                    shutil.rmtree(root)
            forget_first()
            left = struct_ops.registered()
            if left:
                raise HostError(f"The kernel still lists {', '.join(left)} after unloading.")
            if not force:
                _wait_until_gone()
        return len(flows)

    @staticmethod
    def _switch_off() -> None:
        """Sockets keep the code they have: let it do what their base does, and no more."""
        off = BpfMap.find(PIN_ROOT / "mltcp_off")
        if off is not None:
            with off:
                off.set(map_key(0), struct.pack("=I", 1))

    @staticmethod
    def _forget_jobs() -> None:
        jobs = BpfMap.find(PIN_ROOT / "mltcp_jobs")
        if jobs is not None:
            with jobs:
                for key in jobs.all_keys():
                    jobs.delete(key)

    def status(self) -> Status:
        requirements.require_bpf(PIN_ROOT.parent)
        loaded = self._registered()
        sockets = Counter(dict.fromkeys(loaded, 0))
        sockets.update(flow.congestion_control for flow in self.flows())
        details: dict[str, object] = {
            "pins": str(PIN_ROOT),
            "libbpf": libbpf.version(),
            "default_here": facts.default_congestion_control(),
            "unregistered": struct_ops.unregistered(),
            "elsewhere": elsewhere(),
        }
        build_name, defaults = struct_ops.in_force()
        jobs = tuple(self.jobs())
        return Status(self.name, loaded, dict(sockets), jobs, details, defaults, build_name)

    def loaded(self) -> tuple[str, ...]:
        requirements.require_bpf(PIN_ROOT.parent)
        if foreign := elsewhere():
            raise BusyError(loaded_elsewhere(foreign))
        return self._registered()

    @staticmethod
    def _registered() -> tuple[str, ...]:
        present = struct_ops.registered()
        return tuple(name for name in _NAMES if name in present)

    def build_here(self) -> str:
        return struct_ops.build_here()

    def renew(self, defaults: JobParams | None = None) -> None:
        requirements.require_change(PIN_ROOT.parent)
        with exclusive("bpf"):
            names = struct_ops.registered()
            if not names:
                raise checks.not_loaded(self.name)
            fields = params_fields(defaults or struct_ops.in_force()[1] or JobParams())
            jobs: list[Job] = []
            with suppress(OtherVersionError):  # the agent sets its jobs again
                jobs = self.jobs()
            objects = {name: build.build_object(name) for name in names}
            traffic = build.build_object("traffic")
            with ExitStack() as stack:
                for root in (NEW_ROOT, OLD_ROOT):
                    shutil.rmtree(root, ignore_errors=True)  # a crash left it
                    stack.callback(shutil.rmtree, root, ignore_errors=True)
                NEW_ROOT.mkdir(mode=0o700)
                # All are in the kernel, and the verifier has taken them, before anything changes.
                loaded = {
                    name: stack.enter_context(self._open(name, path, NEW_ROOT, fields))
                    for name, path in objects.items()
                }
                self._count_traffic(traffic, NEW_ROOT)
                for name, each in loaded.items():
                    struct_ops.unregister([name])
                    self._register(name, each)
                self._close_reader()
                if PIN_ROOT.exists():  # else all was loaded elsewhere
                    PIN_ROOT.rename(OLD_ROOT)
                NEW_ROOT.rename(PIN_ROOT)
            for job in jobs:
                self.set_job(job)

    def set_job(self, job: Job) -> None:
        value = pack("mltcp_job", {"params": params_fields(job.params), "name": job.name.encode()})
        with pinned("mltcp_jobs") as jobs:
            try:
                jobs.set(self.home.key(job.id), value)
            except BpfError as error:
                if error.errno == errno.E2BIG:
                    raise BusyError(
                        f"The table of jobs is full ({len(jobs.all_keys())}); delete jobs first."
                    ) from error
                raise explain(error, f"Setting job {job.id}") from error

    def delete_job(self, job_id: int) -> None:
        with pinned("mltcp_jobs") as jobs:
            if not 1 <= job_id < 2**32 or not jobs.delete(self.home.key(job_id)):
                raise checks.no_job(job_id)

    def jobs(self) -> list[Job]:
        if not is_pinned("mltcp_jobs"):
            return []
        found = []
        with pinned("mltcp_jobs") as jobs:
            for key in jobs.all_keys():
                where = unpack("mltcp_job_key", key)
                value = jobs.get(key) if where.home == self.home.cookie else None
                if value is not None:
                    job = unpack("mltcp_job", value)
                    name = ffi.string(job.name).decode(errors="replace")
                    found.append(Job(where.id, name, params_from_struct(job.params)))
        return sorted(found, key=lambda job: job.id)

    def tag(self, fd: int, job_id: int) -> None:
        with pinned("mltcp_jobs") as jobs:
            if not 1 <= job_id < 2**32 or jobs.get(self.home.key(job_id)) is None:
                raise checks.no_job(job_id)
        checks.check_taggable(fd, _NAMES)
        tag = pack(
            "mltcp_tag",
            {"job": job_id, "netns": self.home.netns, "home": self.home.cookie},
        )
        with pinned("mltcp_tags") as tags:
            try:
                tags.set(map_key(fd), tag)
                if tags.get(map_key(fd)) != tag:
                    raise MltcpError(f"The kernel didn't keep the tag of descriptor {fd}.")
            except BpfError as error:
                raise explain(error, f"Tagging descriptor {fd}") from error

    def untag(self, fd: int) -> None:
        checks.check_tcp(fd)
        with pinned("mltcp_tags") as tags:
            try:
                tags.delete(map_key(fd))
            except BpfError as error:
                raise explain(error, f"Untagging descriptor {fd}") from error

    def flows(self) -> list[Flow]:
        return [records.flow(each) for each in self._flow_records()]

    def cookies(self) -> dict[bytes, int]:
        """The cookies of all flows by their ends, as records.ends_of_event has them."""
        return records.cookies(self._flow_records())

    def _flow_records(self) -> list[bytes]:
        """A struct mltcp_flow_record of each flow, which gets its cookie by that."""
        if not is_pinned("mltcp_flows"):
            return []
        try:
            with pinned("mltcp_flows") as flows:
                return self._flow_reader(flows)()
        except BpfError as error:
            raise explain(error, "Reading the flows") from error

    def _flow_reader(self, flows: BpfMap) -> Callable[[], list[bytes]]:
        """Reads the flows' records; the iterator program is kept while the map is the same, and
        goes with the backend at the latest."""
        if self._reader and self._reader[0] == flows.id:
            return self._reader[2]
        self._close_reader()
        loaded = BpfObject(build.build_object("flows"), PIN_ROOT)
        try:
            size = ffi.sizeof("struct mltcp_flow_record")
            reader = loaded.attach_iterator("dump_flows", size, flows.fd)
        except BaseException:
            loaded.close()
            raise
        close = weakref.finalize(self, loaded.close)
        close.atexit = False
        self._reader = (flows.id, close, reader)
        return reader

    def _close_reader(self) -> None:
        if self._reader:
            self._reader[1]()
            self._reader = None

    def iterations(self) -> IterationStream:
        return BpfIterations(self.name, self.cookies)
