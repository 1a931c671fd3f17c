# SPDX-License-Identifier: BSD-2-Clause
"""The control descriptor: how a parent process drives emulators it has started.

The parent makes a socketpair(AF_UNIX, SOCK_SEQPACKET) and lets the emulator inherit one end
(`--control-fd N`). Every message is one JSON object:

    server -> parent   {"event": "listening", "port": P}
    parent -> client   {"event": "job", "name": the job's name, "spec": the fields of JobSpec,
                        "trace_s": seconds between samples, or null}
                       first of all
    client -> parent   {"event": "connected", "last": bool} with the sockets of the next flows
                       attached (SCM_RIGHTS), at most 64 a message; the last of these messages has
                       "last": true
    Of a job with a pattern, each rank is a process of its own:
    parent -> rank     {"event": "job", "name", "spec", "trace_s": as above, "rank": its number,
                        "port": that it listens on, "routes": {number of a connection: {"source":
                        address, "destination": address, "port": port}} of those it opens}
    rank -> parent     {"event": "listening", "port": P}
    parent -> rank     {"event": "connect"} when all ranks listen
    parent -> client   {"event": "start", "at": seconds of CLOCK_MONOTONIC}
    parent -> client   {"event": "stop"} at any time after that: end, as after the last iteration
    client -> parent   {"event": "iteration", "iteration": n} after each iteration; left out when
                       the parent lets the socket's buffer fill up, rather than hold up the job
    client -> parent   {"event": "done"} or {"event": "failed", "error": "a sentence"}, sent when
                       the result has been written

When the parent closes its end, or dies, the emulator ends at once.
"""

from __future__ import annotations

import json
import os
import socket
from array import array
from collections.abc import Sequence
from typing import Any, NoReturn

from mltcp_tools.base.errors import MltcpError, UsageError
from mltcp_tools.kernel.host.lifetime import die_with_parent
from mltcp_tools.lab.emulator.job import JobSpec

FLOWS_PER_MESSAGE = 64
_MESSAGE_BYTES = 64 * 1024


class StoppedByParent(Exception):
    """The parent wants no more iterations."""


def receive_message(sock: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """One message and the descriptors that came with it (close-on-exec, the caller's to close).

    The message is None when the other side has closed. Raises MltcpError where the message isn't a
    JSON object with an "event", and OSError as recvmsg does.
    """
    try:
        # Not socket.recv_fds: up to Python 3.11 at least it drops the flags.
        data, ancillary, _, _ = sock.recvmsg(
            _MESSAGE_BYTES,
            socket.CMSG_LEN(FLOWS_PER_MESSAGE * array("i").itemsize),
            socket.MSG_CMSG_CLOEXEC,
        )
    except ConnectionResetError:
        return None, []
    fds = array("i")
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
    if not data:
        return None, []
    try:
        message = json.loads(data)
    except ValueError:
        message = None
    if not isinstance(message, dict) or not isinstance(message.get("event"), str):
        for fd in fds:
            os.close(fd)
        raise MltcpError("A message on the control descriptor isn't a JSON object with an event.")
    return message, list(fds)


class Control:
    """The emulator's end of the control descriptor; takes descriptor `fd` over.

    Raises UsageError when `fd` isn't such a socket. From then on this process dies with its parent.
    """

    def __init__(self, fd: int) -> None:
        try:
            self._sock = socket.socket(fileno=fd)
        except OSError as error:
            raise UsageError(
                f"Descriptor {fd} of --control-fd isn't an open socket ({error.strerror})."
            ) from error
        if (self._sock.family, self._sock.type) != (socket.AF_UNIX, socket.SOCK_SEQPACKET):
            self._sock.detach()
            raise UsageError(
                f"Descriptor {fd} of --control-fd isn't an AF_UNIX SOCK_SEQPACKET socket."
            )
        self._sock.set_inheritable(False)
        self._sock.setblocking(True)
        # EOF is only seen where the process looks; the signal covers the rest.
        die_with_parent()

    def fileno(self) -> int:
        """The descriptor, for a selector."""
        return self._sock.fileno()

    def listening(self, port: int) -> None:
        """Tell the parent on which port the server listens."""
        self._send({"event": "listening", "port": port})

    def connected(self, flows: Sequence[socket.socket]) -> None:
        """Tell the parent about all flows, and hand it their sockets."""
        for first in range(0, len(flows), FLOWS_PER_MESSAGE):
            part = flows[first : first + FLOWS_PER_MESSAGE]
            self._send({"event": "connected", "last": first + len(part) == len(flows)}, part)

    def iteration(self, number: int) -> None:
        """Tell the parent that iteration `number` is over, if it is listening."""
        self._send({"event": "iteration", "iteration": number}, flags=socket.MSG_DONTWAIT)

    def done(self) -> None:
        """Tell the parent that the job is over and its result written."""
        self._send({"event": "done"})

    def failed(self, sentence: str) -> None:
        """Tell the parent why the job ended early."""
        self._send({"event": "failed", "error": sentence})

    def read_job(self) -> tuple[str, JobSpec, float | None]:
        """The next message, which must be "job": name, job and trace_s. Ends at EOF."""
        message = self._read("job")
        name, trace_s = message.get("name"), message.get("trace_s")
        if not isinstance(name, str):
            raise MltcpError(f"The control descriptor brought {message}, where a job was due.")
        return name, JobSpec.read(message.get("spec")), None if trace_s is None else float(trace_s)

    def read_rank(self) -> dict[str, Any]:
        """The next message, which must be "job", for a rank. Ends at EOF."""
        return self._read("job")

    def read_connect(self) -> None:
        """Wait for the message "connect". Ends at EOF."""
        self._read("connect")

    def read_start(self) -> float:
        """The next message, which must be "start": the instant it names. Ends at EOF."""
        message = self._read("start")
        at = message.get("at")
        if isinstance(at, bool) or not isinstance(at, (int, float)):
            raise MltcpError(f"The control descriptor brought {message}, where start was due.")
        return float(at)

    def _read(self, event: str) -> dict[str, Any]:
        """The next message, which must be `event`."""
        message, fds = receive_message(self._sock)
        for fd in fds:
            os.close(fd)
        if message is None:
            _end()
        if message["event"] != event:
            due = "a job" if event == "job" else event
            raise MltcpError(f"The control descriptor brought {message}, where {due} was due.")
        return message

    def check(self) -> None:
        """Called when the descriptor is readable: Stopped if the parent says so; ends at EOF."""
        message, _ = receive_message(self._sock)
        if message is None:
            _end()
        if message["event"] == "stop":
            raise StoppedByParent
        raise MltcpError(f"The control descriptor brought {message}, where nothing was due.")

    def _send(
        self,
        message: dict[str, Any],
        sockets: Sequence[socket.socket] = (),
        flags: int = 0,
    ) -> None:
        data = json.dumps(message).encode()
        rights = array("i", [sock.fileno() for sock in sockets])
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if sockets else []
        try:
            self._sock.sendmsg([data], ancillary, flags)
        except BlockingIOError:
            pass
        except (BrokenPipeError, ConnectionResetError):
            _end()


def _end() -> NoReturn:
    # At once, without writing or closing anything: its reader is gone.
    os._exit(1)
