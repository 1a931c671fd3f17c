# SPDX-License-Identifier: BSD-2-Clause
"""Programs, on other machines mostly, that speak JSON objects, one a line."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from mltcp_tools.base.errors import HostError
from mltcp_tools.kernel.host.programs import wait_or_kill

LONGEST = 1 << 26
"""The bytes that a message may have; the records of a long run are the longest ones."""


class Lines:
    """JSON objects, one a line, from a descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._left = b""

    def read(self) -> list[dict[str, Any]] | None:
        """Return the messages that are complete after reading once; None at the end.

        Raises ValueError with the beginning of what is none, or is longer than LONGEST.
        """
        data = os.read(self._descriptor, 1 << 20)
        if not data:
            return None
        *lines, self._left = (self._left + data).split(b"\n")
        if len(self._left) > LONGEST:
            raise ValueError(f"{self._left[:100]!r} and on, without an end")
        return [_message(line) for line in lines]


def _message(line: bytes) -> dict[str, Any]:
    try:
        return dict(json.loads(line))
    except (TypeError, ValueError):
        raise ValueError(f"{line[:100]!r}") from None


def answer(event: str, **content: Any) -> None:
    """Say something to whoever has started this process and reads its stdout."""
    sys.stdout.write(json.dumps({"event": event} | content) + "\n")
    sys.stdout.flush()


_MOST_BYTES = 1 << 16
"""The end of what a program says on stderr; the rest is forgotten."""


class PeerProgram(Lines):
    """A program that `command` starts, by ssh mostly, and what it says.

    quiet: its stderr is kept for `complaint`, not shown.
    """

    def __init__(self, command: Sequence[str], *, quiet: bool = False) -> None:
        stderr = tempfile.TemporaryFile() if quiet else None  # noqa: SIM115
        self._stderr, self._words = stderr, ""
        try:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,  # signals of the terminal are for the one that starts it
            )
        except FileNotFoundError:
            if stderr:
                stderr.close()
            raise HostError(f"The command {command[0]} is missing.") from None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._stdin, self._stdout = self.process.stdin, self.process.stdout
        super().__init__(self.fileno())

    def fileno(self) -> int:
        """Readable when the program has said something, or ended."""
        return self._stdout.fileno()

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message; a program that is gone is noticed when it is listened to."""
        with contextlib.suppress(BrokenPipeError):
            self._stdin.write(json.dumps(message).encode() + b"\n")
            self._stdin.flush()

    def end(self) -> None:
        """Tell the program to end, by closing its stdin."""
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()

    def close(self, timeout_s: float) -> int:
        """Return the exit code, once it has ended; it is killed after so long."""
        self.end()
        self._stdout.close()
        code = wait_or_kill(self.process, timeout_s)
        if self._stderr:
            self._words = self.words()
            self._stderr.close()
            self._stderr = None
        return code

    def words(self) -> str:
        """Return what a quiet program has said on stderr, after its end, too."""
        if not self._stderr:
            return self._words
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size - _MOST_BYTES))
        return self._stderr.read().decode(errors="replace").strip()

    def complaint(self) -> str:
        """Return a quiet program's last sentence, which is why it ended; "" where it has none."""
        lines = self.words().rpartition("mltcp: error: ")[2].splitlines()
        return lines[-1].strip() if lines else ""
