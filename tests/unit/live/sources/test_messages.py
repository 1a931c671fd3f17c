# SPDX-License-Identifier: BSD-2-Clause
"""The agent's socket: what it believes, what it refuses, and who may replace it."""

from __future__ import annotations

import array
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltcp_tools.base.errors import HostError
from mltcp_tools.hooks import MAGIC, MESSAGE, UNKNOWN, VERSION
from mltcp_tools.live.sources.messages import LONGEST_NS, Mailbox, decode

GOOD = (MAGIC, VERSION, 0, 1, 10, 20, UNKNOWN, UNKNOWN, b"job")


def packed(**changes: object) -> bytes:
    names = ("magic", "version", "zero", "number", "begin", "end", "busy", "bytes", "name")
    return MESSAGE.pack(*(dict(zip(names, GOOD, strict=True)) | changes).values())


@pytest.fixture
def mailbox(tmp_path: Path) -> Iterator[Mailbox]:
    with Mailbox(tmp_path / "agent.sock") as box:
        yield box


def test_a_good_message_is_read() -> None:
    message = decode(packed(busy=4, bytes=9), 12, 34)
    assert message is not None
    assert (message.pid, message.uid, message.job, message.number) == (12, 34, "job", 1)
    assert (message.begin_s, message.end_s) == (1e-8, 2e-8)
    assert (message.busy_s, message.bytes) == (4e-9, 9)


@pytest.mark.parametrize(
    "changes",
    [
        {"magic": b"MLTX"},
        {"version": 2},
        {"zero": 1},
        {"number": 0},
        {"begin": 30},
        {"end": 10 + LONGEST_NS + 1},
        {"begin": UNKNOWN - 1, "end": UNKNOWN},
        {"name": b"\xff\xfe"},
        {"name": b"\x1b[2J"},
    ],
)
def test_a_damaged_message_is_refused(changes: dict[str, object]) -> None:
    assert decode(packed(**changes), 1, 0) is None


@given(st.binary(min_size=MESSAGE.size - 1, max_size=MESSAGE.size + 1))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    decode(data, 1, 0)
    decode(packed()[:8] + data[8:], 1, 0)


def send(mailbox: Mailbox, path: Path, data: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(data, str(path))


def test_the_kernel_names_the_sender(mailbox: Mailbox, tmp_path: Path) -> None:
    child = os.fork()
    if not child:
        send(mailbox, tmp_path / "agent.sock", packed())
        os._exit(0)
    os.waitpid(child, 0)
    (message,) = mailbox.receive()
    assert (message.pid, message.uid) == (child, os.getuid())


def test_nobody_can_speak_for_another_process(mailbox: Mailbox, tmp_path: Path) -> None:
    """Credentials sent along are checked by the kernel; without privilege only one's own pass."""
    forged = array.array("i", [os.getppid(), os.getuid(), os.getgid()]).tobytes()
    control = [(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, forged)]
    child = os.fork()
    if not child:
        try:
            if os.getuid() == 0:
                os.setuid(65534)
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.sendmsg([packed()], control, 0, str(tmp_path / "agent.sock"))
        except PermissionError:
            os._exit(7)
        os._exit(0)
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents:
        if parent.stat().st_uid == os.getuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o011)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert list(mailbox.receive()) == []


def test_descriptors_sent_along_are_closed(mailbox: Mailbox, tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender,
        open(os.devnull) as file,
    ):
        sender.connect(str(tmp_path / "agent.sock"))
        socket.send_fds(sender, [packed()], [file.fileno()] * 3)
        socket.send_fds(sender, [packed()], [file.fileno()] * 250)
    list(mailbox.receive())
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_flood_is_read_in_portions(mailbox: Mailbox, tmp_path: Path) -> None:
    for data in (packed(), b"nonsense", packed(number=2), packed(number=3)):
        send(mailbox, tmp_path / "agent.sock", data)
    assert [message.number for message in mailbox.receive(3)] == [1, 2]
    assert mailbox.refused == 1
    assert [message.number for message in mailbox.receive()] == [3]


def test_a_dead_agents_socket_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
        dead.bind(str(tmp_path / "agent.sock"))
    with Mailbox(tmp_path / "agent.sock") as box:
        send(box, tmp_path / "agent.sock", packed())
        assert len(list(box.receive())) == 1
    assert not (tmp_path / "agent.sock").exists()


def test_a_folder_that_others_may_write_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(HostError, match="chmod go-w"), Mailbox(tmp_path / "agent.sock"):
        pass
