# SPDX-License-Identifier: BSD-2-Clause
"""Iterations handed on by the process that reads them, as the eBPF backend has one reader only."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
import time
from collections.abc import Iterable
from pathlib import Path

from mltcp_tools.base.errors import BusyError, HostError, MltcpError
from mltcp_tools.kernel.backends.base import Backend, IterationEvent, IterationStream
from mltcp_tools.kernel.host.locks import RUN_DIR
from mltcp_tools.live.attach.typed import parsed
from mltcp_tools.live.sources.messages import CREDENTIALS

SOCKET = RUN_DIR / "iterations.sock"

_LARGEST = 4096
_READERS = 64


class Relay:
    """The reader's end: a context manager; readers connect, and get each event from then on.

    Only this user can connect. An event that finds a reader's buffer full is lost to that reader.
    """

    def __init__(self, path: Path = SOCKET) -> None:
        self._path = path
        self._readers: list[socket.socket] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def __enter__(self) -> Relay:
        self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        # Only the one reader of the kernel's events gets here: what is there is a dead one's.
        if self._path.is_socket():
            self._path.unlink()
        before = os.umask(0o177)
        try:
            self._socket.bind(str(self._path))
        except OSError as error:
            raise HostError(f"The socket {self._path}: {error.strerror}.") from error
        finally:
            os.umask(before)
        self._socket.listen(_READERS)
        self._socket.setblocking(False)
        return self

    def __exit__(self, *_: object) -> None:
        for each in (*self._readers, self._socket):
            each.close()
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()

    def send(self, events: Iterable[IterationEvent]) -> None:
        """Take in who has connected, and hand the events to all readers. Never waits."""
        while len(self._readers) < _READERS:
            try:
                reader, _ = self._socket.accept()
            except OSError:
                break
            reader.setblocking(False)
            self._readers.append(reader)
        if not self._readers:
            return
        for event in events:
            data = json.dumps(dataclasses.asdict(event)).encode()
            for reader in list(self._readers):
                try:
                    reader.send(data)
                except BlockingIOError:
                    continue
                except OSError:
                    reader.close()
                    self._readers.remove(reader)


class RelayedIterations(IterationStream):
    """The other end. Raises FileNotFoundError or ConnectionRefusedError where nobody relays."""

    def __init__(self, path: Path = SOCKET) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._socket.connect(str(path))
            data = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
            if CREDENTIALS.unpack(data)[1] not in (0, os.geteuid()):
                raise HostError(f"The socket {path} belongs to somebody else; remove it.")
        except BaseException:
            self._socket.close()
            raise

    def poll(self, timeout_s: float) -> list[IterationEvent]:
        """As IterationStream.poll; MltcpError when the process that relays has ended."""
        events: list[IterationEvent] = []
        deadline = time.monotonic() + timeout_s
        while True:
            wait = 0.0 if events else max(0.0, deadline - time.monotonic())
            self._socket.settimeout(wait)
            try:
                data = self._socket.recv(_LARGEST)
            except (TimeoutError, BlockingIOError):
                return events
            if not data:
                raise MltcpError("The process that relays iterations has ended.")
            if (event := _event(data)) is not None:
                events.append(event)

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()


class RelayingIterations(IterationStream):
    """The kernel's stream, whose reader hands on what it reads."""

    def __init__(self, stream: IterationStream, relay: Relay) -> None:
        self._stream = stream
        self._relay = relay

    def poll(self, timeout_s: float) -> list[IterationEvent]:
        events = self._stream.poll(timeout_s)
        self.dropped = self._stream.dropped
        self._relay.send(events)
        return events

    def close(self) -> None:
        """Stop reading and handing on."""
        self._relay.__exit__()
        self._stream.close()


def _event(data: bytes) -> IterationEvent | None:
    """The event of a packet, None for anything else."""
    try:
        return parsed(IterationEvent, json.loads(data))
    except ValueError:
        return None


def open_iterations(backend: Backend, path: Path = SOCKET) -> IterationStream:
    """The stream of finished iterations: the kernel's, or a relay by the process that reads it.

    Whoever reads the kernel's relays it, where there is one reader only. Raises BusyError where its
    reader (such as a testbed) doesn't relay.
    """
    try:
        stream = backend.iterations()
    except BusyError as error:
        try:
            return RelayedIterations(path)
        except (FileNotFoundError, ConnectionRefusedError):
            raise error from None
    if backend.name != "bpf":  # the module sends them to all who listen
        return stream
    try:
        return RelayingIterations(stream, Relay(path).__enter__())
    except (HostError, OSError):  # this user may read, and not hand on
        return stream
