# SPDX-License-Identifier: BSD-2-Clause
"""The progress of reading a capture, as a bar on a terminal."""

from __future__ import annotations

from mltcp_tools.lab.runs.progress import Bar


class FileBar(Bar):
    """Bytes of a file that are read."""

    def __init__(self, name: str) -> None:
        super().__init__(desc=name, unit="B", unit_scale=True, unit_divisor=1000)

    def at(self, position: int, size: int) -> None:
        """`position` of `size` bytes are read."""
        self._bar.total = size
        self._bar.update(position - self._bar.n)
