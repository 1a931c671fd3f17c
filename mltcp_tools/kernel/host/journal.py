# SPDX-License-Identifier: BSD-2-Clause
"""Entries of the system's log, with fields where that is systemd's journal (its native protocol:
systemd.io/JOURNAL_NATIVE_PROTOCOL), else by syslog(3).

Who did it is part of each: the user who logged in, whatever became of that by sudo, and the command
line. The journal adds what it knows itself (_UID, _PID, _CMDLINE and others).
"""

from __future__ import annotations

import os
import shlex
import socket
import sys
import syslog
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

JOURNAL = Path("/run/systemd/journal/socket")
IDENTIFIER = "mltcp"
_UNSET = 2**32 - 1
_LONGEST = 500
_PATIENCE_S = 1.0
_NOTICE = "5"


def login_uid() -> int:
    """The uid of who logged in, as the kernel's audit has it, else as sudo says, else our own."""
    with suppress(OSError, ValueError):
        found = int(Path("/proc/self/loginuid").read_text())
        if found != _UNSET:
            return found
    given = os.environ.get("SUDO_UID", "")
    return int(given) if given.isdecimal() else os.getuid()


@cache
def _by() -> dict[str, str]:
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    return {"BY_UID": str(login_uid()), "BY_COMMAND": command[:_LONGEST]}


def log(entries: Iterable[tuple[str, Mapping[str, str]]], journal: Path = JOURNAL) -> None:
    """Log these sentences with their fields, an entry each.

    A log that doesn't take them, or takes too long, is no reason to fail: the rest is left out.
    """
    by = _by()
    suffix = f" (uid {by['BY_UID']}: {by['BY_COMMAND']})"
    if not journal.exists():
        syslog.openlog(IDENTIFIER, facility=syslog.LOG_DAEMON)
        for sentence, _ in entries:
            syslog.syslog(syslog.LOG_NOTICE, _line(sentence + suffix))
        return
    common = _fields({"PRIORITY": _NOTICE, "SYSLOG_IDENTIFIER": IDENTIFIER} | by)
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
        to.settimeout(_PATIENCE_S)
        to.connect(str(journal))
        for sentence, fields in entries:
            own = _fields({"MESSAGE": sentence + suffix, **fields})
            to.send((own + common).encode())


def _fields(values: Mapping[str, str]) -> str:
    return "".join(f"{name}={_line(value)}\n" for name, value in values.items())


def _line(text: str) -> str:
    """Text that others chose, unable to look like a field or a line of its own."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "?" for char in text)
