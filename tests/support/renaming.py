# SPDX-License-Identifier: BSD-2-Clause
"""A process that renames itself, as with setproctitle: its title replaces its arguments and, in the
kernel's view, its environment.

    python renaming.py            each line of its input is a title; answered by "renamed"
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path


def rename(title: bytes, whole: bool = True) -> None:
    """Write the title over the arguments and what follows.

    whole: also clear what is left behind it, as setproctitle does; else only what it covers.
    """
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = int(fields[45]), int(fields[48])  # arg_start and env_end
    if whole:
        ctypes.memset(begin, 0, end - begin)
    ctypes.memmove(begin, title + b"\0", min(len(title) + 1, end - begin))


def main() -> None:
    print("ready", flush=True)
    for line in sys.stdin:
        match line.split():
            case ["fork"]:
                if pid := os.fork():
                    print(pid, flush=True)
                else:
                    os.closerange(0, 3)
                    os.read(os.pipe()[0], 1)
            case ["long"]:  # two bytes into the environment, and no more
                size = len(Path("/proc/self/cmdline").read_bytes())
                rename(b"x" * (size + 1), whole=False)
                print("renamed", flush=True)
            case [title]:
                rename(title.encode())
                print("renamed", flush=True)


if __name__ == "__main__":
    main()
