# SPDX-License-Identifier: BSD-2-Clause
"""Probes on functions of libraries in running processes, through the distribution's bcc."""

from __future__ import annotations

import atexit
import itertools
import os
import re
from collections.abc import Mapping

from mltcp_tools.base.errors import HostError, MltcpError
from mltcp_tools.kernel.host.facts import effective_capabilities
from mltcp_tools.kernel.native.tracing import compile_program
from mltcp_tools.live.sources.elf import exported_functions
from mltcp_tools.live.sources.libraries import Library, mapped_libraries

_File = tuple[str, int]
"""Device and inode."""


def require_capabilities() -> None:
    """Raise HostError unless this process may probe others."""
    has = effective_capabilities()
    missing = {"CAP_BPF", "CAP_PERFMON"} - has
    if missing and "CAP_SYS_ADMIN" not in has:
        raise HostError(
            f"This process lacks {' and '.join(sorted(missing))}, which probes in other processes"
            " need; run it as root (sudo)."
        )


class Probes:
    """A program's probes on libraries, in each process by itself.

    symbols: which function of the program runs when which symbol is called. Those that a library
    lacks are left out. Returns are not probed, as that is not without danger for the process: C++
    exceptions can't pass, and on some kernels a seccomp filter sees a system call.
    """

    def __init__(self, program: str, library: re.Pattern[str], symbols: Mapping[str, str]) -> None:
        self._library = library
        self._symbols = dict(symbols)
        self._events: dict[int, dict[_File, list[bytes]]] = {}
        require_capabilities()
        self.bpf = compile_program(program)
        # bcc would do it when this process ends, with complaints; the kernel does it all the same.
        atexit.unregister(self.bpf.cleanup)

    @property
    def pids(self) -> frozenset[int]:
        """The processes with probes."""
        return frozenset(self._events)

    def attach(self, pid: int) -> set[str]:
        """Probe a process; return the program's functions that run there now.

        None do where it has no such library mapped.

        In a process that is probed already only libraries that it has loaded since are. Raises
        HostError where this user may not, MltcpError when the process is gone; then no probe is
        left in it.
        """
        found: set[str] = set()
        try:
            for library in mapped_libraries(pid, self._library):
                # Each time anew: an inode may be another file's by now, and a probe within an
                # instruction would crash the process.
                addresses = exported_functions(library.file, self._symbols)
                found |= {self._symbols[symbol] for symbol in addresses}
                file = library.device, library.inode
                if addresses and file not in self._events.get(pid, {}):
                    self._attach(pid, library, addresses)
        except MltcpError:
            self.detach(pid)
            raise
        return found

    def _attach(self, pid: int, library: Library, addresses: Mapping[str, int]) -> None:
        file = library.device, library.inode
        events = self._events.setdefault(pid, {}).setdefault(file, [])
        for symbol, address in addresses.items():
            before = set(self.bpf.uprobe_fds)
            try:
                self.bpf.attach_uprobe(
                    name=os.fsencode(library.file),
                    addr=address,
                    fn_name=self._symbols[symbol].encode(),
                    pid=pid,
                )
            except Exception as error:  # bcc raises nothing more specific
                raise HostError(
                    f"{symbol} in {library.path} of process {pid} can't be probed ({error}); the"
                    " kernel needs CONFIG_UPROBE_EVENTS, and this process CAP_SYS_ADMIN."
                ) from error
            events += set(self.bpf.uprobe_fds) - before

    def detach(self, pid: int) -> None:
        """Take the process's probes off; none there is no error."""
        from bcc import libbcc

        for event in itertools.chain(*self._events.pop(pid, {}).values()):
            # Not bcc's detach_uprobe(): that asks tracefs, which knows nothing of such probes and
            # may not be mounted. They end with their descriptor.
            libbcc.lib.bpf_close_perf_event_fd(self.bpf.uprobe_fds[event])
            self.bpf._del_uprobe_fd(event)

    def close(self) -> None:
        """Take all probes off and unload the program."""
        for pid in self.pids:
            self.detach(pid)
        self.bpf.cleanup()
