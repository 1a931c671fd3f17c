# SPDX-License-Identifier: BSD-2-Clause
"""Conducts a trial on this host, from the jobs' names to the verdict, and puts everything back."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mltcp_tools.kernel.backends.base import Backend
from mltcp_tools.kernel.host.leases import leased
from mltcp_tools.kernel.host.signals import Signals
from mltcp_tools.live.attach.switch import require_ready
from mltcp_tools.live.observe.meter import Meter
from mltcp_tools.live.trial.adapters import LiveWorld
from mltcp_tools.live.trial.outcome import Verdict, judge
from mltcp_tools.live.trial.rollback import Lease, settle
from mltcp_tools.live.trial.subjects import find_subjects, original_names
from mltcp_tools.live.trial.trial import Course, Plan, Trial, announcement


@dataclass(frozen=True)
class Conducted:
    """A trial that has ended. base: names of the congestion controls that the jobs ran before.

    mltcp: the one they were compared with.
    """

    base: str
    mltcp: str
    course: Course
    verdict: Verdict


def conduct(
    wanted: Mapping[str, Sequence[str]],
    plan: Plan,
    congestion_control: str,
    backend: Backend,
    say: Callable[[str], None],
    patience_s: float,
    seed: int | None = None,
) -> Conducted:
    """Try the congestion control on these jobs (see subjects.find_subjects).

    Whatever happens, the jobs have back what they ran before when this returns or raises. seed: of
    the order, drawn where None. Raises MltcpError before anything has changed where a job can't be
    tried.
    """
    require_ready(congestion_control, backend)
    if settle():
        say("The previous trial was killed; its jobs have been restored.")
    subjects = find_subjects(wanted)
    base = original_names(subjects)
    with (
        leased("mltcp trial", backend.name),
        Signals() as signals,
        Meter() as meter,
        Lease(subjects) as lease,
    ):
        world = LiveWorld(
            subjects, congestion_control, backend, lease, meter, signals.has_come, patience_s
        )
        trial = Trial(plan, world, secrets.randbits(32) if seed is None else seed, say)
        say(f"{base} and {congestion_control}: {announcement(trial.course)}")
        course = trial.run()
    return Conducted(base, congestion_control, course, judge(course))
