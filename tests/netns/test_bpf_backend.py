"""The backend interface on the real kernel."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from netns.connections import TCP_CONGESTION, bottleneck, connection, send_burst

from mltcp_tools import host
from mltcp_tools.backends import get_backend, libbpf
from mltcp_tools.backends.base import (
    NAMES,
    Backend,
    IterationEvent,
    IterationStream,
    Job,
    JobParams,
)
from mltcp_tools.backends.bpf import PIN_ROOT
from mltcp_tools.errors import BusyError, HostError, MltcpError, UsageError

pytestmark = pytest.mark.bpf

GAP_S = 0.05
BURST = 200_000


def current(sender: socket.socket) -> str:
    name: bytes = sender.getsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, 16)
    return name.partition(b"\0")[0].decode()


@pytest.fixture
def backend() -> Iterator[Backend]:
    found = get_backend("bpf")
    if found.status().loaded:
        pytest.fail("the bpf backend is loaded already; run `mltcp unload` before the tests")
    yield found
    found.unload(force=True)
    assert not found.status().loaded
    assert not PIN_ROOT.exists()


def collect(stream: IterationStream, count: int, seconds: float = 10) -> list[IterationEvent]:
    """At least count events, or those that came within the time."""
    events: list[IterationEvent] = []
    deadline = time.monotonic() + seconds
    while len(events) < count and time.monotonic() < deadline:
        events += stream.poll(0.2)
    return events


def test_load_status_unload(backend: Backend) -> None:
    status = backend.load()
    assert status.loaded == NAMES
    assert set(NAMES) <= set(host.available_congestion_controls())
    assert status == backend.load()  # again is no error
    assert backend.unload() == 0
    assert not set(NAMES) & set(host.available_congestion_controls())
    assert backend.status().loaded == ()
    assert backend.unload() == 0


def test_load_only_what_is_named_then_the_rest(backend: Backend) -> None:
    assert backend.load(["mltcp_reno"]).loaded == ("mltcp_reno",)
    assert backend.load(["mltcp"]).loaded == ("mltcp", "mltcp_reno")
    with pytest.raises(BusyError, match="unload"):
        backend.load(defaults=JobParams(slope=1))
    with pytest.raises(UsageError, match="bbr"):
        backend.load(["bbr"])


def test_iterations_are_counted_to_the_byte(backend: Backend) -> None:
    backend.load()
    backend.set_job(Job(7, "seven", JobParams(total_bytes=BURST, gap_s=GAP_S)))
    with bottleneck() as network, backend.iterations() as stream:
        with connection(network, "mltcp") as sender:
            backend.tag(sender.fileno(), 7)
            for _ in range(3):
                send_burst(sender, BURST)
                time.sleep(2 * GAP_S)
            (flow,) = backend.flows()
            assert flow.job_id == 7
            assert flow.congestion_control == "mltcp"
            assert (flow.iteration, flow.sent_bytes, flow.ratio) == (3, BURST, 1.0)
            assert flow.gain == pytest.approx(2.0, abs=1e-3)
            local = sender.getsockname()
        events = collect(stream, 3)
    assert [event.iteration for event in events] == [1, 2, 3]
    assert [event.bytes for event in events] == [BURST] * 3
    for event in events:
        assert event.job_id == 7
        assert (event.local_addr, event.local_port) == local
        assert event.ratio == 1.0
        assert event.first_ack_s < event.last_ack_s
    assert events[0].last_ack_s < events[1].first_ack_s
    assert stream.dropped == 0


def test_an_untagged_flow_is_its_base(backend: Backend) -> None:
    backend.load()
    with bottleneck() as network, backend.iterations() as stream:
        for name in NAMES:
            with connection(network, name) as sender:
                send_burst(sender, BURST)
                (flow,) = backend.flows()
                assert (flow.job_id, flow.active, flow.gain) == (0, False, 1.0)
        assert stream.poll(0.2) == []


def test_retagging_starts_afresh_and_untagging_goes_back_to_the_base(backend: Backend) -> None:
    backend.load()
    for number in (1, 2):
        backend.set_job(Job(number, f"job {number}", JobParams(total_bytes=BURST, gap_s=GAP_S)))
    with bottleneck() as network, connection(network, "mltcp_reno") as sender:
        backend.tag(sender.fileno(), 1)
        send_burst(sender, BURST)
        backend.tag(sender.fileno(), 2)
        send_burst(sender, BURST // 2)
        (flow,) = backend.flows()
        assert (flow.job_id, flow.iteration, flow.sent_bytes) == (2, 1, BURST // 2)
        backend.untag(sender.fileno())
        backend.untag(sender.fileno())  # again is no error
        send_burst(sender, BURST)
        (flow,) = backend.flows()
        assert (flow.job_id, flow.active) == (0, False)
        backend.tag(sender.fileno(), 1)
        backend.delete_job(1)
        send_burst(sender, BURST)
        (flow,) = backend.flows()
        assert not flow.active


def test_a_job_changed_while_it_runs_takes_effect(backend: Backend) -> None:
    backend.load()
    backend.set_job(Job(1, "a", JobParams(total_bytes=BURST, gap_s=GAP_S)))
    with bottleneck() as network, connection(network, "mltcp") as sender:
        backend.tag(sender.fileno(), 1)
        send_burst(sender, BURST)
        changed = Job(1, "a", JobParams(total_bytes=4 * BURST, gap_s=10, mechanisms=("increase",)))
        backend.set_job(changed)
        assert backend.jobs() == [changed]
        send_burst(sender, BURST)
        (flow,) = backend.flows()
        assert flow.ratio == pytest.approx(0.5)


@pytest.mark.parametrize("name", NAMES)
def test_a_live_flow_switches_there_and_back(backend: Backend, name: str) -> None:
    backend.load()
    with bottleneck() as network, connection(network, "reno") as sender:
        send_burst(sender, BURST)
        sender.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, name.encode())
        assert current(sender) == name
        send_burst(sender, BURST)
        assert len(backend.flows()) == 1
        sender.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, b"reno")
        send_burst(sender, BURST)
        assert backend.flows() == []


def test_ipv6_flows_are_reported(backend: Backend) -> None:
    backend.load()
    backend.set_job(Job(1, "six", JobParams(total_bytes=1000, gap_s=GAP_S)))
    with (
        socket.create_server(("::1", 0), family=socket.AF_INET6) as listener,
        socket.socket(socket.AF_INET6) as sender,
        backend.iterations() as stream,
    ):
        sender.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, b"mltcp")
        sender.connect(listener.getsockname())
        peer, _ = listener.accept()
        backend.tag(sender.fileno(), 1)
        send_burst(sender, 1000)
        (flow,) = backend.flows()
        assert (flow.remote_addr, flow.remote_port) == listener.getsockname()[:2]
        sender.close()
        peer.close()
        (event,) = collect(stream, 1)
        assert (event.remote_addr, event.bytes) == ("::1", 1000)


def test_unload_refuses_while_in_use_and_force_leaves_the_flow_running(backend: Backend) -> None:
    backend.load()
    with bottleneck() as network, connection(network, "mltcp") as sender:
        send_burst(sender, BURST)
        with pytest.raises(BusyError, match=r"1 sockets.*1 by mltcp.*--force"):
            backend.unload()
        assert backend.status().sockets["mltcp"] == 1
        assert backend.unload(force=True) == 1
        send_burst(sender, BURST)
        assert current(sender) == "mltcp"
        # The name is free again while the old code still drives that socket.
        backend.load()
        send_burst(sender, BURST)
    assert backend.unload() == 0


def test_unload_refuses_while_it_is_the_default(backend: Backend) -> None:
    backend.load()
    setting = Path("/proc/sys/net/ipv4/tcp_congestion_control")
    before = setting.read_text()
    try:
        setting.write_text("mltcp")
        with pytest.raises(BusyError, match="default"):
            backend.unload()
    finally:
        setting.write_text(before)
    assert backend.unload() == 0


def test_what_a_crash_left_is_removed_by_the_next_load(backend: Backend) -> None:
    # Maps without a registration: killed while loading.
    backend.load()
    for found in libbpf.struct_ops_maps():
        if found.name in NAMES:
            found.delete(struct.pack("=I", 0))
    assert backend.status().loaded == ()
    assert backend.load().loaded == NAMES
    # A registration without its maps: killed while unloading.
    for pin in PIN_ROOT.iterdir():
        pin.unlink()
    assert backend.load().loaded == NAMES


def test_maps_of_another_version_are_named_and_force_removes_them(backend: Backend) -> None:
    backend.load()
    (PIN_ROOT / "mltcp_jobs").unlink()
    shape = ("type", "hash", "key", "4", "value", "8", "entries", "16", "name", "mltcp_jobs")
    subprocess.run(["bpftool", "map", "create", str(PIN_ROOT / "mltcp_jobs"), *shape], check=True)
    for name in ("flows", "jobs", "load", "unload"):
        # A new one each time, as each command has: this one has the maps of before open.
        with pytest.raises(HostError, match=r"another version's.*unload --force"):
            getattr(get_backend("bpf"), name)()
    assert get_backend("bpf").unload(force=True) == 0
    assert backend.load().loaded == NAMES


def test_retransmissions_before_the_tag_are_not_the_first_iterations(backend: Backend) -> None:
    backend.load()
    backend.set_job(Job(1, "late", JobParams(total_bytes=1000, gap_s=GAP_S)))
    with bottleneck(queue=5_000) as network, backend.iterations() as stream:
        with connection(network, "mltcp_reno") as sender:
            send_burst(sender, 10 * BURST)
            (flow,) = backend.flows()
            assert flow.retransmits > 0, "no loss, so nothing to leave out"
            backend.tag(sender.fileno(), 1)
            send_burst(sender, 1000)
            time.sleep(2 * GAP_S)  # so that the FIN's byte isn't counted with them
        (event,) = collect(stream, 1)
    assert (event.bytes, event.retransmits) == (1000, 0)


def test_flows_without_a_job_report_their_last_iteration_too(backend: Backend) -> None:
    backend.load(defaults=JobParams(total_bytes=BURST, gap_s=GAP_S))
    with bottleneck() as network, backend.iterations() as stream:
        with connection(network, "mltcp") as sender:
            send_burst(sender, BURST)
            time.sleep(2 * GAP_S)
            send_burst(sender, BURST)
        events = collect(stream, 2)
    assert [event.job_id for event in events] == [0, 0]
    assert events[0].bytes == BURST
    assert events[1].bytes in (BURST, BURST + 1)  # with the FIN


def test_a_name_taken_by_another_is_left_alone(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = [*host.available_congestion_controls(), "mltcp_cubic"]
    monkeypatch.setattr(host, "available_congestion_controls", lambda: taken)
    with pytest.raises(BusyError, match="mltcp_cubic is taken"):
        backend.load()
    assert not PIN_ROOT.exists()


def test_a_kernel_that_refuses_the_last_name_leaves_nothing(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    register = libbpf.BpfObject.register_struct_ops

    def refuse(loaded: libbpf.BpfObject, name: str) -> None:
        register(loaded, name)
        if name == "mltcp_cubic":
            raise libbpf.BpfError(17, "registering")

    monkeypatch.setattr(libbpf.BpfObject, "register_struct_ops", refuse)
    with pytest.raises(BusyError, match="has that name already"):
        backend.load()
    monkeypatch.undo()
    assert not set(NAMES) & set(host.available_congestion_controls())
    assert not PIN_ROOT.exists()


def test_tagging_refuses_what_is_no_tcp_socket(backend: Backend, tmp_path: Path) -> None:
    backend.load()
    backend.set_job(Job(1, "a"))
    with socket.socket(type=socket.SOCK_DGRAM) as datagram, open(tmp_path / "file", "w") as file:
        for descriptor in (datagram.fileno(), file.fileno(), 1_000_000):
            with pytest.raises(UsageError, match="Descriptor"):
                backend.tag(descriptor, 1)
    with socket.socket() as unconnected:
        with pytest.raises(UsageError, match="no job 2"):
            backend.tag(unconnected.fileno(), 2)
        backend.tag(unconnected.fileno(), 1)


def test_jobs_without_anything_loaded(backend: Backend) -> None:
    assert backend.jobs() == []
    assert backend.flows() == []
    with pytest.raises(MltcpError, match="mltcp load"):
        backend.set_job(Job(1, "a"))
    with pytest.raises(MltcpError, match="mltcp load"):
        backend.iterations()


def test_the_table_of_jobs_has_an_end(backend: Backend) -> None:
    backend.load()
    for number in range(1, 4097):
        backend.set_job(Job(number, "many"))
    with pytest.raises(BusyError, match="full"):
        backend.set_job(Job(4097, "one too many"))
    assert len(backend.jobs()) == 4096
    with pytest.raises(UsageError, match="no job 4999"):
        backend.delete_job(4999)


def test_one_reader_of_iterations_at_a_time(backend: Backend) -> None:
    backend.load()
    with backend.iterations(), pytest.raises(BusyError, match="Another process"):
        get_backend("bpf").iterations()
    with backend.iterations() as stream:
        assert stream.poll(0) == []


def test_events_nobody_read_are_counted_as_dropped(backend: Backend) -> None:
    backend.load(["mltcp"], JobParams(total_bytes=1000, gap_s=0.000_001))
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.socket() as sender,
        backend.iterations() as stream,
    ):
        sender.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, b"mltcp")
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sender.connect(listener.getsockname())
        peer, _ = listener.accept()
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for _ in range(500):
                sender.sendall(b"xx")
                peer.recv(2)
            with libbpf.BpfMap.pinned(PIN_ROOT / "mltcp_dropped") as dropped:
                if dropped.get(struct.pack("=I", 0)) != bytes(8):
                    break
        events = stream.poll(0.1)
        assert len(events) > 5000
        assert stream.dropped > 0
        assert all(event.bytes % 2 == 0 for event in events)
        peer.close()


def test_a_process_without_capabilities_is_told_which(backend: Backend) -> None:
    code = "import sys; from mltcp_tools.cli.main import main; sys.exit(main(['load']))"
    run = subprocess.run(
        ["setpriv", "--bounding-set=-all", "--inh-caps=-all", sys.executable, "-c", code],
        capture_output=True,
        text=True,
    )
    assert run.returncode == HostError.exit_code
    assert "CAP_BPF" in run.stderr
    assert run.stderr.count("\n") == 1
    assert not PIN_ROOT.exists()


def test_no_bpf_file_system(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "mounts", lambda kind: [])
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


def test_the_commands(backend: Backend) -> None:
    def mltcp(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "mltcp_tools.cli.main", *arguments],
            capture_output=True,
            text=True,
            env={key: value for key, value in os.environ.items() if key != "MLTCP_DEBUG"},
        )

    assert mltcp("status").stdout == "bpf: nothing is loaded\n"
    loaded = mltcp("load", "--json", "mltcp", "--slope", "2")
    assert json.loads(loaded.stdout)["loaded"] == ["mltcp"]
    assert mltcp("load", "--total", "5").returncode == 2
    with bottleneck() as network, connection(network, "mltcp") as sender:
        backend.set_job(Job(9, "nine", JobParams(total_bytes=BURST, gap_s=1)))
        backend.tag(sender.fileno(), 9)
        send_burst(sender, BURST // 2)
        table = mltcp("flows").stdout.splitlines()
        assert table[0].split()[:3] == ["JOB", "CC", "PEER"]
        assert table[1].split()[:2] == ["nine", "mltcp"]
        (flow,) = json.loads(mltcp("flows", "--json").stdout)
        assert flow["ratio"] == pytest.approx(0.5, abs=0.01)
        assert "job 9 nine" in mltcp("status").stdout
        refused = mltcp("unload")
        assert (refused.returncode, refused.stderr.count("\n")) == (BusyError.exit_code, 1)
    unloaded = mltcp("unload")
    assert (unloaded.returncode, unloaded.stderr) == (0, "Unloaded.\n")


def test_loading_in_parallel_ends_loaded_once(backend: Backend) -> None:
    code = "from mltcp_tools.backends import get_backend; get_backend('bpf').load()"
    with contextlib.ExitStack() as stack:
        loads = [
            stack.enter_context(subprocess.Popen([sys.executable, "-c", code])) for _ in range(4)
        ]
    assert [load.returncode for load in loads] == [0] * 4
    assert backend.status().loaded == NAMES
    names = [found.name for found in libbpf.struct_ops_maps() if found.name in NAMES]
    assert sorted(names) == sorted(NAMES)
