# SPDX-License-Identifier: BSD-2-Clause
"""Properties of the eBPF backend alone: the tests of every backend are in test_backends.py."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from netns.backends_here import LEARNT_GAP_S, fresh, learn
from netns.connections import (
    bottleneck,
    connection,
    connection_here,
    send_burst,
)
from netns.own_programs import compile_here
from netns.pacing import choose

from mltcp_tools.base.errors import BusyError, HostError
from mltcp_tools.kernel.backends import get_backend, struct_ops
from mltcp_tools.kernel.backends.base import Backend, Job, JobParams
from mltcp_tools.kernel.backends.pins import PIN_ROOT
from mltcp_tools.kernel.congestion_controls import STANDARD
from mltcp_tools.kernel.host import facts
from mltcp_tools.kernel.native import objects, requirements
from mltcp_tools.kernel.native.bpf_maps import BpfMap, struct_ops_maps
from mltcp_tools.kernel.native.bpf_object import BpfObject
from mltcp_tools.kernel.native.csources import source_root
from mltcp_tools.kernel.native.libbpf import BpfError
from mltcp_tools.kernel.native.uapi import ONE, ffi, unpack

pytestmark = pytest.mark.bpf

BURST = 200_000
_NETNS_COOKIE = 71
"""SO_NETNS_COOKIE of asm-generic/socket.h."""


@pytest.fixture
def backend() -> Iterator[Backend]:
    with fresh("bpf") as found:
        yield found
    assert not PIN_ROOT.exists()


def test_load_only_what_is_named_then_the_rest(backend: Backend) -> None:
    assert backend.load(["mltcp_reno"]).loaded == ("mltcp_reno",)
    assert backend.load(["mltcp"]).loaded == ("mltcp", "mltcp_reno")
    assert backend.load().loaded == STANDARD


def test_a_backend_that_is_let_go_keeps_no_descriptors(backend: Backend) -> None:
    """It holds programs that read the flows, which nobody closes."""
    backend.load()

    def descriptors() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    before = descriptors()
    another = get_backend("bpf")
    another.flows()
    assert descriptors() > before
    del another
    assert descriptors() == before


def test_flows_that_one_walk_skips_are_shown(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel skips as many as have left the map between two reads."""
    backend.load(["mltcp"])
    read = os.read
    with socket.create_server(("127.0.0.1", 0), backlog=500) as listener, ExitStack() as stack:
        flows = [stack.enter_context(socket.socket()) for _ in range(500)]
        for each in flows:
            choose(each, "mltcp")
            each.connect(listener.getsockname())
        before = {flow.cookie for flow in backend.flows()}
        leaving = flows[250:]  # the latest, which the map's lists begin with

        def read_and_leave(fd: int, size: int) -> bytes:
            data = read(fd, size)
            while leaving:
                choose(leaving.pop(), "reno")
            return data

        monkeypatch.setattr(os, "read", read_and_leave)
        found = backend.flows()
        monkeypatch.undo()
        stay = {flow.cookie for flow in backend.flows()}
        assert (len(before), len(stay)) == (500, 250)
        assert stay <= {flow.cookie for flow in found}


def cubic_calls(function: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let mltcp_cubic's object call another function of the kernel than cubic's own."""
    made = compile_here(
        "mltcp_cubic", folder, f"-Dcubictcp_init={function}", sources=source_root() / "bpf"
    )
    build = objects.build_object
    monkeypatch.setattr(
        objects, "build_object", lambda name: made if name == "mltcp_cubic" else build(name)
    )


def test_control_whose_base_is_refused_is_left_out_unless_named(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As cubic's functions are by an arm64 kernel before 6.10."""
    cubic_calls("tcp_enter_cwr", monkeypatch, tmp_path)
    with pytest.raises(HostError, match=r"doesn't let eBPF call cubic: .* omit mltcp_cubic"):
        backend.load(["mltcp", "mltcp_cubic"])
    assert not PIN_ROOT.exists()
    assert backend.load().loaded == ("mltcp", "mltcp_reno")


def test_control_that_fails_otherwise_fails_the_load(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cubic_calls("no_such_function", monkeypatch, tmp_path)
    with pytest.raises(HostError, match="no_such_function"):
        backend.load()
    assert not PIN_ROOT.exists()
    assert not struct_ops.registered()


def test_base_missing_in_kernel_is_named_and_nothing_changes(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As dctcp is lacking here, or made to be."""
    there = facts.has_congestion_control
    monkeypatch.setattr(
        facts, "has_congestion_control", lambda name: name != "dctcp" and there(name)
    )
    for loaded in ((), ("mltcp",)):
        if loaded:
            backend.load(loaded)
        with pytest.raises(HostError, match=r"no dctcp.*CONFIG_TCP_CONG_DCTCP"):
            backend.load(["mltcp_reno", "mltcp_dctcp"])
        assert backend.status().loaded == loaded


def test_force_leaves_a_flow_that_has_learned_as_its_base(backend: Backend) -> None:
    backend.load()
    with bottleneck() as network, connection(network, "mltcp") as sender:
        learn(backend, sender)
        key = struct.pack("=I", sender.fileno())
        with BpfMap.pinned(PIN_ROOT / "mltcp_flows") as flows:
            assert backend.unload(force=True) == 1
            for _ in range(2):
                send_burst(sender, BURST)
                time.sleep(LEARNT_GAP_S)
            flow = unpack("mltcp_flow", flows.get(key) or b"")
        assert (flow.active, flow.gain, flow.yield_us) == (0, ONE, 0)
        assert flow.total_kib > 0  # it goes on learning, to no end


def shared_words() -> set[bytes]:
    """Return what flows of paths, and of jobs there, tell each other."""
    with BpfMap.pinned(PIN_ROOT / "mltcp_paths") as paths:
        return {paths.get(key) or b"" for key in paths.all_keys()} - {bytes(8)}


def test_job_in_one_namespace_leaves_paths_of_another(backend: Backend) -> None:
    """Cookies and ids are small numbers, so neither their sum nor their difference is enough."""
    backend.load()
    with bottleneck() as network, connection(network, "mltcp") as sender:
        learn(backend, sender)
        for _ in range(4):
            send_burst(sender, 10 * BURST)
            time.sleep(LEARNT_GAP_S)
        before = shared_words()
        assert before, "no loss has told of a full queue"
        (first,) = struct.unpack("=Q", sender.getsockopt(socket.SOL_SOCKET, _NETNS_COOKIE, 8))
    with bottleneck() as network, connection(network, "mltcp") as sender:
        (second,) = struct.unpack("=Q", sender.getsockopt(socket.SOL_SOCKET, _NETNS_COOKIE, 8))
        for job in {first ^ second, abs(first - second)}:
            backend.set_job(Job(job, "another", JobParams(burst_bytes=BURST, gap_s=LEARNT_GAP_S)))
            backend.tag(sender.fileno(), job)
            for _ in range(2):
                time.sleep(2 * LEARNT_GAP_S)
                send_burst(sender, BURST)
        assert before < shared_words()


def test_a_kernel_that_skips_programs_is_refused(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = Path("/sys/kernel/btf/vmlinux").read_bytes()
    old = tmp_path / "vmlinux"
    old.write_bytes(names.replace(b"\0__bpf_prog_enter_recur\0", b"\0__bpf_prog_enter_other\0"))
    whole = requirements.require_every_call
    monkeypatch.setattr(requirements, "require_every_call", lambda: whole(old))
    with pytest.raises(HostError, match=r"skips congestion controls in BPF.*use the kernel module"):
        backend.load()
    assert not PIN_ROOT.exists()


def test_what_a_crash_left_is_removed_by_the_next_load(backend: Backend) -> None:
    # Maps without a registration: killed while loading.
    backend.load()
    for found in struct_ops_maps():
        if found.name in STANDARD:
            found.delete(struct.pack("=I", 0))
    assert backend.status().loaded == ()
    assert backend.load().loaded == STANDARD


@pytest.mark.parametrize(("key", "value"), [("4", "8"), ("4", str(ffi.sizeof("struct mltcp_job")))])
def test_maps_of_other_version_are_named_and_force_removes_them(
    backend: Backend, key: str, value: str
) -> None:
    backend.load()
    (PIN_ROOT / "mltcp_jobs").unlink()
    shape = ("type", "hash", "key", key, "value", value, "entries", "16", "name", "mltcp_jobs")
    subprocess.run(["bpftool", "map", "create", str(PIN_ROOT / "mltcp_jobs"), *shape], check=True)
    for name in ("flows", "jobs", "load", "unload"):
        # A new one each time, as each command has: this one has the maps of before open.
        with pytest.raises(HostError, match=r"another version's.*unload --force"):
            getattr(get_backend("bpf"), name)()
    assert get_backend("bpf").unload(force=True) == 0
    assert backend.load().loaded == STANDARD


def test_a_kernel_that_refuses_the_last_name_leaves_nothing(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    register = BpfObject.register_struct_ops

    def refuse(loaded: BpfObject, name: str) -> None:
        register(loaded, name)
        if name == "mltcp_cubic":
            raise BpfError(17, "registering")

    monkeypatch.setattr(BpfObject, "register_struct_ops", refuse)
    with pytest.raises(BusyError, match="has that name already"):
        backend.load()
    monkeypatch.undo()
    assert not set(STANDARD) & set(facts.available_congestion_controls())
    assert not PIN_ROOT.exists()


def test_one_reader_of_iterations_at_a_time(backend: Backend) -> None:
    backend.load()
    with backend.iterations(), pytest.raises(BusyError, match="Somebody else"):
        get_backend("bpf").iterations()
    with backend.iterations() as stream:
        assert stream.poll(0) == []


def test_events_nobody_read_are_counted_as_dropped(backend: Backend) -> None:
    backend.load(["mltcp"], JobParams(burst_bytes=1000, gap_s=0.000_001))
    with backend.iterations() as stream, contextlib.ExitStack() as stack:
        pairs = [stack.enter_context(connection_here("mltcp")) for _ in range(50)]
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for sender, peer in pairs * 10:
                sender.sendall(b"xx")
                peer.recv(2)
                time.sleep(0.000_05)  # a connection waits for more than a millisecond in all
            with BpfMap.pinned(PIN_ROOT / "mltcp_dropped") as dropped:
                if dropped.get(struct.pack("=I", 0)) != bytes(8):
                    break
        events = stream.poll(0.1)
        assert len(events) > 5000
        assert stream.dropped > 0
        assert all(event.bytes % 2 == 0 for event in events)


def test_no_bpf_file_system(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "mounted_at", lambda place: "")
    with pytest.raises(HostError, match="mount -t bpf"):
        backend.load()


def test_an_old_clang_is_named(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    old = tmp_path / "clang"
    old.write_text("#!/bin/sh\necho 'Debian clang version 9.0.1'\n")
    old.chmod(0o755)
    monkeypatch.setenv("CLANG", str(old))
    with pytest.raises(HostError, match="clang 13 or newer"):
        backend.load()
    assert not PIN_ROOT.exists()
