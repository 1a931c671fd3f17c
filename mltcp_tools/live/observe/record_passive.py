# SPDX-License-Identifier: BSD-2-Clause
"""Recordings of jobs that aren't attached, as they show from outside: under any congestion control.

The run folder is that of `record`, but without what only MLTCP's programs see of each flow.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from mltcp_tools.base.run_tables import check_folder
from mltcp_tools.kernel.backends.base import Job
from mltcp_tools.kernel.environment import RunEnvironment
from mltcp_tools.live.attach.selection import Target
from mltcp_tools.live.attach.sockets import Socket
from mltcp_tools.live.attach.state import StateFiles
from mltcp_tools.live.attach.targets import sockets_to_attach
from mltcp_tools.live.observe.conditions import Conditions
from mltcp_tools.live.observe.iteration_detector import Iteration
from mltcp_tools.live.observe.iterations import JobIteration
from mltcp_tools.live.observe.meter import Meter
from mltcp_tools.live.observe.passive import PassiveObserver
from mltcp_tools.live.observe.record import DESCRIBE_S, Recording


def record_passive(
    folder: Path,
    wanted: Mapping[str, Sequence[str]],
    until: Callable[[dict[str, int], float], bool],
    patience_s: float,
) -> dict[str, int]:
    """Record the jobs of these targets, by name, into the new folder; until: as for `record`.

    Returns the iterations of each job. Raises passive.NoIterations where one shows none within
    patience_s, MltcpError where no process matches.
    """
    check_folder(folder)
    found = {
        name: sockets_to_attach(Target.parse(words), (), stays_here=True)[0]
        for name, words in wanted.items()
    }
    jobs = {name: Job(number, name) for number, name in enumerate(found, start=1)}
    with Meter() as meter:
        observer = PassiveObserver(meter, lambda: None)
        observer.learn(found, patience_s)
        folder.mkdir(parents=True, exist_ok=True)
        start_s = described_s = time.monotonic()
        environment = RunEnvironment(folder)
        conditions = Conditions(lambda: (state.job.name for state in StateFiles().read()))
        recording = Recording({job.id: job for job in jobs.values()}, start_s, folder)
        for name, sockets in found.items():
            for each in sockets:
                recording.runs(jobs[name].id, each.congestion_control, each.cookie, each.local[0])
        recording.describe(0.0)
        with suppress(KeyboardInterrupt):
            while not until(recording.counts(), time.monotonic() - start_s):
                _add(recording, jobs, observer.wait(), start_s)
                if len(observer.closed()) == len(jobs):
                    break
                if time.monotonic() - described_s > DESCRIBE_S:
                    described_s = time.monotonic()
                    recording.describe(described_s - start_s)
                    conditions.look()
        recording.finish(time.monotonic() - start_s)
        environment.add(conditions=conditions.document(_cookies(found), recording.own()[1]))
        environment.finish("finished")
    return recording.counts()


def _add(
    recording: Recording,
    jobs: Mapping[str, Job],
    iterations: Sequence[tuple[str, Iteration]],
    start_s: float,
) -> None:
    for name, iteration in iterations:
        if iteration.start_s >= start_s:
            number = recording.counts()[name]
            recording.take([*_iterations(jobs[name].id, number, iteration)])


def _iterations(job_id: int, number: int, iteration: Iteration) -> Iterator[JobIteration]:
    """The iterations of a iteration, of equal length where several showed as one."""
    for place in range(iteration.count):
        start_s = iteration.start_s + place * iteration.duration_s
        yield JobIteration(
            job_id=job_id,
            number=number + place + 1,
            start_s=start_s,
            begin_s=iteration.begin_s if iteration.count == 1 else start_s,
            end_s=start_s + iteration.duration_s,
            bytes=iteration.size // iteration.count,
            events=(),
        )


def _cookies(found: Mapping[str, Sequence[Socket]]) -> set[int]:
    return {each.cookie for sockets in found.values() for each in sockets}
