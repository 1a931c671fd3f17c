# SPDX-License-Identifier: BSD-2-Clause
"""Descriptors of other processes, and the kernel's numbers of sockets."""

from __future__ import annotations

import ctypes
import os
import socket
import struct

_SYS_PIDFD_GETFD = 438
"""asm-generic/unistd.h: the same number on every architecture."""

_SO_COOKIE = 57
"""asm-generic/socket.h; the socket module has no name for it."""

_libc = ctypes.CDLL(None, use_errno=True)


def pidfd_getfd(pidfd: int, fd: int) -> int:
    """Our own descriptor of what the process has as `fd` (pidfd_getfd(2)). Raises OSError."""
    copy: int = _libc.syscall(_SYS_PIDFD_GETFD, pidfd, fd, 0)
    if copy < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return copy


def cookie_of(sock: socket.socket) -> int:
    """The kernel's number of a socket, unique on the host; the kernel gives it one when asked."""
    number: int = struct.unpack("=Q", sock.getsockopt(socket.SOL_SOCKET, _SO_COOKIE, 8))[0]
    return number
