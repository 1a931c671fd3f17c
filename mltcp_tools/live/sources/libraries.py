# SPDX-License-Identifier: BSD-2-Clause
"""The library files that a process has mapped.

A process in a container sees other files than this one, and a package upgrade replaces or deletes
the file that a running process still uses. So a file is opened through the process's own mapping
of it, which leads to the very file wherever it is and whatever it is called now.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from mltcp_tools.base.errors import HostError, MltcpError

_PROC = Path("/proc")
_DELETED = " (deleted)"
_LINE = re.compile(
    r"(?P<first>[0-9a-f]+)-(?P<last>[0-9a-f]+) (?P<access>[rwxsp-]{4}) [0-9a-f]+ "
    r"(?P<device>[0-9a-f]+:[0-9a-f]+) (?P<inode>[0-9]+) +(?P<path>/.*)"
)


@dataclass(frozen=True)
class Library:
    """A file with code that a process has mapped.

    path: its name as the process knows it. file: a path that opens it here while the process has
    it mapped. device, inode: as in /proc/PID/maps; equal for all processes that share the file.
    """

    path: str
    file: Path
    device: str
    inode: int


def mapped_libraries(pid: int, name: re.Pattern[str], proc: Path = _PROC) -> list[Library]:
    """The files whose names (without folder) begin with a match of the pattern.

    Raises HostError where this user may not look into the process, MltcpError when it is gone.
    """
    folder = proc / str(pid)
    try:
        lines = (folder / "maps").read_text(errors="replace").splitlines()
    except PermissionError:
        raise HostError(
            f"The memory map of process {pid} may not be read; CAP_SYS_PTRACE is missing, run as"
            " root."
        ) from None
    except OSError:
        raise MltcpError(f"There is no process {pid} any more.") from None
    found: dict[tuple[str, int], Library] = {}
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is None or "x" not in match["access"]:
            continue
        path = match["path"].removesuffix(_DELETED)
        key = match["device"], int(match["inode"])
        if key not in found and name.match(path.rpartition("/")[2]):
            file = _opened_by(folder, match, path)
            found[key] = Library(path, file, *key)
    return list(found.values())


def _opened_by(folder: Path, mapping: re.Match[str], path: str) -> Path:
    """Return the path by which to open the mapped file: through the mapping, else through the
    process's root folder.
    """
    first, last = int(mapping["first"], 16), int(mapping["last"], 16)
    direct = folder / "map_files" / f"{first:x}-{last:x}"
    try:
        if stat.S_ISREG(os.stat(direct).st_mode):
            return direct
    except OSError:
        pass  # takes CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE
    named = folder / "root" / path.lstrip("/")
    try:
        info = os.stat(named)
    except OSError as error:
        reason = error.strerror or str(error)
    else:
        if stat.S_ISREG(info.st_mode) and info.st_ino == int(mapping["inode"]):
            return named
        reason = "another file has that name now"
    raise HostError(
        f"{path} of process {folder.name} can't be opened ({reason}), and {direct} takes"
        " CAP_SYS_ADMIN; run as root."
    )
