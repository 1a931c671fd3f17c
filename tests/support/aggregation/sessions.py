# SPDX-License-Identifier: BSD-2-Clause
"""Ranks of a job at an aggregator, as threads in the namespaces of a star."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from mltcp_tools.collectives.session import PORT, Endpoint, Session
from mltcp_tools.lab.collectives.star import Star
from mltcp_tools.lab.testbed.namespaces import inside


def run_ranks(
    star: Star,
    work: Callable[[Session, int], Any],
    *,
    job: str = "job",
    workers: Sequence[int] | None = None,
    token: str = "",
    **options: Any,
) -> list[Any]:
    """Return what `work` returns or raises at each rank. workers: of the star, the job's."""
    chosen = workers or range(len(star.workers))
    results: list[Any] = [None] * len(chosen)

    def be(rank: int, worker: int) -> None:
        try:
            with inside(star.workers[worker]):
                endpoint = Endpoint(star.gateway(worker), PORT, token)
                session = Session(endpoint, job, rank, len(chosen), timeout_s=20, **options)
            try:
                results[rank] = work(session, rank)
            finally:
                session.leave()
        except Exception as error:
            results[rank] = error

    threads = [
        threading.Thread(target=be, args=(rank, worker)) for rank, worker in enumerate(chosen)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
