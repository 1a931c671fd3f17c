# SPDX-License-Identifier: BSD-2-Clause
"""Moving bursts through non-blocking sockets, without looking at the payload.

The payload is one zero-filled buffer sent over and over; the kernel discards what arrives without
copying it (MSG_TRUNC, tcp(7)), which takes a third less of the receiver's CPU. Sending a
file's pages (sendfile) took a tenth more than copying from a buffer that stays in the cache. Python
runs once per chunk of up to CHUNK bytes, never per packet.
"""

from __future__ import annotations

import socket

CHUNK = 256 * 1024
# How many chunks one flow may move before the others get their turn.
_CHUNKS_PER_TURN = 4

_PAYLOAD = memoryview(bytes(CHUNK))
_SCRATCH = memoryview(bytearray(CHUNK))


class PeerClosed(ConnectionError):
    """The other side closed the connection."""


class Outgoing:
    """`head`, then `body` bytes of payload, on their way into a socket.

    `allowed`: how many bytes of the body may go for now, None for all.
    """

    def __init__(self, head: bytes = b"", body: int = 0, allowed: int | None = None) -> None:
        self._head = head
        self._body = body
        self._size = body
        self._held = 0 if allowed is None else max(0, body - allowed)

    @property
    def done(self) -> bool:
        """Return whether the kernel has taken everything."""
        return not self._head and not self._body

    @property
    def ready(self) -> bool:
        """Return whether there is something that may go now."""
        return bool(self._head) or self._body > self._held

    def allow(self, size: int | None) -> None:
        """Let the first `size` bytes of the body go, None for all; never fewer than before."""
        if size is None:
            self._held = 0
        else:
            self._held = min(self._held, max(0, self._size - size))

    def pump(self, sock: socket.socket) -> bool:
        """Hand over what may go and the socket's buffer takes; True when everything is.

        The buffer is filled until it takes no more, so that TCP always has data queued while the
        burst lasts. Raises OSError as send does.
        """
        for _ in range(_CHUNKS_PER_TURN):
            if not self.ready:
                break
            chunk = _PAYLOAD[: min(self._body - self._held, CHUNK)]
            try:
                if self._head:
                    # One call for both: the head must not travel as a small packet of its own.
                    sent = sock.sendmsg([self._head, chunk])
                    offered = len(self._head) + len(chunk)
                else:
                    sent = sock.send(chunk)
                    offered = len(chunk)
            except BlockingIOError:
                break
            of_head = min(sent, len(self._head))
            self._head = self._head[of_head:]
            self._body -= sent - of_head
            if sent < offered:
                break
        return self.done


class Incoming:
    """`body` bytes of payload, then a record of `record` bytes, on their way out of a socket."""

    def __init__(self, body: int = 0, record: int = 0) -> None:
        self._body = body
        self._size = body
        self._wanted = record
        self.record = b""

    @property
    def done(self) -> bool:
        """Return whether everything has arrived."""
        return not self._body and len(self.record) == self._wanted

    def turn(self, chunk: int) -> int | None:
        """Bytes that the other way may have sent when both take turns by `chunk`; None for all."""
        received = self._size - self._body
        return (received // chunk + 1) * chunk if self._body else None

    def pump(self, sock: socket.socket) -> bool:
        """Take what has arrived; True when everything has.

        Raises PeerClosed at the end of the stream, and OSError as recv does.
        """
        for _ in range(_CHUNKS_PER_TURN):
            if self.done:
                break
            wanted = min(self._body, CHUNK) or self._wanted - len(self.record)
            try:
                if self._body:
                    got = sock.recv_into(_SCRATCH, wanted, socket.MSG_TRUNC)
                    self._body -= got
                else:
                    # Not by way of the scratch, which other threads may be writing to.
                    piece = sock.recv(wanted)
                    got = len(piece)
                    self.record += piece
            except BlockingIOError:
                break
            if not got:
                raise PeerClosed("the connection was closed")
            if got < wanted:
                break
        return self.done
