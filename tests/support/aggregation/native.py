# SPDX-License-Identifier: BSD-2-Clause
"""Test programs in C that have the collectives' own workers in them."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from mltcp_tools.collectives.library import FOLDER, PACKET, WORKER
from mltcp_tools.kernel.native.extension import declarations, extension


@functools.cache
def with_workers(name: str) -> tuple[Any, Any]:
    """NAME.c of this folder, compiled: (lib, ffi) of what NAME.h and worker.h declare."""
    here = Path(__file__).parent
    declared = PACKET + WORKER + declarations(here / f"{name}.h")
    return extension(name, declared, f'#include "{name}.h"\n', FOLDER, here)
