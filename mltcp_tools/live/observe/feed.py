# SPDX-License-Identifier: BSD-2-Clause
"""The documents of a host's jobs, as the page and programs read them."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from mltcp_tools.kernel.backends.base import Backend
from mltcp_tools.live.observe.iterations import JobIteration
from mltcp_tools.live.observe.view import JobView
from mltcp_tools.live.observe.watch import Watch

Look = dict[str, Any]
"""`blind`: why no iterations are seen, or empty; `jobs`: a document of each."""


def job_document(view: JobView) -> dict[str, Any]:
    """A job as programs read it: its view with the two figures derived from it."""
    return dataclasses.asdict(view) | {"change": view.change, "ratio": view.ratio}


def look_document(
    views: Sequence[JobView], ended: Iterable[JobIteration], blind: str, ahead_s: float
) -> Look:
    """A look; ended: the iterations since the one before. ahead_s: of the clock shown.

    Each job has `ended`, a list of start, begin and end of iterations (JobIteration).
    """
    by_job: dict[int, list[list[float]]] = {}
    for each in ended:
        times = (each.start_s, each.begin_s, each.end_s)
        by_job.setdefault(each.job_id, []).append([round(ahead_s + time, 6) for time in times])
    jobs = [job_document(view) | {"ended": by_job.get(view.id, [])} for view in views]
    return {"blind": blind, "jobs": jobs}


def looks(backend: Backend, every_s: float) -> Iterator[Look]:
    """A look every so many seconds, by the clock of the day, as other hosts are shown beside."""
    with Watch(backend) as watch:
        while True:
            watch.wait(every_s)
            ahead_s = time.time() - time.monotonic()
            yield look_document(watch.look(), watch.take_ended(), watch.blind, ahead_s)
