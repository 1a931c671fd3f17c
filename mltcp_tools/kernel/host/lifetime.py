# SPDX-License-Identifier: BSD-2-Clause
"""Processes that end with the one that started them."""

from __future__ import annotations

import ctypes
import os
import signal

from mltcp_tools.base.errors import MltcpError

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies, however that happens."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0):
        code = ctypes.get_errno()
        raise MltcpError(f"prctl(PR_SET_PDEATHSIG) failed ({os.strerror(code)}).")
