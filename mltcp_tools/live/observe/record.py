# SPDX-License-Identifier: BSD-2-Clause
"""Iterations of attached jobs as a run folder, for `mltcp report` to read like a testbed's.

There is one variant, called after the congestion control, and one repetition. An iteration begins
where the one before had sent all: the job computes, then sends, as in the testbed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import yaml

from mltcp_tools.base.errors import MltcpError, UsageError
from mltcp_tools.base.files import replace_file
from mltcp_tools.base.run_tables import append_csv, check_folder, write_csv
from mltcp_tools.base.units import exact_bytes, exact_seconds
from mltcp_tools.kernel.backends.base import Backend, Flow, IterationEvent, Job
from mltcp_tools.kernel.congestion_controls import base_of
from mltcp_tools.kernel.environment import RunEnvironment
from mltcp_tools.kernel.host.leases import leased
from mltcp_tools.live.attach.state import StateFiles
from mltcp_tools.live.observe.conditions import Conditions
from mltcp_tools.live.observe.iterations import JobIteration, Whole
from mltcp_tools.live.observe.relay import open_iterations
from mltcp_tools.live.observe.untagged import Untagged
from mltcp_tools.live.observe.view import Views

_POLL_S = 0.2
DESCRIBE_S = 10.0
_REPETITION = 1


@dataclass
class _Totals:
    """Of a job's iterations so far: how many, bytes and compute seconds of all, and most flows."""

    iterations: int = 0
    bytes: int = 0
    compute_s: float = 0.0
    flows: int = 0

    def add(self, iteration: JobIteration) -> None:
        self.iterations += 1
        self.bytes += iteration.bytes
        self.compute_s += iteration.begin_s - iteration.start_s
        self.flows = max(self.flows, len(iteration.events))


class Recording:
    """A recording of the jobs since `start_s` (CLOCK_MONOTONIC), as a run folder that grows.

    Every iteration is in the folder as soon as it is complete, so that a recording that is killed
    loses none of those it had.
    """

    def __init__(self, jobs: Mapping[int, Job], start_s: float, folder: Path) -> None:
        self._jobs = jobs
        self._start_s = start_s
        self._folder = folder
        self._views = Views()
        self._whole = Whole()
        self._totals = {job_id: _Totals() for job_id in jobs}
        self._flows: dict[tuple[int, int], int] = {}
        self._numbers: dict[int, int] = {}
        self._locals: dict[int, set[str]] = {job_id: set() for job_id in jobs}
        self._ccs: dict[int, str] = {}
        self._cookies: set[int] = set()
        """Of the jobs' flows, those without iterations too."""

    def add(self, events: Sequence[IterationEvent]) -> None:
        """Take events; those of other jobs, and bursts that began earlier, are left out."""
        own = [e for e in events if e.job_id in self._jobs and e.first_ack_s >= self._start_s]
        self.take(self._views.add(self._whole.of(own, self._jobs.values())))

    def note(self, flows: Sequence[Flow]) -> None:
        """Remember which congestion control each job runs, and from where it sends."""
        for flow in flows:
            if flow.job_id in self._jobs:
                observed = self._jobs[flow.job_id].params.observed
                name = flow.congestion_control
                # While it uses no mechanism, it is what it is built on.
                self._ccs[flow.job_id] = base_of(name) if observed else name
                self._locals[flow.job_id].add(flow.local_addr)
                self._cookies.add(flow.cookie)

    def runs(self, job_id: int, congestion_control: str, cookie: int, local_addr: str) -> None:
        """Remember a connection of a job that isn't attached."""
        self._ccs[job_id] = congestion_control
        self._cookies.add(cookie)
        self._locals[job_id].add(local_addr)
        self._totals[job_id].flows += 1

    def counts(self) -> dict[str, int]:
        """Iterations recorded of each job, by name."""
        return {job.name: self._totals[job.id].iterations for job in self._jobs.values()}

    def own(self) -> tuple[set[int], int]:
        """Cookies of the jobs' flows, and the bytes of all iterations."""
        cookies = {cookie for _, cookie in self._flows} | self._cookies
        return cookies, sum(each.bytes for each in self._totals.values())

    def describe(self, duration_s: float) -> None:
        """Write which jobs are recorded, and for how long so far."""
        write_csv(self._folder, "variants", [self._key() | {"order": 1, "duration_s": duration_s}])
        text = yaml.safe_dump(self._description(), sort_keys=False, allow_unicode=True)
        replace_file(self._folder / "experiment.yaml", text.encode())

    def finish(self, duration_s: float) -> None:
        """The last iterations, which no later ones have completed, and all that is left to do."""
        self.take(self._views.flush())
        for name in ("iterations", "bursts"):
            if not (self._folder / f"{name}.csv").exists():
                write_csv(self._folder, name, [])
        self.describe(duration_s)

    def take(self, complete: Sequence[JobIteration]) -> None:
        """Add complete iterations to the tables."""
        iterations, bursts, events = [], [], []
        new = False
        for each in complete:
            new |= not self._totals[each.job_id].iterations
            self._totals[each.job_id].add(each)
            self._locals[each.job_id] |= {event.local_addr for event in each.events}
            own = self._key() | {"job": self._jobs[each.job_id].name, "iteration": each.number}
            times = self._times(start_s=each.start_s, end_s=each.end_s)
            compute = {"compute_s": each.begin_s - each.start_s, "comm_s": each.comm_s}
            iterations.append(own | times | compute | {"bytes": each.bytes})
            times = self._times(start_s=each.begin_s, end_s=each.end_s)
            bursts.append(own | {"burst": 1} | times | {"bytes": each.bytes})
            events += [own | self._event(event) for event in each.events]
        if new:
            self.describe(time.monotonic() - self._start_s)
        # Jobs, then bursts and events: an iteration that is there has all that belongs to it.
        for name, rows in (("flow_events", events), ("bursts", bursts), ("iterations", iterations)):
            append_csv(self._folder, name, rows)

    def _variant(self) -> str:
        return "+".join(sorted(set(self._ccs.values()))) or "mltcp"

    def _key(self) -> dict[str, Any]:
        return {"variant": self._variant(), "repetition": _REPETITION}

    def _times(self, **times: float) -> dict[str, float]:
        return {name: value - self._start_s for name, value in times.items()}

    def _event(self, event: IterationEvent) -> dict[str, Any]:
        key = (event.job_id, event.cookie)
        if key not in self._flows:
            self._flows[key] = self._numbers.get(event.job_id, 0)
            self._numbers[event.job_id] = self._flows[key] + 1
        return {
            "flow": self._flows[key],
            "back": int(self._answers(event)),
            **self._times(first_ack_s=event.first_ack_s, last_ack_s=event.last_ack_s),
            "bytes": event.bytes,
            "retransmits": event.retransmits,
            "srtt_us": event.srtt_us,
            "cwnd": event.cwnd,
            "ratio": event.ratio,
        }

    def _answers(self, event: IterationEvent) -> bool:
        """Return whether a flow goes back to where others of its job come from: both ends are here.

        Of the two the lower address is where `there` begins, as in a capture.
        """
        if event.remote_addr not in self._locals[event.job_id]:
            return False
        ends = [ip_address(each) for each in (event.local_addr, event.remote_addr)]
        return (ends[0].version, ends[0].packed) > (ends[1].version, ends[1].packed)

    def _description(self) -> dict[str, Any]:
        """Return the experiment as the analysis wants it, as far as recording shows it."""
        jobs = []
        for job in self._jobs.values():
            own = self._totals[job.id]
            if not own.iterations:
                continue
            jobs.append(
                {
                    "name": job.name,
                    "bytes": exact_bytes(round(own.bytes / own.iterations)),
                    "compute": exact_seconds(own.compute_s / own.iterations),
                    "flows": own.flows,
                    "iterations": own.iterations,
                }
            )
        variant = self._variant()
        return {
            "name": "recorded",
            "description": "Attached jobs, recorded as they ran.",
            "recorded": True,
            "jobs": jobs,
            "variants": {variant: {"cc": variant}},
            "baseline": variant,
            "repetitions": _REPETITION,
        }


def record(
    folder: Path,
    backend: Backend,
    names: Collection[str],
    until: Callable[[dict[str, int], float], bool],
) -> dict[str, int]:
    """Record the jobs of these names (all there are, without any) into the new folder.

    Flows without a job that are sure of their iterations when it begins are jobs of their own.

    until: told the iterations of each job and the seconds that went by, says when it is enough;
    KeyboardInterrupt ends it as well. Whatever ends it, the folder has all complete iterations.
    Returns the iterations of each job. Raises UsageError for a job that isn't set or a folder that
    is in use, BusyError where the iterations are somebody else's to read.
    """
    check_folder(folder)
    untagged = Untagged()
    untagged.update(backend.flows(), backend.jobs())
    there = [*backend.jobs(), *untagged.jobs]
    jobs = {job.id: job for job in there if not names or job.name in names}
    if missing := sorted(set(names) - {job.name for job in jobs.values()}):
        known = ", ".join(job.name for job in there) or "none"
        raise UsageError(f"There is no job {missing[0]!r}; there are: {known}.")
    if not jobs:
        raise UsageError(
            "No job is attached, and no other flow has learned its iterations yet; attach jobs"
            " with `mltcp attach`."
        )
    with leased("mltcp lab record", backend.name), open_iterations(backend) as stream:
        folder.mkdir(parents=True, exist_ok=True)
        start_s = described_s = time.monotonic()
        environment = RunEnvironment(folder)
        conditions = Conditions(lambda: (state.job.name for state in StateFiles().read()))
        recording = Recording(jobs, start_s, folder)
        recording.note(untagged.flows(backend.flows()))
        recording.describe(0.0)
        outcome = "finished"
        try:
            while not until(recording.counts(), time.monotonic() - start_s):
                recording.add(untagged.events(stream.poll(_POLL_S)))
                if time.monotonic() - described_s > DESCRIBE_S:
                    described_s = time.monotonic()
                    recording.note(untagged.flows(backend.flows()))
                    recording.describe(described_s - start_s)
                    conditions.look()
        except KeyboardInterrupt:
            pass
        except MltcpError as error:
            outcome = str(error)
        recording.note(untagged.flows(backend.flows()))
        recording.finish(time.monotonic() - start_s)
        environment.add(conditions=conditions.document(*recording.own()))
        if stream.dropped:
            environment.warn(f"{stream.dropped} events of flows were lost.")
        environment.finish(outcome)
    return recording.counts()
