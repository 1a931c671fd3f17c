# SPDX-License-Identifier: BSD-2-Clause
"""The agent's end of what training loops say through mltcp_tools.hooks.

Anybody on the host may send to the socket, so nothing in a message is believed but what it says of
its sender, whom the kernel names: a message holds no pid, so a process speaks only for itself.
"""

from __future__ import annotations

import array
import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mltcp_tools.base.errors import HostError
from mltcp_tools.hooks import MAGIC, MESSAGE, UNKNOWN, VERSION

LONGEST_NS = 24 * 3600 * 10**9
"""An iteration longer than a day is damage."""

CREDENTIALS = struct.Struct("3i")
"""The kernel's struct ucred: pid, uid and gid of who is at the other end (unix(7))."""

_ANCILLARY = socket.CMSG_SPACE(CREDENTIALS.size) + socket.CMSG_SPACE(16 * 4)


@dataclass(frozen=True)
class Message:
    """One iteration of one process, as it tells it.

    pid, uid: of the sender, by the kernel. job: the name it gives, or empty. number: from 1.
    begin_s, end_s: the sender's CLOCK_MONOTONIC seconds. busy_s: of that, communicating. bytes:
    handed to collectives. Both are None where the process doesn't know.
    """

    pid: int
    uid: int
    job: str
    number: int
    begin_s: float
    end_s: float
    busy_s: float | None
    bytes: int | None


def decode(data: bytes, pid: int, uid: int) -> Message | None:
    """The message in a datagram of that sender; None for anything that isn't well formed."""
    if len(data) != MESSAGE.size:
        return None
    magic, version, zero, number, begin, end, busy, size, name = MESSAGE.unpack(data)
    if (magic, version, zero) != (MAGIC, VERSION, 0) or not number:
        return None
    if not begin <= end <= begin + LONGEST_NS or end >= UNKNOWN:
        return None
    text, _, rest = name.partition(b"\0")
    if rest.strip(b"\0"):
        return None
    try:
        job = text.decode()
    except UnicodeDecodeError:
        return None
    if not job.isprintable():
        return None
    return Message(
        pid=pid,
        uid=uid,
        job=job,
        number=number,
        begin_s=begin / 1e9,
        end_s=end / 1e9,
        busy_s=None if busy == UNKNOWN else min(busy, end - begin) / 1e9,
        bytes=None if size == UNKNOWN else size,
    )


class Mailbox:
    """The agent's socket: a context manager; `fileno()` for waiting, `receive()` for what came.

    Everybody may write to it, nobody but its owner may replace it. received: datagrams that came;
    refused: those of them that were not well formed.
    """

    def __init__(self, path: Path) -> None:
        self.received = 0
        self.refused = 0
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    def __enter__(self) -> Mailbox:
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        folder = self._path.parent
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        if (mode := folder.stat().st_mode) & 0o022 and not mode & 0o1000:
            raise HostError(f"{folder} may be written by others; run: chmod go-w {folder}")
        # Only one agent gets here, so what is there is the socket of one that was killed.
        if self._path.is_socket():
            self._path.unlink()
        try:
            self._socket.bind(str(self._path))
        except OSError as error:
            raise HostError(f"The agent's socket {self._path}: {error.strerror}.") from error
        os.chmod(self._path, 0o666)
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._socket.fileno()

    def receive(self, most: int = 1000) -> Iterator[Message]:
        """The messages that wait, up to a limit, so that a flood can't hold up the agent."""
        for _ in range(most):
            try:
                data, ancillary, _, _ = self._socket.recvmsg(MESSAGE.size + 1, _ANCILLARY)
            except BlockingIOError:
                return
            self.received += 1
            sender = _sender(ancillary)
            message = decode(data, *sender) if sender else None
            if message is None:
                self.refused += 1
            else:
                yield message


def _sender(ancillary: list[tuple[int, int, bytes]]) -> tuple[int, int] | None:
    """Pid and uid of the sender; closes descriptors that somebody sent along."""
    found = None
    for level, kind, data in ancillary:
        if level != socket.SOL_SOCKET:
            continue
        if kind == socket.SCM_RIGHTS:
            descriptors = array.array("i")
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
            for descriptor in descriptors:
                os.close(descriptor)
        elif kind == socket.SCM_CREDENTIALS and len(data) == CREDENTIALS.size:
            pid, uid, _ = CREDENTIALS.unpack(data)
            found = (pid, uid) if pid > 0 else None
    return found
