# SPDX-License-Identifier: BSD-2-Clause
"""The progress of planning and profiling, as bars on a terminal."""

from __future__ import annotations

from mltcp_tools.lab.runs.progress import Bar


class SolverBar(Bar):
    """Seconds of the solver, with the best score and the bound so far."""

    def __init__(self, jobs: int) -> None:
        super().__init__(
            desc=f"{jobs} jobs",
            bar_format="{desc}: {n:.1f} s{postfix}; Ctrl-C takes the best so far",
        )

    def report(self, elapsed_s: float, best: float, bound: float) -> None:
        """The solver has worked for `elapsed_s` seconds."""
        self._bar.set_postfix_str(f"score {best:.4f} of {bound:.4f} at most", refresh=False)
        self._bar.update(elapsed_s - self._bar.n)


class PartsBar(Bar):
    """Links planned, of a placement."""

    def __init__(self) -> None:
        super().__init__(unit="link")

    def done(self, links: int, total: int) -> None:
        """`links` more of a placement's `total` are planned."""
        if self._bar.n >= (self._bar.total or 0):
            self._bar.reset(total)  # the next placement
        self._bar.update(links)


class FileBar(Bar):
    """Bytes of a file that are read."""

    def __init__(self, name: str) -> None:
        super().__init__(desc=name, unit="B", unit_scale=True, unit_divisor=1000)

    def at(self, position: int, size: int) -> None:
        """`position` of `size` bytes are read."""
        self._bar.total = size
        self._bar.update(position - self._bar.n)
