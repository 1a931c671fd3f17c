"""The follower's reading of iterations: it outlives what breaks, and hands on what it reads."""

from __future__ import annotations

from contextlib import ExitStack

from mltcp_tools.agent.notices import Voice
from mltcp_tools.backends.base import Backend, IterationEvent, IterationStream
from mltcp_tools.errors import MltcpError
from mltcp_tools.observe.relay import Relay, RelayedIterations, open_iterations

_RETRY_S = 5.0


class Reader:
    """Reads the backend's iterations; a context manager.

    A stream that can't be had (a testbed reads it) or breaks (MLTCP was unloaded) is tried again.
    """

    def __init__(self, backend: Backend, voice: Voice) -> None:
        self._backend = backend
        self._voice = voice
        self._stream: IterationStream | None = None
        self._relay: Relay | None = None
        self._open = ExitStack()
        self._retry_s = 0.0

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def read(self, now_s: float) -> list[IterationEvent]:
        """What has finished since the last call; never waits."""
        if self._stream is None and now_s >= self._retry_s:
            self._retry_s = now_s + _RETRY_S
            self._try_to_open()
        if self._stream is None:
            return []
        try:
            events = self._stream.poll(0)
        except MltcpError as error:
            self._voice.warn(f"Iterations are no longer seen: {error}")
            self._close()
            return []
        if self._relay is not None:
            self._relay.send(events)
        return events

    def _try_to_open(self) -> None:
        try:
            self._stream = self._open.enter_context(open_iterations(self._backend))
            if not isinstance(self._stream, RelayedIterations):
                self._relay = self._open.enter_context(Relay())
        except (MltcpError, OSError) as error:
            self._close()
            self._voice.warn(f"Iterations can't be seen: {error}")

    def _close(self) -> None:
        self._stream = self._relay = None
        self._open.close()
