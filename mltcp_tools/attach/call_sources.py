"""All sources of calls, each opened when a process needs it, for whoever follows processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mltcp_tools.attach.call_source import CallSource
from mltcp_tools.attach.gloo import GlooSource
from mltcp_tools.attach.libraries import mapped_libraries
from mltcp_tools.attach.metadata import Metadata
from mltcp_tools.attach.nccl import NcclSource
from mltcp_tools.errors import HostError, MltcpError

_KINDS: tuple[type[NcclSource] | type[GlooSource], ...] = (NcclSource, GlooSource)

_LOOK_AGAIN_S = 1.0
_LOOK_AGAIN_MAX_S = 60.0
"""A process that lacks a library may load it later, though less and less likely."""


class CallSources:
    """What processes' calls tell, whatever libraries they use. say: gets what can't be had, once.

    A source that can't be opened here is left out.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._open: dict[str, CallSource | None] = {}
        self._look_at: dict[int, tuple[float, float]] = {}
        """By pid, when to look for libraries again, and after how long the next time."""

    def watch(self, pid: int, now_s: float) -> None:
        """See the process's calls from now on, or as soon as it has a library; call it often."""
        due, wait = self._look_at.get(pid, (now_s, _LOOK_AGAIN_S))
        if now_s < due:
            return
        self._look_at[pid] = now_s + wait, min(2 * wait, _LOOK_AGAIN_MAX_S)
        for kind in _KINDS:
            try:
                if mapped_libraries(pid, kind.library) and (source := self._source(kind)):
                    source.watch(pid)
            except MltcpError as error:
                self._say(f"Calls of process {pid} aren't seen: {error}")

    def _source(self, kind: type[NcclSource] | type[GlooSource]) -> CallSource | None:
        if kind.source not in self._open:
            try:
                self._open[kind.source] = kind()
            except HostError as error:
                self._open[kind.source] = None
                self._say(f"Iterations can't be told from {kind.source}'s calls: {error}")
        return self._open[kind.source]

    def forget(self, pid: int) -> None:
        """Stop watching; a process that isn't watched is no error."""
        self._look_at.pop(pid, None)
        for source in self._sources():
            source.forget(pid)

    def poll(self) -> None:
        """Take the calls made since. Never waits."""
        for source in self._sources():
            source.poll()

    def metadata(self, flows: Iterable[tuple[int, int]]) -> list[tuple[Metadata, float]]:
        """What each source knows of a job, and when it last saw a call (CLOCK_MONOTONIC).

        flows: the pids of the job's processes here, each with the number of sockets it sends
        through. Of several processes that one speaks whose calls repeat best.
        """
        processes = list(flows)
        found = []
        for source in self._sources():
            each = [
                (known, source.last_s(pid))
                for pid, sockets in processes
                if (known := source.metadata(pid, sockets))
            ]
            if each:
                found.append(max(each, key=lambda known: known[0].confidence))
        return found

    def _sources(self) -> list[CallSource]:
        return [source for source in self._open.values() if source]

    def close(self) -> None:
        """Take all probes off; closing twice is fine."""
        for source in self._sources():
            source.close()
        self._open.clear()

    def __enter__(self) -> CallSources:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
