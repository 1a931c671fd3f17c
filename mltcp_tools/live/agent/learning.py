# SPDX-License-Identifier: BSD-2-Clause
"""The iterations of followed jobs: heard from all sources, told to the kernel, shown."""

from __future__ import annotations

import dataclasses
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from mltcp_tools.base.errors import MltcpError, reason
from mltcp_tools.base.units import format_bytes, format_seconds
from mltcp_tools.kernel.backends.base import Backend, Flow, IterationEvent, IterationStream, Job
from mltcp_tools.live.agent.followed import Followed
from mltcp_tools.live.agent.metrics import Metrics
from mltcp_tools.live.agent.notices import Notices
from mltcp_tools.live.agent.watchlist import Watched
from mltcp_tools.live.attach.jobs import change_parameters
from mltcp_tools.live.observe.follower_state import FollowerState
from mltcp_tools.live.observe.iterations import Whole
from mltcp_tools.live.observe.relay import open_iterations
from mltcp_tools.live.observe.view import Gain, JobView, Views, summary
from mltcp_tools.live.sources.call_sources import CallSources
from mltcp_tools.live.sources.learned import learned_metadata
from mltcp_tools.live.sources.metadata import Metadata

_ENDED_S = 120.0
"""For how long jobs that have ended are shown: who asks then, as Slurm's epilog, may be slow."""
_ENDED = 200


class Learning:
    """The sources of all followed jobs but their hooks. A context manager; nothing here waits.

    jobs: those followed, by name, as they come and go.
    """

    def __init__(self, jobs: Mapping[str, Followed], backend: Backend, notices: Notices) -> None:
        self._jobs = jobs
        self._backend = backend
        self._notices = notices
        self._views = Views()
        self._whole = Whole()
        self.heeds: Callable[[Sequence[Job], Sequence[Flow]], None] | None = None
        """Others that want to know of the jobs and flows that there are, whenever they are read."""
        self.metrics: Metrics | None = None
        self.gains: Mapping[str, Gain] = {}
        """The standing proof's findings on jobs, by name."""
        self._ended: deque[tuple[float, JobView]] = deque(maxlen=_ENDED)
        self._stack = ExitStack()

    def __enter__(self) -> Learning:
        with ExitStack() as stack:
            self._follower_state = stack.enter_context(FollowerState())
            self._reader = stack.enter_context(Reader(self._backend, self._notices))
            self._calls = stack.enter_context(CallSources(self._notices.warn))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def forget(self, pid: int) -> None:
        """The process is watched no more."""
        self._calls.forget(pid)

    def end(self, job: Followed, now_s: float) -> str:
        """The job has ended; how it went, in a few words."""
        view = self._known(self._views.of(job.job, 0, None), job, now_s)
        self._views.forget(job.job.id)
        self._whole.forget(job.job.id)
        self._ended.append((now_s, view))
        return summary(view)

    def _known(self, view: JobView, job: Followed, now_s: float) -> JobView:
        """Return the view with all that is known of a followed job beside its iterations."""
        return dataclasses.replace(
            view,
            metadata=job.best(now_s),
            gain=self.gains.get(job.job.name),
            uid=job.owner,
        )

    def read(self, now_s: float) -> None:
        """Take what came of calls and iterations."""
        self._calls.poll()
        jobs = [each.job for each in self._jobs.values()]
        ended = self._views.add(self._whole.of(self._reader.read(now_s), jobs))
        if self.metrics is not None:
            self.metrics.iterated(ended, {job.id: job.name for job in jobs})
            self.metrics.lost(self._reader.take_lost())

    def tell(self, processes: Callable[[Followed], Sequence[Watched]], now_s: float) -> None:
        """Give the jobs the parameters that follow from what was heard.

        processes: of a job.
        """
        for job in self._jobs.values():
            self._ask_calls(job, processes(job), now_s)
            changed = job.learn(now_s)
            if changed is None:
                continue
            try:
                # One that isn't attached gets its parameters with its first socket.
                if change_parameters(changed, self._backend):
                    job.news(now_s)  # is said herewith
                    self._notices.say(_news(changed, job.best(now_s)))
            except (MltcpError, OSError) as error:
                self._notices.warn(f"{changed.name}: {reason(error)}")

    def _ask_calls(self, job: Followed, own: Sequence[Watched], now_s: float) -> None:
        """Tell the job what the calls of its processes say."""
        for watched in own:
            self._calls.watch(watched.process.pid, now_s)
        senders = [(watched.process.pid, watched.senders) for watched in own]
        for known, heard_s in self._calls.metadata(senders):
            job.tell(known, heard_s)

    def show(self, now_s: float) -> dict[int, int] | None:
        """Read what flows have learned, and let other commands see all that is known.

        Returns the job of each flow by its cookie; None where they can't be read, or nothing is
        loaded.
        """
        try:
            flows = self._backend.flows()
            jobs = self._backend.jobs()
        except MltcpError as error:
            self._notices.warn(str(error))
            return None
        if not self._backend.is_present():
            self._publish([], [], now_s)
            return None
        if self.heeds is not None:
            self.heeds(jobs, flows)
        followed = {each.job.id: each for each in self._jobs.values()}
        by_job: defaultdict[int, list[Flow]] = defaultdict(list)
        for flow in flows:
            by_job[flow.job_id].append(flow)
        views = []
        for job in jobs:
            own = by_job[job.id]
            view = self._views.of(job, len(own), None)
            if job.id in followed:
                each = followed[job.id]
                each.see(learned_metadata(own, view.iteration_s, view.iterations))
                if known := each.news(now_s):
                    self._notices.say(_news(job, known))
                view = self._known(view, each, now_s)
            views.append(view)
        self._publish(views, flows, now_s)
        try:
            ended = [view for at_s, view in self._ended if at_s > now_s - _ENDED_S]
            overridden = [each.overridden for each in self._jobs.values()]
            said = [sentence for until_s, sentence in overridden if now_s < until_s]
            self._follower_state.write(views, ended, said)
        except OSError as error:
            self._notices.warn(
                f"Other commands can't read what the agent has learned: {reason(error)}"
            )
        return {flow.cookie: flow.job_id for flow in flows}

    def _publish(self, views: Sequence[JobView], flows: Sequence[Flow], now_s: float) -> None:
        if self.metrics is None:
            return
        try:
            self.metrics.show(views, flows, now_s)
        except MltcpError as error:
            self._notices.warn(str(error))


def _news(job: Job, known: Metadata | None) -> str:
    """Return the sentence on what the job's flows go by, and who knows it."""
    total, gap_s, source = job.params.burst_bytes, job.params.gap_s, ""
    if known is not None:
        total = total or known.bytes_per_iteration or 0
        gap_s = gap_s or known.gap_s
        source = f"; {known.source}: period {format_seconds(known.period_s)}"
    size = f"{format_bytes(total)} per burst of a flow" if total else "bytes learned"
    return f"{job.name}: {size}, gap {format_seconds(gap_s) if gap_s else 'learned'}{source}."


_RETRY_S = 5.0


class Reader:
    """Reads the backend's iterations; a context manager.

    A stream that is taken (a testbed reads it) or breaks (MLTCP was unloaded) is opened again
    later.
    """

    def __init__(self, backend: Backend, notices: Notices) -> None:
        self._backend = backend
        self._notices = notices
        self._stream: IterationStream | None = None
        self._open = ExitStack()
        self._retry_s = 0.0
        self._dropped = 0
        self._lost = 0

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def read(self, now_s: float) -> list[IterationEvent]:
        """Return the iterations finished since the last call; never waits."""
        if self._stream is None and now_s >= self._retry_s:
            self._retry_s = now_s + _RETRY_S
            self._try_to_open()
        if self._stream is None:
            return []
        try:
            events = self._stream.poll(0)
        except MltcpError as error:
            self._notices.warn(f"Iterations are read anew: {error}")
            self._close()
            return []
        self._lost += max(0, self._stream.dropped - self._dropped)
        self._dropped = self._stream.dropped
        return events

    def take_lost(self) -> int:
        """Return the number of those lost since the last call, as they were read too late."""
        lost, self._lost = self._lost, 0
        return lost

    def _try_to_open(self) -> None:
        try:
            self._stream = self._open.enter_context(open_iterations(self._backend))
        except (MltcpError, OSError) as error:
            self._close()
            self._notices.warn(f"Iterations can't be seen: {reason(error)}")

    def _close(self) -> None:
        self._stream = None
        self._dropped = 0
        self._open.close()
