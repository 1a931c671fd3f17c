"""CPU shares by control groups of either version: a group gets so many cores at most."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from mltcp_tools.errors import BusyError, HostError

_ROOT = Path("/sys/fs/cgroup")
_PERIOD_US = 50_000
PREFIX = "mltcp-live-"


class CpuGroup:
    """A group named after PREFIX; made when it is first used, gone after `remove`."""

    def __init__(self, name: str, *, there: bool = False) -> None:
        """there: it may be there already; else that means that somebody uses it."""
        self._v2 = (_ROOT / "cgroup.controllers").is_file()
        self._path = (_ROOT if self._v2 else _ROOT / "cpu") / f"{PREFIX}{name}"
        try:
            if self._v2:
                (_ROOT / "cgroup.subtree_control").write_text("+cpu")
            self._path.mkdir(exist_ok=there)
        except FileExistsError:
            raise BusyError(
                f"{self._path} is there: another live run goes on, or was killed; end it with"
                " `mltcp cluster live --stop -o FOLDER`."
            ) from None
        except OSError as error:
            raise HostError(
                f"{self._path} can't be made: {error.strerror}; run as root, with the cpu"
                " controller of control groups."
            ) from None

    def limit(self, cores: float) -> float:
        """Let the group have so many cores, and return what the kernel then says it has."""
        quota = max(1000, round(cores * _PERIOD_US))
        if self._v2:
            (self._path / "cpu.max").write_text(f"{quota} {_PERIOD_US}")
            quota, period = map(int, (self._path / "cpu.max").read_text().split())
        else:
            (self._path / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (self._path / "cpu.cfs_quota_us").write_text(str(quota))
            quota = int((self._path / "cpu.cfs_quota_us").read_text())
            period = int((self._path / "cpu.cfs_period_us").read_text())
        return quota / period

    def add(self, pid: int) -> None:
        """Take a process in; its children follow."""
        (self._path / "cgroup.procs").write_text(str(pid))

    def kill(self) -> None:
        """Kill all processes in it, and wait until they are gone."""
        for _ in range(300):
            pids = (self._path / "cgroup.procs").read_text().split()
            if not pids:
                return
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            time.sleep(0.1)

    def remove(self) -> None:
        """Move what is left in it back to the root, and remove it."""
        root = self._path.parent / "cgroup.procs"
        with contextlib.suppress(OSError):
            for pid in (self._path / "cgroup.procs").read_text().split():
                with contextlib.suppress(OSError):
                    root.write_text(pid)
            self._path.rmdir()
