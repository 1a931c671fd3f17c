"""All sources of calls, for the commands that follow processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mltcp_tools.errors import HostError, MltcpError
from mltcp_tools.kernel.host.closing import Closing
from mltcp_tools.live.sources.call_source import CallSource
from mltcp_tools.live.sources.gloo import GlooSource
from mltcp_tools.live.sources.metadata import Metadata
from mltcp_tools.live.sources.nccl import NcclSource

_KINDS: tuple[type[NcclSource] | type[GlooSource], ...] = (NcclSource, GlooSource)

_LOOK_AGAIN_S = 1.0
_LOOK_AGAIN_MAX_S = 60.0
"""A process that lacks a library may load it later, though less and less likely."""


class CallSources(Closing):
    """Iterations from processes' calls, whatever libraries they use. say: gets a
    sentence for each source that isn't available.

    All sources are opened at once, as that takes half a second each, in which nothing is followed.
    One that can't be opened here is left out.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._sources: list[CallSource] = []
        self._look_at: dict[int, tuple[float, float]] = {}
        """By pid, when to look for libraries again, and after how long the next time."""
        for kind in _KINDS:
            try:
                self._sources.append(kind())
            except HostError as error:
                say(f"Iterations can't be told from {kind.source}'s calls: {error}")

    def watch(self, pid: int, now_s: float) -> None:
        """See the process's calls from now on, or as soon as it has a library; call it often."""
        due, wait = self._look_at.get(pid, (now_s, _LOOK_AGAIN_S))
        if now_s < due:
            return
        self._look_at[pid] = now_s + wait, min(2 * wait, _LOOK_AGAIN_MAX_S)
        for source in self._sources:
            try:
                source.watch(pid)
            except MltcpError as error:
                self._say(f"The {source.source} calls of process {pid} aren't seen: {error}")

    def forget(self, pid: int) -> None:
        """Stop watching; a process that isn't watched is no error."""
        self._look_at.pop(pid, None)
        for source in self._sources:
            source.forget(pid)

    def poll(self) -> None:
        """Take the calls made since. Never waits."""
        for source in self._sources:
            source.poll()

    def metadata(self, flows: Iterable[tuple[int, int]]) -> list[tuple[Metadata, float]]:
        """Return each source's knowledge of a job, and the time of the last call it saw
        (CLOCK_MONOTONIC).

        flows: the pids of the job's processes here, each with the number of sockets it sends
        through. Of several processes that one speaks whose calls repeat best.
        """
        processes = list(flows)
        found = []
        for source in self._sources:
            each = [
                (known, source.last_s(pid))
                for pid, sockets in processes
                if (known := source.metadata(pid, sockets))
            ]
            if each:
                found.append(max(each, key=lambda known: known[0].confidence))
        return found

    def close(self) -> None:
        """Take all probes off; closing twice is fine."""
        for source in self._sources:
            source.close()
        self._sources.clear()
