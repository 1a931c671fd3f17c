# SPDX-License-Identifier: BSD-2-Clause
"""Properties of the kernel module alone: the tests of every backend are in test_backends.py.

Left out, with a line in the report's header, where this kernel can't load the module.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from netns.backends_here import LEARNT_GAP_S, collect, fresh, learn, why_not
from netns.connections import (
    TCP_CONGESTION,
    bottleneck,
    connection,
    connection_here,
    send_burst,
)

from mltcp_tools.base.errors import BusyError, HostError
from mltcp_tools.kernel.backends import get_backend, kmod, module
from mltcp_tools.kernel.backends.base import Backend, Job, JobParams

pytestmark = pytest.mark.skipif(bool(why_not("kmod")), reason=why_not("kmod"))  # named by hand

BURST = 200_000


@pytest.fixture
def backend() -> Iterator[Backend]:
    with fresh("kmod") as found:
        yield found


def module_file() -> Path:
    told = subprocess.run(["modinfo", "-n", module.NAME], capture_output=True, text=True)
    return Path(told.stdout.strip()) if told.returncode == 0 else module.built_for_this_kernel()


def test_naming_some_loads_all(backend: Backend) -> None:
    loaded = backend.load(["mltcp_reno"]).loaded
    assert {"mltcp", "mltcp_reno", "mltcp_cubic"} <= set(loaded)
    assert backend.load(["mltcp"]).loaded == loaded


def test_force_leaves_flow_as_base_and_module_until_it_closes(
    backend: Backend,
) -> None:
    params = JobParams(burst_bytes=5 * BURST, gap_s=LEARNT_GAP_S)
    backend.load(defaults=params)
    backend.set_job(Job(1, "a", params))
    with (
        bottleneck() as network,
        connection(network, "mltcp") as tagged,
        connection(network, "mltcp_cubic") as untagged,
    ):
        backend.tag(tagged.fileno(), 1)
        for sender in (tagged, untagged):
            send_burst(sender, BURST)
        time.sleep(2 * LEARNT_GAP_S)  # a flow without a job acts from its first pause
        for sender in (tagged, untagged):
            send_burst(sender, BURST)
        assert all(flow.active for flow in backend.flows())
        with pytest.raises(BusyError) as caught:
            backend.unload(force=True)
        told = str(caught.value)
        assert re.match(r"2 sockets \(1 by mltcp, 1 by mltcp_cubic\) run on as their base", told)
        assert f"port {tagged.getsockname()[1]} to" in told
        assert backend.jobs() == []
        for sender in (tagged, untagged):
            send_burst(sender, BURST)
        assert not any(flow.active for flow in backend.flows())
        assert backend.is_present()
        assert backend.status().details["parameters"]["enabled"] == 0
        backend.load()  # changed one's mind
        for _ in range(2):
            time.sleep(2 * LEARNT_GAP_S)
            send_burst(untagged, BURST)
        assert [flow.active for flow in backend.flows()].count(True) == 1


def test_force_leaves_a_flow_that_has_learned_as_its_base(backend: Backend) -> None:
    backend.load()
    with bottleneck() as network, connection(network, "mltcp") as sender:
        learn(backend, sender)
        with pytest.raises(BusyError, match="run on as their base"):
            backend.unload(force=True)
        for _ in range(2):
            send_burst(sender, BURST)
            time.sleep(LEARNT_GAP_S)
        (flow,) = backend.flows()
        assert (flow.active, flow.gain) == (False, 1.0)
        assert flow.learned_bytes > 0  # which it may use again


def test_a_connection_that_sent_nothing_is_named_too(backend: Backend) -> None:
    backend.load()
    with bottleneck() as network, connection(network, "mltcp"):
        (flow,) = backend.flows()
        assert (flow.active, flow.acks) == (False, 0)
        with pytest.raises(BusyError, match=r"1 sockets still run MLTCP \(1 by mltcp\).*--force"):
            backend.unload()
        with pytest.raises(BusyError, match=r"1 sockets \(1 by mltcp\) run on as.*established"):
            backend.unload(force=True)


def test_a_module_built_but_not_installed_is_loaded(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = module_file()
    monkeypatch.setattr(module, "installed", lambda: False)
    monkeypatch.setattr(module, "built", lambda: path)
    assert "mltcp" in backend.load(defaults=JobParams(slope=3)).loaded
    assert module.parameters()["slope"] == 3000


def test_a_module_built_for_another_kernel_is_refused(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    release = os.uname().release
    other = ("9" + release[1:]).encode()
    foreign = tmp_path / "tcp_mltcp.ko"
    foreign.write_bytes(
        module_file().read_bytes().replace(b"vermagic=" + release.encode(), b"vermagic=" + other)
    )
    monkeypatch.setattr(module, "installed", lambda: False)
    monkeypatch.setattr(module, "built", lambda: foreign)
    told = re.escape(f"built for kernel {other.decode()}, but {release} runs")
    with pytest.raises(HostError, match=told):
        backend.load()
    monkeypatch.setattr(module, "built", lambda: None)
    told = rf"not installed for kernel {re.escape(release)}; .*make -C kmod module"
    with pytest.raises(HostError, match=told):
        backend.load()
    # What the kernel itself says to a module that was configured otherwise.
    foreign.write_bytes(module_file().read_bytes().replace(b" SMP ", b" UMP "))
    monkeypatch.setattr(module, "built_for_this_kernel", lambda: foreign)
    with pytest.raises(HostError, match="doesn't fit this kernel"):
        backend.load()


def test_a_module_of_another_version_is_taken_out_again(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kmod, "__version__", "99.0")
    with pytest.raises(HostError, match=r"is version .* and this tool 99\.0"):
        backend.load()
    assert not module.is_loaded()


def test_a_parameter_the_module_refuses_leaves_nothing() -> None:
    with pytest.raises(HostError, match=r"(modprobe|insmod) failed: .*tcp_mltcp"):
        module.insert(["yield_min=1001"])
    assert not module.is_loaded()


@pytest.mark.skipif(bool(why_not("bpf")), reason=why_not("bpf"))
def test_the_first_backend_keeps_the_names(backend: Backend) -> None:
    with fresh("bpf") as bpf:
        bpf.load(["mltcp_reno"])
        with pytest.raises(BusyError, match=r"bpf backend has registered mltcp_reno already"):
            backend.load()
        assert not module.is_loaded()
        # Behind the tool's back, by choosing a name: mltcp_dctcp needs the module's own mltcp.
        bpf.load()
        with socket.socket() as chooser, pytest.raises(FileNotFoundError):
            chooser.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, b"mltcp_dctcp")
        assert not module.is_loaded()
        assert get_backend().name == "bpf"
        bpf.unload()
        assert get_backend().name == "kmod"
        assert backend.unload() == 0
        backend.load()
        assert get_backend().name == "kmod"
        with pytest.raises(BusyError, match="mltcp unload --backend kmod"):
            bpf.load()


def test_two_readers_hear_the_same(backend: Backend) -> None:
    backend.load()
    backend.set_job(Job(1, "a", JobParams(burst_bytes=BURST, gap_s=10)))
    with bottleneck() as network, backend.iterations() as one, backend.iterations() as two:
        with connection(network, "mltcp") as sender:
            backend.tag(sender.fileno(), 1)
            send_burst(sender, BURST)
        assert collect(one, 1) == collect(two, 1) != []


def test_iterations_nobody_read_are_counted_as_dropped(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kmod, "_UNREAD_BYTES", 16 << 10)
    backend.load(defaults=JobParams(burst_bytes=1000, gap_s=0.000_001))
    rounds = 300
    with backend.iterations() as stream, connection_here("mltcp") as (sender, peer):
        for _ in range(rounds):
            time.sleep(0.0011)  # no iteration ends at a shorter gap
            sender.sendall(b"xx")
            peer.recv(2)
            peer.sendall(b"y")  # and with it the acknowledgement, at once
            sender.recv(1)
        events = stream.poll(0.1)
        assert 0 < len(events) < rounds
        assert stream.dropped > 0
        # The last of them goes on.
        assert len(events) + stream.dropped == rounds - 1
        assert backend.status().details["dropped"] == stream.dropped
        # The reader has caught up, so what comes next arrives.
        for _ in range(2):
            time.sleep(0.0011)
            sender.sendall(b"xx")
            peer.recv(2)
            peer.sendall(b"y")
            sender.recv(1)
        assert len(collect(stream, 2)) == 2


def test_tagging_needs_capabilities(backend: Backend) -> None:
    backend.load()
    backend.set_job(Job(1, "a"))
    code = (
        "import socket; from mltcp_tools.kernel.backends import get_backend;"
        "backend = get_backend('kmod'); print(len(backend.flows()), len(backend.jobs()));"
        "backend.tag(0, 1)"
    )
    bare = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", sys.executable, "-c", code]
    run = subprocess.run(bare, capture_output=True, text=True)
    assert run.stdout == "0 1\n"
    assert "lacks CAP_NET_ADMIN" in run.stderr
    hearing = (
        "from mltcp_tools.kernel.backends import get_backend; get_backend('kmod').iterations()"
    )
    run = subprocess.run([*bare[:-1], hearing], capture_output=True, text=True)
    assert "Hearing of iterations failed: this process lacks CAP_NET_ADMIN" in run.stderr


def test_a_stream_lives_through_unloading(backend: Backend) -> None:
    backend.load()
    with backend.iterations() as stream:
        assert backend.unload() == 0
        deadline = time.monotonic() + 1
        while time.monotonic() < deadline:
            assert stream.poll(0.1) == []
    backend.load()
    backend.set_job(Job(1, "a"))  # on a new socket: the family has another number now
