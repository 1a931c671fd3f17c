"""Test programs in C that have the collectives' own workers in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mltcp_tools.collectives.library import FOLDER, PACKET, WORKER
from mltcp_tools.native.extension import extension


def with_workers(name: str, declarations: str) -> tuple[Any, Any]:
    """NAME.c of this folder, compiled: (lib, ffi). declarations: what NAME.h has besides theirs."""
    return extension(
        name,
        PACKET + WORKER + declarations,
        f'#include "{name}.h"\n',
        FOLDER,
        Path(__file__).parent,
    )
