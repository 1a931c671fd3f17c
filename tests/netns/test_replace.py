# SPDX-License-Identifier: BSD-2-Clause
"""Programs in force are read back from the kernel, and replaced under connections that run."""

from __future__ import annotations

import shutil
import socket
import time
from pathlib import Path

import pytest
from netns.backends_here import (
    PARAMETERS,
    backend_fixture,
    collect,
    fresh,
    fresh_and_loaded,
    uncounted,
)
from netns.connected import FIRST_CC, attach, holder, namespace
from netns.connections import TCP_CONGESTION, bottleneck, connection, send_burst

from mltcp_tools.base.errors import HostError, MltcpError
from mltcp_tools.cli.main import main
from mltcp_tools.kernel.backends import module, struct_ops
from mltcp_tools.kernel.backends.base import Backend, Job, JobParams
from mltcp_tools.kernel.host.facts import available_congestion_controls, read_sysctl
from mltcp_tools.kernel.native import csources
from mltcp_tools.lab.testbed.namespaces import inside, write_sysctl
from mltcp_tools.live.attach.processes import process
from mltcp_tools.live.attach.replacement import replace_build
from mltcp_tools.live.attach.restore import detach
from mltcp_tools.live.attach.sockets import sockets

BURST = 200_000
DEFAULT = "net.ipv4.tcp_congestion_control"
TOLD = JobParams(burst_bytes=1_000_000, gap_s=0.05, slope=2.0)


backend = backend_fixture(fresh_and_loaded)


@pytest.fixture
def edited(backend: Backend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The tool's sources were edited since: it is another build than the loaded one."""
    if backend.name == "kmod":
        monkeypatch.setattr(module, "build_here", lambda: "0.1.0+ANOTHER")
        return
    root = csources.source_root()
    for name in ("bpf", "kmod"):
        shutil.copytree(root / name, tmp_path / name)
    with open(tmp_path / "kmod" / "mltcp_core.h", "a") as core:
        core.write("/* edited */\n")
    monkeypatch.setattr(csources, "source_root", lambda: tmp_path)
    monkeypatch.setattr("mltcp_tools.kernel.native.objects.source_root", lambda: tmp_path)


def test_parameters_and_build_are_read_back(
    backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    assert backend.status().defaults == JobParams()
    assert backend.status().build == backend.build_here() != ""
    backend.unload()
    assert (backend.status().defaults, backend.status().build) == (None, "")
    backend.load(defaults=TOLD)
    assert backend.status().defaults == TOLD
    assert main(["status", "--backend", backend.name]) == 0
    out = capsys.readouterr().out
    (told,) = [line.split() for line in out.splitlines() if "flows without a job" in line]
    assert told[5:] == ["1", "MB", "50", "ms", "2", "r", "+", "0.25", backend.name]
    assert backend.build_here() in out
    assert "--replace" not in out


def test_another_build_is_said(
    backend: Backend, edited: None, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded = backend.status().build
    assert loaded != backend.build_here()
    told = f"loaded is build {loaded}, and this tool's is {backend.build_here()}: `mltcp load"
    assert main(["status", "--backend", backend.name]) == 0
    assert told in capsys.readouterr().out
    assert main(["load", "--backend", backend.name]) == 0
    assert told in capsys.readouterr().err
    assert backend.status().build == loaded


def test_replaced_under_connections_that_run(backend: Backend, edited: None) -> None:
    job = Job(7, "seven", JobParams(burst_bytes=BURST, gap_s=0.05))
    said: list[str] = []
    with (
        namespace() as name,
        holder(2) as attached,
        holder(1) as by_itself,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        own = [each for each in sockets(process(attached.pid)) if each.state == "established"]
        attach(own, job, "mltcp", backend)
        by_itself.ask("choose", 0, "mltcp_cubic")
        listener.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, b"mltcp_reno")
        with inside(name):
            write_sysctl(DEFAULT, "mltcp")

        replace_build(backend, TOLD, said.append)

        assert said == ["4 sockets run the new programs."]
        status = backend.status()
        if backend.name == "bpf":  # whose build changes with an edit; the module's needs a compiler
            assert status.build == backend.build_here()
            assert struct_ops.unregistered() == []  # nobody runs the old ones
        assert status.defaults == TOLD
        assert status.jobs == (job,)
        assert {each.cookie: each.job_id for each in backend.flows() if each.job_id} == {
            each.cookie: 7 for each in own
        }
        assert attached.ccs() == ["mltcp"] * 2
        assert by_itself.ccs() == ["mltcp_cubic"]
        assert listener.getsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, 16)[:11] == b"mltcp_reno\0"
        with inside(name):
            assert read_sysctl(DEFAULT) == "mltcp"
        assert {each.new for each in detach()} == {FIRST_CC}
        with inside(name):
            write_sysctl(DEFAULT, "reno")
        by_itself.ask("choose", 0, "reno")
    assert backend.unload() == 0


def test_a_flow_goes_on_and_its_iterations_are_reported(backend: Backend) -> None:
    gap_s, late = 0.2, uncounted(backend)
    backend.set_job(Job(1, "a", JobParams(burst_bytes=BURST, gap_s=gap_s)))
    with bottleneck() as network, connection(network, "mltcp") as sender:
        backend.tag(sender.fileno(), 1)
        send_burst(sender, BURST)
        replace_build(backend, None, lambda _: None)
        time.sleep(2 * gap_s)
        with backend.iterations() as stream:
            send_burst(sender, BURST)
            (flow,) = backend.flows()
            assert (flow.job_id, flow.active) == (1, True)
            assert flow.sent_bytes == pytest.approx(BURST, abs=late)
            sender.close()
            (event,) = collect(stream, 1)
        assert event.bytes == pytest.approx(BURST, abs=late)


@pytest.mark.bpf
def test_a_reader_of_the_replaced_programs_is_told(backend: Backend) -> None:
    if backend.name != "bpf":
        return  # a netlink group is the next module's as well
    with backend.iterations() as stream:
        assert stream.poll(0) == []
        replace_build(backend, None, lambda _: None)
        with pytest.raises(MltcpError, match="were replaced"):
            stream.poll(0)


@pytest.mark.bpf
def test_programs_that_the_kernel_refuses_replace_nothing(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if backend.name != "bpf":
        return
    before = backend.status()
    broken = tmp_path / "broken.bpf.o"
    broken.write_bytes(b"no object")
    monkeypatch.setattr("mltcp_tools.kernel.native.objects.build_object", lambda name: broken)
    with holder(1) as held:
        held.ask("choose", 0, "mltcp")
        with pytest.raises(HostError, match="Loading mltcp"):
            replace_build(backend, None, lambda _: None)
        assert held.ccs() == ["mltcp"]
        monkeypatch.undo()
        assert backend.status().build == before.build
        held.ask("choose", 0, "reno")
    assert set(before.loaded) <= set(available_congestion_controls())


def test_nothing_loaded_is_nothing_to_replace(capsys: pytest.CaptureFixture[str]) -> None:
    for name in [each.values[0] for each in PARAMETERS]:
        with fresh(str(name)):
            assert main(["load", "--replace", "--backend", str(name)]) == 1
            assert "isn't loaded" in capsys.readouterr().err
            assert main(["load", "--replace", "mltcp"]) == 2
