# SPDX-License-Identifier: BSD-2-Clause
"""Runs a command whose system calls of one kind the kernel refuses, as a container's profile does.

    python refused_calls.py NUMBER ERRNO COMMAND…

All capabilities stay. The filter is a seccomp one (seccomp(2)), and goes with the command.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

BPF_CALL = {"x86_64": 321, "aarch64": 280}[platform.machine()]
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06  # classic BPF, linux/bpf_common.h
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000  # linux/seccomp.h


def refusing(*command: str | Path, call: int = BPF_CALL, code: int = errno.EPERM) -> Sequence[str]:
    """Return the command line that runs `command` without that system call."""
    return [sys.executable, __file__, str(call), str(code), *map(str, command)]


def refuse(call: int, code: int) -> None:
    """Have the kernel refuse the call to this process, and those it starts, from now on."""
    steps = [
        (_LOAD, 0, 0, 0),  # the number of the call, first in struct seccomp_data
        (_JUMP_IF_EQUAL, 0, 1, call),
        (_RETURN, 0, 0, _ERRNO | code),
        (_RETURN, 0, 0, _ALLOW),
    ]
    program = b"".join(struct.pack("=HBBI", *step) for step in steps)
    held = ctypes.create_string_buffer(program)
    sock_fprog = struct.pack("@HP", len(steps), ctypes.addressof(held))
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_SECCOMP, _MODE_FILTER, sock_fprog, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_SECCOMP)")


if __name__ == "__main__":
    refuse(int(sys.argv[1]), int(sys.argv[2]))
    os.execvp(sys.argv[3], sys.argv[3:])
