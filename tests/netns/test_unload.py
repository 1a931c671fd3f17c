# SPDX-License-Identifier: BSD-2-Clause
"""Taking MLTCP off a host: what holds it is named, and what is said to be gone is gone."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from netns.backends_here import backend_fixture
from netns.connected import FIRST_CC, holder, namespace
from netns.connections import TCP_CONGESTION
from support.waiting import PATIENCE_S, wait_for

from mltcp_tools.base.errors import BusyError
from mltcp_tools.cli.main import main
from mltcp_tools.kernel.backends import struct_ops
from mltcp_tools.kernel.backends.base import Backend
from mltcp_tools.kernel.backends.pins import PIN_ROOT
from mltcp_tools.kernel.congestion_controls import NAMES
from mltcp_tools.kernel.host import facts
from mltcp_tools.kernel.host.facts import read_sysctl
from mltcp_tools.kernel.host.leases import LEASES, leased, leases
from mltcp_tools.lab.testbed.namespaces import inside, write_sysctl
from mltcp_tools.live.attach.removal import left_on_host

DEFAULT = "net.ipv4.tcp_congestion_control"
RUN = "import sys; from mltcp_tools.cli.main import main; sys.exit(main(sys.argv[1:]))"


backend = backend_fixture()


@contextlib.contextmanager
def default(name: str | None, cc: str) -> Iterator[None]:
    """The congestion control as the default of the namespace, for as long as that is."""
    with inside(name):
        before = read_sysctl(DEFAULT)
        write_sysctl(DEFAULT, cc)
    try:
        yield
    finally:
        with inside(name):
            write_sysctl(DEFAULT, before)


@pytest.mark.parametrize("force", [False, True])
def test_the_default_of_any_namespace_is_named(backend: Backend, force: bool) -> None:
    backend.load()
    with namespace() as name:
        with default(name, "mltcp"):
            with pytest.raises(
                BusyError, match=f"mltcp is the default of network namespace {name}"
            ):
                backend.unload(force)
            assert "mltcp" in backend.status().loaded
        assert backend.unload(force) == 0


def test_a_namespace_without_a_name_is_named_by_its_process(backend: Backend) -> None:
    backend.load()
    setting = f"echo mltcp >/proc/sys/{DEFAULT.replace('.', '/')}; echo; read x"
    with subprocess.Popen(
        ["unshare", "--net", "sh", "-c", setting],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as container:
        assert container.stdout is not None
        container.stdout.readline()
        told = rf"the default of the network namespace of process {container.pid} \(sh\)"
        with pytest.raises(BusyError, match=told):
            backend.unload()
        container.kill()
    assert backend.unload() == 0


def test_a_listening_socket_is_named(backend: Backend, capsys: pytest.CaptureFixture[str]) -> None:
    backend.load()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, b"mltcp")
        told = rf"listen socket 127.0.0.1 port {listener.getsockname()[1]} of process {os.getpid()}"
        with pytest.raises(BusyError, match=told):
            backend.unload()
        assert "mltcp" in backend.status().loaded
    assert backend.unload() == 0
    assert main(["unload"]) == 0
    assert capsys.readouterr().err == "Nothing was loaded.\n"


def test_a_socket_that_is_not_even_bound_holds_it(backend: Backend) -> None:
    backend.load()
    with socket.socket() as unbound:
        unbound.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, b"mltcp")
        with pytest.raises(BusyError, match="neither bound nor connected"):
            backend.unload()
        assert f"process {os.getpid()} runs mltcp" in " ".join(left_on_host())
    assert backend.unload() == 0


@pytest.mark.bpf
def test_what_an_unload_by_force_left_is_shown(
    backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    if backend.name != "bpf":
        return  # a module can't be left behind
    backend.load()
    with holder(1) as held:
        held.ask("choose", 0, "mltcp")
        assert main(["unload", "--force"]) == 0
        assert "1 sockets keep their loaded code" in capsys.readouterr().err
        assert main(["status"]) == 0
        assert "still has the programs of mltcp from an earlier load" in capsys.readouterr().out
        assert main(["unload"]) == BusyError.exit_code
        assert f"of process {held.pid}" in capsys.readouterr().err
        backend.load()  # the old programs and the new ones
        assert backend.status().details["unregistered"] == ["mltcp"]
        held.ask("choose", 0, "reno")
    assert backend.unload() == 0
    assert left_on_host() == []


def test_who_works_with_it_is_named(backend: Backend, tmp_path: Path) -> None:
    backend.load()
    command = [sys.executable, "-c", RUN, "watch", "--backend", backend.name]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as watching:
        wait_for(lambda: leases(backend.name), "its lease")
        with pytest.raises(BusyError, match=rf"mltcp watch \(process {watching.pid}\)"):
            backend.unload()
        watching.kill()
    assert leases() == []  # the dead one's means nothing
    with leased("test", backend.name):
        assert leases() == []  # one's own
        assert list(LEASES.iterdir())
        assert backend.unload() == 0


def test_everything_is_taken_off(
    backend: Backend, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    backend.load()
    rules = tmp_path / "agent.yaml"
    with (
        namespace() as name,
        holder(2) as attached,
        holder(3, through=("ip", "netns", "exec", name)) as by_itself,
        socket.socket() as unbound,
    ):
        rule = f"{{job: a, pid: {attached.pid}, kinds: all}}"
        rules.write_text(f"rules: [{rule}]\nfollow: polling\non_stop: keep\n")
        agent = subprocess.Popen(
            [sys.executable, "-c", RUN, "agent", "--config", rules], stderr=subprocess.DEVNULL
        )
        try:
            wait_for(lambda: attached.ccs() == ["mltcp"] * 2, "the agent")
            by_itself.ask("choose", 0, "mltcp_reno")
            by_itself.ask("choose", 1, "mltcp_cubic")
            unbound.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, b"mltcp")
            with inside(name):
                write_sysctl(DEFAULT, "mltcp")

            assert main(["unload", "--everything", "--dry-run"]) == 0
            said = capsys.readouterr().err
            for each in (
                f"agent (process {agent.pid})",
                f"mltcp is the default of network namespace {name}",
                f"process {attached.pid} runs mltcp",
                f"process {by_itself.pid} runs mltcp_cubic",
                f"process {os.getpid()} runs mltcp ",
                "records 1 job.",
            ):
                assert each in said
            assert attached.ccs() == ["mltcp"] * 2

            assert main(["unload", "--everything"]) == 0
            assert "Nothing of MLTCP is left on this host." in capsys.readouterr().err
            assert agent.wait(PATIENCE_S) in (0, -signal.SIGTERM)
        finally:
            agent.kill()
            agent.wait()
        assert attached.ccs() == [FIRST_CC] * 2
        assert by_itself.ccs() == ["reno", "cubic", FIRST_CC]
        with inside(name):
            assert read_sysctl(DEFAULT) == "reno"
        assert left_on_host() == []
    assert not set(NAMES) & set(facts.available_congestion_controls())
    assert not backend.is_present()
    assert not Path("/run/mltcp").exists() or not list(Path("/run/mltcp").iterdir())
    assert main(["unload", "--everything"]) == 0  # again is no error


def test_a_host_without_the_testbeds_packages_is_cleared_too(backend: Backend) -> None:
    backend.load()
    without = "; ".join(f"sys.modules[{name!r}] = None" for name in ("numpy", "pandas", "pyarrow"))
    code = RUN.replace("sys; ", f"sys; {without}; ")
    # With a folder of records of its own: testbeds of others may leave theirs at any time.
    own = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /run/mltcp; $0; exec "$@"']
    run = [sys.executable, "-c", code, "unload", "--everything"]
    done = subprocess.run([*own, ":", *run], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "Nothing of MLTCP is left on this host."
    assert not backend.is_present()
    # A testbed that ended well leaves an empty file, one that was killed more.
    emptied = [*own, "install -D /dev/null /run/mltcp/testbed/bpf.users", *run]
    done = subprocess.run(emptied, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    made = [*own, "install -D /dev/null /run/mltcp/testbed/00beef.lock", *run]
    done = subprocess.run(made, capture_output=True, text=True)
    assert (done.returncode, "Leftovers of testbeds stay" in done.stderr) == (1, True)


def test_what_can_not_be_taken_off_is_named(
    backend: Backend, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from mltcp_tools.live.attach import removal

    backend.load()
    with holder(1) as held:
        held.ask("choose", 0, "mltcp")
        monkeypatch.setattr(removal, "_switch", lambda found: False)
        monkeypatch.setattr(removal, "_PATIENCE_S", 0.5)
        assert main(["unload", "--everything"]) == 1
        assert f"A socket of process {held.pid} runs mltcp" in capsys.readouterr().err
    monkeypatch.undo()
    assert main(["unload", "--everything"]) == 0


def test_unload_without_the_pins_says_unloaded(
    backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    if backend.name == "kmod":
        return  # it has none
    backend.load()
    shutil.rmtree(PIN_ROOT)
    assert main(["unload"]) == 0
    assert capsys.readouterr().err == "Unloaded.\n"
    assert struct_ops.any_left() == []
