"""The eBPF backend: struct_ops congestion controls, loaded through libbpf.

What stays on the host while loaded: the registered congestion controls and the maps pinned in
/sys/fs/bpf/mltcp. `unload` removes both.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from mltcp_tools import host
from mltcp_tools.backends import build, libbpf
from mltcp_tools.backends.base import (
    NAMES,
    Backend,
    Flow,
    IterationEvent,
    IterationStream,
    Job,
    JobParams,
    Status,
)
from mltcp_tools.backends.params import params_fields, params_from_struct
from mltcp_tools.errors import BusyError, HostError, MltcpError, UsageError
from mltcp_tools.uapi import address_text, ffi, from_fixed, pack, unpack

PIN_ROOT = Path("/sys/fs/bpf/mltcp")
RUN_DIR = Path("/run/mltcp")

_STRUCTS = {
    "mltcp_tags": "mltcp_tag",
    "mltcp_flows": "mltcp_flow",
    "mltcp_jobs": "mltcp_job",
}
"""Maps whose values are structs of the uapi header, and which struct."""

_MAPS = (*_STRUCTS, "mltcp_events", "mltcp_dropped")
"""Maps that the objects share, pinned by these names (bpf/mltcp_maps.bpf.h)."""

_OTHER_VERSION = (
    f"The maps in {PIN_ROOT} are another version's; run `mltcp unload --force`, then load again."
)

_TCP_STATES = (
    "unknown",
    "established",
    "syn-sent",
    "syn-recv",
    "fin-wait-1",
    "fin-wait-2",
    "time-wait",
    "close",
    "close-wait",
    "last-ack",
    "listen",
    "closing",
)


def _key(number: int) -> bytes:
    if not 0 <= number < 2**32:
        raise UsageError(f"{number} is no id of a job and no descriptor.")
    return struct.pack("=I", number)


@contextmanager
def _lock(name: str, message: str | None = None) -> Iterator[None]:
    """Hold RUN_DIR/NAME.lock; BusyError with message instead of waiting when one is given."""
    RUN_DIR.mkdir(mode=0o755, parents=True, exist_ok=True)
    descriptor = os.open(RUN_DIR / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (fcntl.LOCK_NB if message else 0))
    except BlockingIOError:
        os.close(descriptor)
        raise BusyError(message or name) from None
    try:
        yield
    finally:
        os.close(descriptor)


def _registered_maps() -> Iterator[libbpf.BpfMap]:
    """The struct_ops map of each of our congestion controls that BPF has registered."""
    for found in libbpf.struct_ops_maps():
        value = found.get(_key(0)) if found.name in NAMES else None
        # struct bpf_struct_ops_common_value: reference count, then state; since kernel 5.6
        if value and struct.unpack_from("=I", value, 4)[0] == libbpf.STRUCT_OPS_INUSE:
            yield found


def _registered() -> list[str]:
    """Names of our congestion controls that BPF has registered."""
    return [found.name for found in _registered_maps()]


def _unregister(names: Sequence[str]) -> None:
    """Unregister those of the names that are registered; sockets keep the code they have."""
    for found in _registered_maps():
        if found.name in names:
            found.delete(_key(0))


def _explain(error: libbpf.BpfError, doing: str) -> MltcpError:
    """One sentence for a libbpf failure."""
    detail = " ".join(error.log.strip().splitlines()[-3:])
    if "parameter mismatch" in error.log:  # libbpf's words for pinned maps of other sizes
        return HostError(_OTHER_VERSION)
    if error.errno == errno.EEXIST:
        return BusyError(f"{doing} failed: another congestion control has that name already.")
    if error.errno == errno.EPERM:
        return HostError(
            f"{doing} failed: not permitted; run as root in the initial namespaces, and see "
            "`mltcp doctor` for lockdown and capabilities."
        )
    return HostError(f"{doing} failed: {error} {detail}".rstrip())


class BpfBackend(Backend):
    """MLTCP as eBPF struct_ops programs."""

    name = "bpf"

    def __init__(self) -> None:
        self._reader: tuple[int, libbpf.BpfObject, Callable[[], int]] | None = None

    def load(self, names: Sequence[str] = NAMES, defaults: JobParams | None = None) -> Status:
        for name in names:
            if name not in NAMES:
                raise UsageError(f"{name!r} is none of {', '.join(NAMES)}.")
        host.require_bpf(PIN_ROOT.parent)
        with _lock("bpf"):
            self._clean_leftovers()
            present = _registered()
            if present and defaults is not None:
                raise BusyError(
                    f"{', '.join(present)} are loaded with their own defaults; run `mltcp "
                    "unload` first."
                )
            wanted = [name for name in NAMES if name in names and name not in present]
            for name in wanted:
                if name in host.available_congestion_controls():
                    raise BusyError(
                        f"The name {name} is taken by another congestion control; unload that one "
                        "first (a kernel module: rmmod tcp_mltcp)."
                    )
            fields = params_fields(defaults or JobParams())
            objects = {name: build.build_object(name) for name in wanted}
            try:
                PIN_ROOT.mkdir(mode=0o700, exist_ok=True)
                for name, path in objects.items():
                    self._load_one(name, path, pack("mltcp_params", fields))
            except BaseException:
                _unregister(wanted)
                if not present:
                    shutil.rmtree(PIN_ROOT, ignore_errors=True)
                raise
        return self.status()

    @staticmethod
    def _load_one(name: str, path: Path, defaults: bytes) -> None:
        try:
            with libbpf.BpfObject(path, PIN_ROOT, {".rodata.defaults": defaults}) as loaded:
                loaded.register_struct_ops(name)
        except libbpf.BpfError as error:
            raise _explain(error, f"Loading {name}") from error
        # Success of the calls proves little: bpftool 7.1 reports it when the kernel refused.
        if name not in host.available_congestion_controls():
            raise HostError(f"The kernel took {name} but doesn't list it; nothing is loaded.")

    @staticmethod
    def _clean_leftovers() -> None:
        """Registrations without their maps, or maps without a registration, are a crash's."""
        present = _registered()
        pinned = PIN_ROOT.is_dir() and all((PIN_ROOT / name).exists() for name in _MAPS)
        if present and not pinned:
            _unregister(present)
        if PIN_ROOT.is_dir() and not (present and pinned):
            shutil.rmtree(PIN_ROOT)

    def unload(self, force: bool = False) -> int:
        host.require_bpf(PIN_ROOT.parent)
        with _lock("bpf"):
            try:
                flows = self.flows()
            except MltcpError:  # such as the maps of another version
                if not force:
                    raise
                flows = []
            default = host.default_congestion_control()
            if not force:
                if default in _registered():
                    raise BusyError(
                        f"{default} is the default of this network namespace; set another one "
                        "first: sysctl net.ipv4.tcp_congestion_control=cubic"
                    )
                if flows:
                    used = Counter(flow.congestion_control for flow in flows)
                    text = ", ".join(f"{count} by {name}" for name, count in used.items())
                    raise BusyError(
                        f"{len(flows)} sockets are still driven ({text}); close or switch them, or "
                        "use --force: they then run on until they close, as their base algorithm "
                        "unless `mltcp load` was given --total and --gap."
                    )
            self._forget_jobs()
            _unregister(NAMES)
            self._close_reader()
            if PIN_ROOT.is_dir():
                shutil.rmtree(PIN_ROOT)
            left = _registered()
            if left:
                raise HostError(f"The kernel still lists {', '.join(left)} after unloading.")
        return len(flows)

    def _forget_jobs(self) -> None:
        try:
            with libbpf.BpfMap.pinned(PIN_ROOT / "mltcp_jobs") as jobs:
                for key in jobs.all_keys():
                    jobs.delete(key)
        except libbpf.BpfError as error:
            if error.errno != errno.ENOENT:
                raise _explain(error, "Deleting the jobs") from error

    def status(self) -> Status:
        host.require_bpf(PIN_ROOT.parent)
        loaded = tuple(name for name in NAMES if name in _registered())
        sockets = Counter(dict.fromkeys(loaded, 0))
        sockets.update(flow.congestion_control for flow in self.flows())
        details: dict[str, object] = {
            "pins": str(PIN_ROOT),
            "libbpf": libbpf.version(),
            "default_here": host.default_congestion_control(),
        }
        return Status(self.name, loaded, dict(sockets), tuple(self.jobs()), details)

    @contextmanager
    def _map(self, name: str) -> Iterator[libbpf.BpfMap]:
        """The pinned map, open; MltcpError when nothing is loaded."""
        host.require_bpf(PIN_ROOT.parent)
        try:
            found = libbpf.BpfMap.pinned(PIN_ROOT / name)
        except libbpf.BpfError as error:
            if error.errno == errno.ENOENT:
                raise MltcpError("The bpf backend isn't loaded; run `mltcp load`.") from error
            raise _explain(error, f"Opening {name}") from error
        with found:
            kind = _STRUCTS.get(name)
            if kind and found.value_size != ffi.sizeof(f"struct {kind}"):
                raise HostError(_OTHER_VERSION)
            yield found

    @staticmethod
    def _has(name: str) -> bool:
        """Whether the map is pinned; HostError where this process may not look."""
        host.require_bpf(PIN_ROOT.parent)
        return (PIN_ROOT / name).exists()

    def set_job(self, job: Job) -> None:
        value = pack("mltcp_job", {"params": params_fields(job.params), "name": job.name.encode()})
        with self._map("mltcp_jobs") as jobs:
            try:
                jobs.set(_key(job.id), value)
            except libbpf.BpfError as error:
                if error.errno == errno.E2BIG:
                    raise BusyError(
                        f"The table of jobs is full ({len(jobs.all_keys())}); delete jobs first."
                    ) from error
                raise _explain(error, f"Setting job {job.id}") from error

    def delete_job(self, job_id: int) -> None:
        with self._map("mltcp_jobs") as jobs:
            if not jobs.delete(_key(job_id)):
                raise UsageError(f"There is no job {job_id}.")

    def jobs(self) -> list[Job]:
        if not self._has("mltcp_jobs"):
            return []
        found = []
        with self._map("mltcp_jobs") as jobs:
            for key in jobs.all_keys():
                value = jobs.get(key)
                if value is not None:
                    job = unpack("mltcp_job", value)
                    name = ffi.string(job.name).decode(errors="replace")
                    number = struct.unpack("=I", key)[0]
                    found.append(Job(number, name, params_from_struct(job.params)))
        return sorted(found, key=lambda job: job.id)

    def tag(self, fd: int, job_id: int) -> None:
        with self._map("mltcp_jobs") as jobs:
            if jobs.get(_key(job_id)) is None:
                raise UsageError(f"There is no job {job_id}; set it before tagging sockets.")
        try:
            with _borrowed(fd) as ours:
                if ours.type != socket.SOCK_STREAM or ours.proto != socket.IPPROTO_TCP:
                    raise UsageError(f"Descriptor {fd} is not a TCP socket.")
                # Makes the kernel give the socket its cookie, by which events name it.
                ours.getsockopt(socket.SOL_SOCKET, _SO_COOKIE, 8)
        except OSError as error:
            raise UsageError(f"Descriptor {fd} is not a socket: {error.strerror}.") from error
        with self._map("mltcp_tags") as tags:
            try:
                tags.set(_key(fd), pack("mltcp_tag", {"job": job_id}))
                if tags.get(_key(fd)) != pack("mltcp_tag", {"job": job_id}):
                    raise MltcpError(f"The kernel didn't keep the tag of descriptor {fd}.")
            except libbpf.BpfError as error:
                raise _explain(error, f"Tagging descriptor {fd}") from error

    def untag(self, fd: int) -> None:
        with self._map("mltcp_tags") as tags:
            try:
                tags.delete(_key(fd))
            except libbpf.BpfError as error:
                raise _explain(error, f"Untagging descriptor {fd}") from error

    def flows(self) -> list[Flow]:
        if not self._has("mltcp_flows"):
            return []
        try:
            with self._map("mltcp_flows") as flows:
                descriptor = self._flow_reader(flows)()
        except libbpf.BpfError as error:
            raise _explain(error, "Reading the flows") from error
        with open(descriptor, "rb") as stream:
            data = stream.read()
        size = ffi.sizeof("struct mltcp_flow_record")
        return [_flow(data[start : start + size]) for start in range(0, len(data) - size + 1, size)]

    def _flow_reader(self, flows: libbpf.BpfMap) -> Callable[[], int]:
        """Opens a reader of the flows; the iterator program is kept while the map is the same."""
        if self._reader and self._reader[0] == flows.id:
            return self._reader[2]
        self._close_reader()
        loaded = libbpf.BpfObject(build.build_object("flows"), PIN_ROOT)
        try:
            opener = loaded.attach_map_iterator("dump_flows", flows.fd)
        except BaseException:
            loaded.close()
            raise
        self._reader = (flows.id, loaded, opener)
        return opener

    def _close_reader(self) -> None:
        if self._reader:
            self._reader[1].close()
            self._reader = None

    def iterations(self) -> IterationStream:
        return _BpfIterations(self)


_SO_COOKIE = 57
"""asm-generic/socket.h; the socket module has no name for it."""


@contextmanager
def _borrowed(fd: int) -> Iterator[socket.socket]:
    """The socket behind a descriptor, through a copy of it; OSError when it is none."""
    copy = os.dup(fd)
    try:
        sock = socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise
    with sock:
        yield sock


def _flow(data: bytes) -> Flow:
    record = unpack("mltcp_flow_record", data)
    flow = record.flow
    state = record.state
    return Flow(
        cookie=record.cookie,
        netns=record.netns,
        congestion_control=ffi.string(record.ca_name).decode(errors="replace"),
        state=_TCP_STATES[state] if state < len(_TCP_STATES) else _TCP_STATES[0],
        local_addr=address_text(record.local_addr),
        local_port=record.local_port,
        remote_addr=address_text(record.remote_addr),
        remote_port=record.remote_port,
        job_id=record.tagged_job,
        iteration=flow.iteration,
        sent_bytes=flow.acked_bytes - flow.start_bytes,
        ratio=from_fixed(flow.ratio),
        gain=from_fixed(flow.gain),
        active=bool(flow.active),
        cwnd=record.snd_cwnd,
        ssthresh=record.snd_ssthresh,
        srtt_us=flow.srtt_us,
        retransmits=flow.retransmits,
        queue_us=flow.queue_us,
        full_queue_us=flow.full_queue_us,
        acks=flow.acks,
        losses=flow.losses,
        yields=flow.yields,
    )


def _event(data: bytes) -> IterationEvent:
    event = unpack("mltcp_event", data)
    return IterationEvent(
        job_id=event.job,
        cookie=event.cookie,
        local_addr=address_text(event.local_addr),
        local_port=event.local_port,
        remote_addr=address_text(event.remote_addr),
        remote_port=event.remote_port,
        iteration=event.iteration,
        first_ack_s=event.first_ack_ns / 1e9,
        last_ack_s=event.last_ack_ns / 1e9,
        bytes=event.bytes,
        retransmits=event.retransmits,
        srtt_us=event.srtt_us,
        cwnd=event.cwnd,
        ratio=from_fixed(event.ratio),
    )


class _BpfIterations(IterationStream):
    """The ring buffer of finished iterations."""

    def __init__(self, backend: BpfBackend) -> None:
        host.require_bpf(PIN_ROOT.parent)
        self._backend = backend
        self._lock = _lock("iterations", "Another process reads the iterations; stop that first.")
        self._lock.__enter__()
        self._ring: libbpf.RingReader | None = None
        try:
            with backend._map("mltcp_events") as ring:
                self._ring = libbpf.RingReader(ring)
            while self._ring.poll(0):
                pass  # what came before we were here
            self._dropped_before = self._dropped_total()
        except BaseException:
            self.close()
            raise

    def _dropped_total(self) -> int:
        with self._backend._map("mltcp_dropped") as dropped:
            value = dropped.get(_key(0))
        return struct.unpack("=Q", value)[0] if value else 0

    def poll(self, timeout_s: float) -> list[IterationEvent]:
        if self._ring is None:
            return []
        events = [_event(sample) for sample in self._ring.poll(timeout_s)]
        self.dropped = self._dropped_total() - self._dropped_before
        return events

    def close(self) -> None:
        if self._ring:
            self._ring.close()
            self._ring = None
        self._lock.__exit__(None, None, None)
