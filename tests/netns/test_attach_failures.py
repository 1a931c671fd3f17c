# SPDX-License-Identifier: BSD-2-Clause
"""Attaching that fails half-way, crashes, or meets others at work."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading

import pytest
from netns.attached import JOB, assert_nothing_recorded, connections, outcomes, recorded, tags
from netns.backends_here import backend_fixture, fresh_and_loaded, unload_by_force
from netns.connected import FIRST_CC, attach, holder, namespace

from mltcp_tools.base.errors import BusyError, MltcpError, UsageError
from mltcp_tools.kernel.backends.base import Backend
from mltcp_tools.live.attach import switch
from mltcp_tools.live.attach.processes import process
from mltcp_tools.live.attach.restore import detach
from mltcp_tools.live.attach.select_access import select_access
from mltcp_tools.live.attach.sockets import sockets
from mltcp_tools.live.attach.via_pidfd import ViaPidfd

backend = backend_fixture(fresh_and_loaded)


def failing_at(backend: Backend, number: int) -> Backend:
    """The backend, but tagging fails at that call: the job is no longer there."""

    class Failing(type(backend)):  # type: ignore[misc]
        calls = 0

        def tag(self, fd: int, job_id: int) -> None:
            self.calls += 1
            super().tag(fd, 999 if self.calls == number else job_id)

    return Failing()


def test_a_tag_that_fails_puts_the_congestion_control_back(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switch, "select_access", ViaPidfd)
    with holder(3) as held:
        changes = attach(connections(held), JOB, "mltcp", failing_at(backend, 2))
        assert outcomes(changes) == ["switched", "failed", "switched"]
        assert "no job 999" in changes[1].reason
        assert held.ccs() == ["mltcp", FIRST_CC, "mltcp"]
        assert recorded() == {"seven": {held.fds[0], held.fds[2]}}
    detach()
    with holder(1) as held:
        assert outcomes(attach(connections(held), JOB, "mltcp", failing_at(backend, 1))) == [
            "failed"
        ]
        assert backend.jobs() == []
        assert_nothing_recorded()


def test_namespace_whose_route_locks_another_congestion_control(backend: Backend) -> None:
    with namespace() as name:
        route = "ip route replace table local local 127.0.0.0/8 dev lo src 127.0.0.1 congctl lock"
        subprocess.run(["ip", "netns", "exec", name, *route.split(), "cubic"], check=True)
        subprocess.run(
            ["ip", "-n", name, "route", "del", "table", "local", "local", "127.0.0.1"], check=True
        )
        code = "import socket, sys, time\n" + (
            "l = socket.create_server(('127.0.0.1', 0)); c = socket.socket();"
            " c.connect(l.getsockname()); print(c.fileno(), flush=True); sys.stdin.read()"
        )
        with subprocess.Popen(
            ["ip", "netns", "exec", name, sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as locked:
            assert locked.stdout is not None
            fd = int(locked.stdout.readline())
            found = [each for each in sockets(process(locked.pid)) if each.fd == fd]
            (change,) = attach(found, JOB, "mltcp", backend)
            assert locked.stdin is not None
            locked.stdin.close()
    assert (change.outcome, change.old, change.new) == ("failed", "cubic", "cubic")
    assert "route" in change.reason
    assert_nothing_recorded()


CRASHING = """
import os, signal, sys
from mltcp_tools.live.attach.processes import process
from mltcp_tools.live.attach.sockets import sockets
from mltcp_tools.live.attach import switch
from mltcp_tools.live.attach.via_pidfd import ViaPidfd
from mltcp_tools.kernel.backends import get_backend

switch.select_access = ViaPidfd  # one socket after the other

class Crashing(type(get_backend(sys.argv[1]))):
    calls = 0

    def set_job(self, job):
        if sys.argv[3] == "0":
            os.kill(os.getpid(), signal.SIGKILL)
        super().set_job(job)

    def tag(self, fd, job_id):
        self.calls += 1
        if sys.argv[3] == str(self.calls):
            os.kill(os.getpid(), signal.SIGKILL)
        super().tag(fd, job_id)

found = [each for each in sockets(process(int(sys.argv[2]))) if each.state == "established"]
switch.attach_by_name(found, "seven", {}, "mltcp", Crashing(), preferred=7)
"""


@pytest.mark.parametrize(("when", "switched"), [(0, 0), (1, 1), (3, 3)])
def test_a_crash_between_record_and_change_is_rolled_back(
    backend: Backend, when: int, switched: int
) -> None:
    with holder(4) as held:
        crash = subprocess.run(
            [sys.executable, "-c", CRASHING, backend.name, str(held.pid), str(when)]
        )
        assert crash.returncode == -signal.SIGKILL
        assert held.ccs() == ["mltcp"] * switched + [FIRST_CC] * (4 - switched)
        assert recorded() == {"seven": set(held.fds)}
        if when == 1:  # attaching again after a crash keeps the true record
            assert "failed" not in outcomes(attach(connections(held), JOB, "mltcp", backend))
        assert [each.outcome for each in detach(job="seven")] == ["restored"] * 4
        assert held.ccs() == [FIRST_CC] * 4
        assert backend.jobs() == []


def test_detach_after_a_forced_unload(backend: Backend) -> None:
    with holder(2) as held:
        found = connections(held)
        attach(found, JOB, "mltcp", backend)
        unload_by_force(backend)
        assert held.ccs() == ["mltcp"] * 2
        assert [(each.outcome, each.new) for each in detach()] == [("restored", FIRST_CC)] * 2
        assert held.ccs() == [FIRST_CC] * 2


def test_nothing_is_changed_by_a_request_that_can_not_work(backend: Backend) -> None:
    with holder(1) as held:
        found = sockets(process(held.pid))
        listener = next(each for each in found if each.state == "listen")
        (connection,) = connections(held)
        for request, error, why in (
            (lambda: attach([listener], JOB, "mltcp", backend), UsageError, "state listen"),
            (lambda: attach([connection], JOB, "bbr", backend), UsageError, "no bbr"),
            (lambda: detach(job="absent"), UsageError, "No job 'absent' is attached; nothing is"),
            (lambda: detach(pid=held.pid), UsageError, f"No socket of process {held.pid}"),
        ):
            with pytest.raises(error, match=why):
                request()
        assert detach() == []
        backend.unload()
        with pytest.raises(MltcpError, match="isn't loaded; run `mltcp load`"):
            attach([connection], JOB, "mltcp", backend)
        backend.load(["mltcp"])
        if backend.status().loaded == ("mltcp",):
            with pytest.raises(MltcpError, match="run `mltcp load mltcp_reno`"):
                attach([connection], JOB, "mltcp_reno", backend)
        assert held.ccs() == [FIRST_CC]
    assert_nothing_recorded()


def test_two_at_once_leave_each_socket_with_one_job(backend: Backend) -> None:
    with holder(40) as held:
        code = (
            "import sys; from mltcp_tools.cli.main import main;"
            " sys.exit(main(['attach', sys.argv[1], '--job', sys.argv[2], '--kind', 'all']))"
        )
        runs = [
            subprocess.Popen(
                [sys.executable, "-c", code, str(held.pid), name],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            for name in ("a", "b")
        ]
        said = [run.communicate()[1] for run in runs]
        # The second finds them taken, unless it looked first.
        assert sorted(run.returncode for run in runs) == [0, BusyError.exit_code], said
        (sets,) = [list(recorded().values())]
        assert sets == [set(held.fds)]
        assert len(set(tags(backend).values())) == 1
        assert {each.new for each in detach()} == {FIRST_CC}
        assert held.ccs() == [FIRST_CC] * 40


def test_a_transfer_does_not_notice(backend: Backend) -> None:
    """Attached and detached over and over in mid-flow, every byte arrives in its place."""
    size = 300 * 2**20
    code = f"""
import socket, sys
sender = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
block = bytes(range(256)) * 4096
for _ in range({size} // len(block)):
    sender.sendall(block)
"""
    received = bytearray()
    wrong = []

    def read(listener: socket.socket) -> None:
        peer, _ = listener.accept()
        block = bytes(range(256)) * 4096
        count = 0
        with peer:
            while data := peer.recv(1 << 20, socket.MSG_WAITALL):
                wrong.extend([count] if data != block else [])
                count += len(data)
        received.extend(str(count).encode())

    select_access(backend)  # what loads, loads before the transfer
    with socket.create_server(("127.0.0.1", 0)) as listener:
        reader = threading.Thread(target=read, args=(listener,))
        reader.start()
        with subprocess.Popen(
            [sys.executable, "-c", code, str(listener.getsockname()[1])]
        ) as sender:
            rounds = 0
            sending = process(sender.pid)
            while sender.poll() is None:
                found = [each for each in sockets(sending) if each.state == "established"]
                if found and "switched" in outcomes(attach(found, JOB, "mltcp", backend)):
                    rounds += 1
                    detach()
        reader.join(60)
    assert sender.returncode == 0
    assert (bytes(received), wrong) == (str(size).encode(), [])
    assert rounds > 0
