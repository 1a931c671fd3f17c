# SPDX-License-Identifier: BSD-2-Clause
"""Emulator processes for tests: started, watched for what they say, and ended."""

from __future__ import annotations

import re
import select
import socket
import subprocess
import time
from collections.abc import Sequence

from mltcp_tools.kernel.host.programs import module_command

EMULATE = module_command("mltcp_tools.cli.main", "lab", "emulate")
PROGRAM = module_command("mltcp_tools.lab.emulator")
"""The program that a parent starts and drives over a descriptor."""
PATIENCE_S = 30.0


class Emulator:
    """A running `mltcp lab emulate …`, killed at the end of the `with` block if it still runs.

    `prefix` goes before the command, such as `ip netns exec NAME`. `control`: the end of a socket
    pair by which the test drives it, as a parent does.
    """

    def __init__(
        self, *arguments: str, prefix: Sequence[str] = (), control: socket.socket | None = None
    ) -> None:
        command, pass_fds = EMULATE, []
        if control is not None:
            pass_fds = [control.fileno()]
            command, arguments = PROGRAM, (*arguments, f"--control-fd={control.fileno()}")
        self.process = subprocess.Popen(
            [*prefix, *command, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=pass_fds,
            bufsize=0,
        )
        self.said = ""

    def __enter__(self) -> Emulator:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Wait until stderr holds `pattern`."""
        assert self.process.stderr is not None
        deadline = time.monotonic() + PATIENCE_S
        while (match := re.search(pattern, self.said)) is None:
            left = deadline - time.monotonic()
            poll = select.poll()  # select() knows no descriptor above 1,023
            poll.register(self.process.stderr, select.POLLIN)
            ready = poll.poll(1000 * max(0.0, left))
            data = self.process.stderr.read(4096) if ready else b""
            assert data, f"waited for {pattern!r}, got: {self.said}"
            self.said += data.decode()
        return match

    def port(self) -> int:
        """The port of a server, once it listens."""
        return int(self.wait_for(r"listening on \S+ port (\d+)\n")[1])

    def end(self) -> tuple[int, str, str]:
        """Wait for the end: exit code, stdout, stderr."""
        out, err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, out.decode(), self.said + err.decode()
