# SPDX-License-Identifier: BSD-2-Clause
"""Knowledge of a job's iterations, its sources, and which of them to believe.

A source is what watches a job: the hooks in its training loop, NCCL's calls, Gloo's; or the job's
flows, each of which learns by itself. Each says what it knows as Metadata.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

SOURCES = ("hooks", "nccl", "gloo", "learned")
"""The sources there are, the best first."""

CONFIDENT = 0.5
"""A source that is less confident than this is not believed."""

_SILENT_PERIODS = 10
_SILENT_S = 5.0


@dataclass(frozen=True)
class Metadata:
    """One source's knowledge of a job's iterations.

    source: one of SOURCES. period_s: seconds from one iteration's start to the next's.
    bytes_per_iteration: bytes one flow sends per iteration, None where the source can't tell.
    gap_s: seconds with nothing unacknowledged that end an iteration; 0 where the source can't tell.
    confidence: 0..1. iterations_seen: how many iterations it was derived from.
    """

    source: str
    period_s: float
    bytes_per_iteration: int | None
    gap_s: float
    confidence: float
    iterations_seen: int


class Chooser:
    """The sources of one job that tell its flows, of which the best that still speaks is believed.

    A source is silent when it has said nothing for ten of its periods, and at least five seconds.
    """

    def __init__(self) -> None:
        self._told: dict[str, tuple[Metadata, float]] = {}

    def tell(self, metadata: Metadata, heard_s: float) -> None:
        """A source says something; heard_s: when it last saw the job, on the caller's clock."""
        self._told[metadata.source] = (metadata, heard_s)

    def best(self, now_s: float) -> Metadata | None:
        """Return the best source's knowledge; values that it can't tell come from those below it.

        A period is its source's alone: bytes and gap of another one serve only where that one
        found nearly the same period. None while no believable source has said anything.
        """
        speaking = [
            metadata
            for metadata, heard_s in (self._told[s] for s in SOURCES if s in self._told)
            if metadata.confidence >= CONFIDENT
            and now_s - heard_s <= max(_SILENT_S, _SILENT_PERIODS * metadata.period_s)
        ]
        if not speaking:
            return None
        best = speaking[0]
        for other in speaking[1:]:
            if not 0.8 <= other.period_s / best.period_s <= 1.25:
                continue
            if best.bytes_per_iteration is None:
                best = replace(best, bytes_per_iteration=other.bytes_per_iteration)
            if not best.gap_s:
                best = replace(best, gap_s=other.gap_s)
        return best
