# SPDX-License-Identifier: BSD-2-Clause
"""The progress of a run on stderr: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from typing import Self, TextIO

from tqdm import tqdm


class ProgressBar:
    """Counts iterations over all variants of a run; a context manager.

    The bar is drawn on a terminal only. stream: where, the standard error output unless told.
    """

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._bar = tqdm(
            file=self._stream,
            disable=not self._stream.isatty(),
            dynamic_ncols=True,
            leave=False,
            total=total,
            unit="it",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def begin(self, title: str) -> None:
        """A variant begins."""
        self._bar.set_description(title)

    def iteration(self, job: str, count: int = 1) -> None:
        """So many iterations of `job` have ended."""
        self._bar.update(count)

    def say(self, line: str) -> None:
        """A line that stays."""
        with self._bar.external_write_mode(self._stream):
            print(line, file=self._stream, flush=True)
