"""How far a plan is, as a bar on a terminal."""

from __future__ import annotations

import sys
from types import TracebackType

from tqdm import tqdm


class SolverBar:
    """Seconds of the solver, with the best score and the bound so far. A context manager."""

    def __init__(self, description: str) -> None:
        self._bar = tqdm(
            desc=description,
            unit="s",
            file=sys.stderr,
            disable=not sys.stderr.isatty(),
            dynamic_ncols=True,
            leave=False,
            bar_format="{desc}: {n:.1f} s, {postfix}; Ctrl-C takes the best so far",
        )

    def __enter__(self) -> SolverBar:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.close()

    def report(self, elapsed_s: float, best: float, bound: float) -> None:
        """The solver has worked for `elapsed_s` seconds."""
        self._bar.set_postfix_str(f"score {best:.4f} of {bound:.4f} at most", refresh=False)
        self._bar.update(elapsed_s - self._bar.n)


class PartsBar:
    """Links planned, of a placement. A context manager."""

    def __init__(self) -> None:
        self._bar = tqdm(
            unit="link",
            file=sys.stderr,
            disable=not sys.stderr.isatty(),
            dynamic_ncols=True,
            leave=False,
        )

    def __enter__(self) -> PartsBar:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.close()

    def done(self, links: int, total: int) -> None:
        """`links` more of a placement's `total` are planned."""
        if self._bar.n >= (self._bar.total or 0):
            self._bar.reset(total)  # the next placement
        self._bar.update(links)
