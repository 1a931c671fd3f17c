"""Iterations of attached jobs as a run folder, for `mltcp report` to read like a testbed's.

There is one arm, called after the congestion control, and one repetition. An iteration begins where
the one before had sent all: the job computes, then sends, as in the testbed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from mltcp_tools.backends.base import BASES, Backend, Flow, IterationEvent, Job
from mltcp_tools.errors import MltcpError, UsageError
from mltcp_tools.host.leases import leased
from mltcp_tools.observe.iterations import JobIteration, without_pieces
from mltcp_tools.observe.relay import open_iterations
from mltcp_tools.observe.view import Views
from mltcp_tools.runs.environment import Environment
from mltcp_tools.runs.folder import check_folder, write_tables

_POLL_S = 0.2
_SAVE_S = 10.0
_REPETITION = 1


class Recording:
    """What was seen of the jobs since `start_s` (CLOCK_MONOTONIC), as rows of tables."""

    def __init__(self, jobs: Mapping[int, Job], start_s: float) -> None:
        self._jobs = jobs
        self._start_s = start_s
        self._views = Views()
        self._iterations: list[JobIteration] = []
        self._flows: dict[tuple[int, int], int] = {}
        self._numbers: dict[int, int] = {}
        self._ccs: dict[int, str] = {}

    def add(self, events: Sequence[IterationEvent]) -> None:
        """Take events; those of other jobs, and bursts that began earlier, are left out."""
        own = [e for e in events if e.job_id in self._jobs and e.first_ack_s >= self._start_s]
        self._iterations += self._views.add(without_pieces(own, self._jobs.values()))

    def note(self, flows: Sequence[Flow]) -> None:
        """Remember which congestion control each job runs."""
        for flow in flows:
            if flow.job_id in self._jobs:
                observed = self._jobs[flow.job_id].params.observed
                name = flow.congestion_control
                # While it uses no mechanism, it is what it is built on.
                self._ccs[flow.job_id] = BASES[name] if observed else name

    def finish(self) -> None:
        """The last iterations, which no later ones have completed."""
        self._iterations += self._views.flush()

    def counts(self) -> dict[str, int]:
        """Iterations recorded of each job, by name."""
        found = dict.fromkeys((job.name for job in self._jobs.values()), 0)
        for each in self._iterations:
            found[self._jobs[each.job_id].name] += 1
        return found

    def save(self, folder: Path, duration_s: float) -> None:
        """Write the tables and a description of what was recorded."""
        arm = self._arm()
        key = {"arm": arm, "repetition": _REPETITION}
        iterations, bursts, events = [], [], []
        for each in self._iterations:
            own = key | {"job": self._jobs[each.job_id].name, "iteration": each.number}
            times = self._times(start_s=each.start_s, end_s=each.end_s)
            compute = {"compute_s": each.begin_s - each.start_s, "comm_s": each.comm_s}
            iterations.append(own | times | compute | {"bytes": each.bytes})
            times = self._times(start_s=each.begin_s, end_s=each.end_s)
            bursts.append(own | {"burst": 1} | times | {"bytes": each.bytes})
            events += [own | self._event(event) for event in each.events]
        arms = [key | {"order": 1, "duration_s": duration_s}]
        tables = {"iterations": iterations, "bursts": bursts, "arms": arms}
        write_tables(folder, tables | ({"flow_events": events} if events else {}))
        text = yaml.safe_dump(self._description(arm), sort_keys=False, allow_unicode=True)
        (folder / "experiment.yaml").write_text(text, encoding="utf-8")

    def _arm(self) -> str:
        return "+".join(sorted(set(self._ccs.values()))) or "mltcp"

    def _times(self, **times: float) -> dict[str, float]:
        return {name: value - self._start_s for name, value in times.items()}

    def _event(self, event: IterationEvent) -> dict[str, Any]:
        key = (event.job_id, event.cookie)
        if key not in self._flows:
            self._flows[key] = self._numbers.get(event.job_id, 0)
            self._numbers[event.job_id] = self._flows[key] + 1
        return {
            "flow": self._flows[key],
            **self._times(first_ack_s=event.first_ack_s, last_ack_s=event.last_ack_s),
            "bytes": event.bytes,
            "retransmits": event.retransmits,
            "srtt_us": event.srtt_us,
            "cwnd": event.cwnd,
            "ratio": event.ratio,
        }

    def _description(self, arm: str) -> dict[str, Any]:
        """What the analysis wants to know of an experiment, as far as recording shows it."""
        jobs = []
        for job in self._jobs.values():
            own = [each for each in self._iterations if each.job_id == job.id]
            if not own:
                continue
            jobs.append(
                {
                    "name": job.name,
                    "bytes": round(sum(each.bytes for each in own) / len(own)),
                    "compute": sum(each.begin_s - each.start_s for each in own) / len(own),
                    "flows": max(len(each.events) for each in own),
                    "iterations": own[-1].number,
                }
            )
        return {
            "name": "recorded",
            "description": "Attached jobs, recorded as they ran.",
            "recorded": True,
            "jobs": jobs,
            "arms": {arm: {"cc": arm}},
            "baseline": arm,
            "repetitions": _REPETITION,
        }


def record(
    folder: Path,
    backend: Backend,
    names: Collection[str],
    until: Callable[[dict[str, int], float], bool],
) -> dict[str, int]:
    """Record the jobs of these names (all that are set, without any) into the new folder.

    until: told the iterations of each job and the seconds that went by, says when it is enough;
    KeyboardInterrupt ends it as well, with what there is. Returns the iterations of each job.
    Raises UsageError for a job that isn't set or a folder that is in use, BusyError where the
    iterations are somebody else's to read.
    """
    check_folder(folder)
    jobs = {job.id: job for job in backend.jobs() if not names or job.name in names}
    if missing := sorted(set(names) - {job.name for job in jobs.values()}):
        known = ", ".join(job.name for job in backend.jobs()) or "none"
        raise UsageError(f"There is no job {missing[0]!r}; there are: {known}.")
    if not jobs:
        raise UsageError("No job is attached; `mltcp attach` makes flows a job's.")
    with leased("mltcp record", backend.name), open_iterations(backend) as stream:
        folder.mkdir(parents=True, exist_ok=True)
        environment = Environment(folder)
        start_s = saved_s = time.monotonic()
        recording = Recording(jobs, start_s)
        outcome = "finished"
        try:
            while not until(recording.counts(), time.monotonic() - start_s):
                recording.add(stream.poll(_POLL_S))
                if time.monotonic() - saved_s > _SAVE_S:
                    saved_s = time.monotonic()
                    recording.note(backend.flows())
                    recording.save(folder, saved_s - start_s)
        except KeyboardInterrupt:
            pass
        except MltcpError as error:
            outcome = str(error)
        recording.note(backend.flows())
        recording.finish()
        recording.save(folder, time.monotonic() - start_s)
        if stream.dropped:
            environment.warn(f"{stream.dropped} events of flows were lost.")
        environment.finish(outcome)
    return recording.counts()
