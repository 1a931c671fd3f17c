"""What is known of a job's iterations, from whom, and which source to believe.

A source is a part of the tool that watches a job: the hooks in its training loop, NCCL's calls,
Gloo's, or the bursts of its flows. Each says what it knows as Metadata.
"""

from __future__ import annotations

from dataclasses import dataclass

SOURCES = ("hooks", "nccl", "gloo", "flow")
"""The sources there are, the best first."""


@dataclass(frozen=True)
class Metadata:
    """What one source knows of a job's iterations.

    source: one of SOURCES. period_s: seconds from one iteration's start to the next's.
    bytes_per_iteration: bytes one flow sends per iteration, None where the source can't tell.
    gap_s: seconds without an ACK that end an iteration. confidence: 0..1. iterations_seen: how
    many iterations it was derived from.
    """

    source: str
    period_s: float
    bytes_per_iteration: int | None
    gap_s: float
    confidence: float
    iterations_seen: int
