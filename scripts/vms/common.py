# SPDX-License-Identifier: BSD-2-Clause
"""The common part of scripts/vm: places, errors, running a tool."""

from __future__ import annotations

import contextlib
import fcntl
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
CACHE = CHECKOUT / ".cache" / "vm"

FAILED = 1
USAGE = 2
LACKING = 3
"""Exit statuses of the mltcp command, which scripts/vm shares: 3 = this machine lacks something."""


class VmError(Exception):
    """One sentence for the user, and the exit status that goes with it."""

    def __init__(self, message: str, status: int = FAILED) -> None:
        super().__init__(message)
        self.status = status


def say(message: str) -> None:
    print(f"scripts/vm: {message}", file=sys.stderr, flush=True)


def call(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    hint: str = "",
) -> str:
    """Standard output of a tool; VmError with the end of what it said when it fails."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
    except FileNotFoundError:
        raise missing(words[0]) from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()
        raise VmError(
            f"{shlex.join(words[:3])} failed ({done.returncode}): {' '.join(said[-5:])}{hint}"
        )
    return done.stdout


def missing(tool: str) -> VmError:
    return VmError(f"{tool} is not installed; run scripts/setup --dev.", LACKING)


@contextlib.contextmanager
def lock(name: str, *, shared: bool = False) -> Iterator[None]:
    """Hold CACHE/NAME.lock: fetching and building exclude each other, VMs exclude fetching."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield
