# SPDX-License-Identifier: BSD-2-Clause
"""Knowledge of a job's iterations: from hooks, from flows, and whom to believe."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mltcp_tools.kernel.backends import records
from mltcp_tools.kernel.backends.base import Flow, Job, JobParams
from mltcp_tools.kernel.native.uapi import ffi
from mltcp_tools.live.agent.followed import Followed
from mltcp_tools.live.agent.rules import Rule
from mltcp_tools.live.attach.selection import Target
from mltcp_tools.live.sources.learned import learned_metadata
from mltcp_tools.live.sources.messages import Message
from mltcp_tools.live.sources.metadata import Chooser, Metadata
from mltcp_tools.live.sources.rhythm import HookRhythm


def known(source: str, period_s: float = 0.5, **more: float) -> Metadata:
    fields = {"bytes_per_iteration": None, "gap_s": 0.0, "confidence": 1.0, "iterations_seen": 20}
    return Metadata(source, period_s, **(fields | more))  # type: ignore[arg-type]


def source_of(found: Metadata | None) -> str:
    return found.source if found else ""


def period_of(rhythm: HookRhythm) -> float:
    found = rhythm.metadata()
    assert found is not None
    return found.period_s


# Whom to believe


def test_best_source_counts_and_the_next_once_it_is_silent() -> None:
    chooser = Chooser()
    assert chooser.best(0) is None
    for source in ("gloo", "nccl", "hooks"):
        chooser.tell(known(source), heard_s=0)
        assert source_of(chooser.best(1)) == source
    chooser.tell(known("gloo"), heard_s=6)
    assert source_of(chooser.best(6)) == "gloo"
    assert chooser.best(20) is None
    chooser.tell(known("hooks"), heard_s=20)
    assert source_of(chooser.best(20)) == "hooks"


def test_a_source_without_confidence_is_not_believed() -> None:
    chooser = Chooser()
    chooser.tell(known("hooks", confidence=0.2), 0)
    assert chooser.best(0) is None
    chooser.tell(known("gloo"), 0)
    assert source_of(chooser.best(0)) == "gloo"


def test_gaps_of_best_source_are_filled_by_one_that_agrees() -> None:
    chooser = Chooser()
    chooser.tell(known("hooks"), 0)
    chooser.tell(known("gloo", period_s=0.52, bytes_per_iteration=1000, gap_s=0.2), 0)
    assert chooser.best(0) == known("hooks", bytes_per_iteration=1000, gap_s=0.2)
    chooser.tell(known("gloo", period_s=0.25, bytes_per_iteration=500, gap_s=0.1), 0)
    assert chooser.best(0) == known("hooks")


# Hooks


def told(
    number: int, begin_s: float, end_s: float, pid: int = 1, busy_s: float | None = None
) -> Message:
    return Message(pid, 0, "job", number, begin_s, end_s, busy_s, None)


def test_hooks_give_the_period_and_half_the_idle_time_as_gap() -> None:
    rhythm = HookRhythm()
    assert rhythm.metadata() is None
    for number in range(1, 21):
        for pid in (1, 2):
            rhythm.add(told(number, number * 0.5, number * 0.5 + 0.4, pid, busy_s=0.1))
    found = rhythm.metadata()
    assert found is not None
    assert (found.source, found.iterations_seen) == ("hooks", 20)
    assert found.period_s == pytest.approx(0.5)
    assert found.gap_s == pytest.approx((0.5 - 0.1) / 2)
    assert found.confidence == pytest.approx(1)
    assert found.bytes_per_iteration is None


def test_a_loop_that_begins_anew_forgets_what_was() -> None:
    rhythm = HookRhythm()
    for number in range(1, 20):
        rhythm.add(told(number, number * 0.5, number * 0.5 + 0.1))
    rhythm.add(told(1, 100, 100.1))
    assert rhythm.metadata() is None
    rhythm.add(told(2, 102, 102.1))
    assert period_of(rhythm) == pytest.approx(2)


def test_one_lying_process_does_not_shift_the_job() -> None:
    rhythm = HookRhythm()
    for number in range(1, 30):
        for pid in range(1, 5):
            rhythm.add(told(number, number * 0.5, number * 0.5, pid))
        rhythm.add(told(number, number * 1e-6, number * 1e-6, pid=9))
    assert period_of(rhythm) == pytest.approx(0.5)
    rhythm.forget(9)
    assert rhythm.metadata() is not None


# Flows


def flow(learned_bytes: int, confidence: float, learned_gap_s: float = 0.3) -> Flow:
    record = ffi.new("struct mltcp_flow_record *")
    made = records.flow(bytes(ffi.buffer(record)))
    return replace(
        made, learned_bytes=learned_bytes, learned_gap_s=learned_gap_s, confidence=confidence
    )


def test_the_flow_that_sends_most_tells_what_flows_have_learned() -> None:
    found = learned_metadata([flow(1000, 1.0), flow(5000, 0.5), flow(9000, 0.0)], 0.5, 30)
    assert found == Metadata("learned", 0.5, 5000, 0.15, 0.5, 30)


def test_a_flow_that_is_not_sure_tells_nothing() -> None:
    assert learned_metadata([flow(5000, 0.0)], 0.5, 30) is None


# A followed job


def followed(**rule: object) -> Followed:
    made = Rule("job", Target(patterns=("x",)), **rule)  # type: ignore[arg-type]
    return Followed(Job(1, "job", JobParams(**made.parameters())), made, 0)


def test_of_what_nobody_tells_nothing_is_told() -> None:
    job = followed()
    job.see(known("learned", bytes_per_iteration=1000, gap_s=0.1))
    assert job.learn(1) is None
    assert job.job.params == JobParams()
    assert source_of(job.best(1)) == "learned"


def test_calls_are_told_and_stay_when_they_end() -> None:
    job = followed()
    job.see(known("learned", bytes_per_iteration=1000, gap_s=0.1))
    job.tell(known("gloo", bytes_per_iteration=2000, gap_s=0.2), 0)
    changed = job.learn(0)
    assert changed is not None
    assert (changed.params.burst_bytes, changed.params.gap_s) == (2000, 0.2)
    assert job.learn(1) is None  # no news
    assert job.learn(1000) is None  # silence is no reason to forget
    assert source_of(job.best(1000)) == "learned"


def test_what_the_rule_fixes_stays() -> None:
    job = followed(burst_bytes=7, gap_s=0.3, given={"slope": 2.0})
    job.tell(known("gloo", bytes_per_iteration=2000, gap_s=0.2), 0)
    assert job.learn(1) is None
    assert job.job.params == JobParams(burst_bytes=7, gap_s=0.3, slope=2.0)
    job = followed(gap_s=0.3)
    job.tell(known("gloo", bytes_per_iteration=2000, gap_s=0.2), 0)
    changed = job.learn(1)
    assert changed is not None
    assert (changed.params.burst_bytes, changed.params.gap_s) == (2000, 0.3)


def test_hooks_that_know_the_gap_leave_the_bytes_to_be_learned() -> None:
    job = followed()
    for number in range(1, 40):
        job.hear(told(number, number * 0.5, number * 0.5 + 0.4, busy_s=0.1))
    changed = job.learn(1)
    assert changed is not None
    assert changed.params.burst_bytes == 0
    assert changed.params.gap_s == pytest.approx(0.2)
