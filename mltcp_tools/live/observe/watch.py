# SPDX-License-Identifier: BSD-2-Clause
"""The views of all jobs on this host, from followers that run, or from one's own watching."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from mltcp_tools.base.errors import BusyError
from mltcp_tools.kernel.backends.base import Backend, Flow, IterationStream, Job
from mltcp_tools.kernel.host.leases import leased
from mltcp_tools.live.observe.follower_state import read_follower_states
from mltcp_tools.live.observe.iterations import JobIteration, Whole
from mltcp_tools.live.observe.relay import open_iterations
from mltcp_tools.live.observe.untagged import Untagged
from mltcp_tools.live.observe.view import JobView, Views
from mltcp_tools.live.sources.learned import learned_metadata

_ENDED = 10_000


class Watch:
    """Looks at the jobs again and again. A context manager.

    Flows without a job that are sure of their iterations are jobs of their own, by process and
    peer. A follower knows a job from its beginning on; of jobs that nobody follows, only what
    happens from entering on is seen. blind: why that is not seen either, or empty.
    """

    def __init__(self, backend: Backend) -> None:
        self.blind = ""
        self._backend = backend
        self._views = Views()
        self._whole = Whole()
        self._untagged = Untagged()
        self._ended: deque[JobIteration] = deque(maxlen=_ENDED)
        self._stream: IterationStream | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Watch:
        self._stack.enter_context(leased("mltcp watch", self._backend.name))
        try:
            self._stream = self._stack.enter_context(open_iterations(self._backend))
        except BusyError as error:
            self.blind = str(error)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def wait(self, seconds: float) -> None:
        """Let time pass, and note what happens in it."""
        jobs = self._backend.jobs()
        self._untagged.update(self._backend.flows(), jobs)
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self._stream is None:
                time.sleep(left)
            else:
                events = self._untagged.events(self._stream.poll(left))
                self._ended += self._views.add(self._whole.of(events, jobs))

    def take_ended(self) -> list[JobIteration]:
        """The iterations that ended since the last call, the latest of very many."""
        ended = list(self._ended)
        self._ended.clear()
        return ended

    def look(self) -> list[JobView]:
        """The jobs as they stand, by id."""
        follower_states = read_follower_states()
        jobs = self._backend.jobs()
        flows = self._backend.flows()
        self._untagged.update(flows, jobs)
        flows = self._untagged.flows(flows)
        views = [follower_states.get(job.id) or self._own(job, flows) for job in jobs]
        found = [self._own(job, flows) for job in self._untagged.jobs]
        return [_with_queue(each, flows) for each in (*views, *(v for v in found if v.flows))]

    def _own(self, job: Job, flows: Sequence[Flow]) -> JobView:
        """A job that nobody follows: nothing is known but what its flows have learned."""
        own = [flow for flow in flows if flow.job_id == job.id]
        view = self._views.of(job, len(own), None)
        return replace(view, metadata=learned_metadata(own, view.iteration_s, view.iterations))


def _with_queue(view: JobView, flows: Sequence[Flow]) -> JobView:
    """With what the job's flows say of the queue now, which followers don't show."""
    own = [flow for flow in flows if flow.job_id == view.id]
    if not own:
        return view
    return replace(
        view,
        queue_us=max(flow.queue_us for flow in own),
        full_queue_us=max(flow.full_queue_us for flow in own),
    )
