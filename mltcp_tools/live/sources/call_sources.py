# SPDX-License-Identifier: BSD-2-Clause
"""All sources of calls, for the commands that follow processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mltcp_tools.base.errors import HostError, MltcpError
from mltcp_tools.kernel.host.closing import Closing
from mltcp_tools.live.sources.call_source import CallSource
from mltcp_tools.live.sources.gloo import GlooSource
from mltcp_tools.live.sources.libraries import mapped_libraries
from mltcp_tools.live.sources.metadata import Metadata
from mltcp_tools.live.sources.nccl import NcclSource
from mltcp_tools.live.sources.probes import require_capabilities

_KINDS: tuple[type[NcclSource] | type[GlooSource], ...] = (NcclSource, GlooSource)

_LOOK_AGAIN_S = 1.0
_LOOK_AGAIN_MAX_S = 60.0
"""A process that lacks a library may load it later, though less and less likely."""


class CallSources(Closing):
    """Iterations from processes' calls, whatever libraries they use. say: gets a
    sentence for each source that isn't available.

    A source is opened when the first process has its library, as that takes bcc: 100 MB, and half a
    second in which nothing is followed. One that can't be opened here is left out.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._sources: list[CallSource] = []
        self._unopened: list[type[NcclSource] | type[GlooSource]] = []
        self._look_at: dict[int, tuple[float, float]] = {}
        """By pid, when to look for libraries again, and after how long the next time."""
        for kind in _KINDS:
            try:
                require_capabilities()
                self._unopened.append(kind)
            except HostError as error:
                self._refuse(kind, error)

    def watch(self, pid: int, now_s: float) -> None:
        """See the process's calls from now on, or as soon as it has a library; call it often."""
        due, wait = self._look_at.get(pid, (now_s, _LOOK_AGAIN_S))
        if now_s < due:
            return
        self._look_at[pid] = now_s + wait, min(2 * wait, _LOOK_AGAIN_MAX_S)
        self._open_for(pid)
        for source in self._sources:
            try:
                source.watch(pid)
            except MltcpError as error:
                self._say(f"The {source.source} calls of process {pid} aren't seen: {error}")

    def _open_for(self, pid: int) -> None:
        """Open the sources whose libraries the process has."""
        for kind in [*self._unopened]:
            try:
                if not mapped_libraries(pid, kind.library):
                    continue
                self._unopened.remove(kind)
                self._sources.append(kind())
            except MltcpError as error:
                if kind not in self._unopened:  # else it is the process that can't be looked into
                    self._refuse(kind, error)

    def _refuse(self, kind: type[NcclSource] | type[GlooSource], error: MltcpError) -> None:
        self._say(f"Iterations can't be detected in the calls of {kind.source}: {error}")

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
