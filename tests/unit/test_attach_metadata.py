"""What is known of a job's iterations: from hooks, from flows, and whom to believe."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltcp_tools.attach.following.followed import Followed
from mltcp_tools.attach.following.rules import Rule
from mltcp_tools.attach.processes import Target
from mltcp_tools.attach.sources.bursts import PROBE_GAP_S, Burst, FlowBursts, learn
from mltcp_tools.attach.sources.messages import Message
from mltcp_tools.attach.sources.metadata import Chooser, Metadata
from mltcp_tools.attach.sources.rhythm import Rhythm
from mltcp_tools.backends.base import IterationEvent, Job, JobParams


def known(source: str, period_s: float = 0.5, **more: float) -> Metadata:
    fields = {"bytes_per_iteration": None, "gap_s": 0.0, "confidence": 1.0, "iterations_seen": 20}
    return Metadata(source, period_s, **(fields | more))  # type: ignore[arg-type]


# Whom to believe


def test_the_best_source_is_believed_and_the_next_when_it_goes_silent() -> None:
    chooser = Chooser()
    assert chooser.best(0) is None
    for source in ("flow", "nccl", "hooks"):
        chooser.tell(known(source), heard_s=0)
        best = chooser.best(1)
        assert best is not None
        assert best.source == source
    chooser.tell(known("flow"), heard_s=6)
    best = chooser.best(6)
    assert best is not None
    assert best.source == "flow"
    assert chooser.best(20) is None
    chooser.tell(known("hooks"), heard_s=20)
    best = chooser.best(20)
    assert best is not None
    assert best.source == "hooks"


def test_a_slow_job_is_not_silent_between_iterations() -> None:
    chooser = Chooser()
    chooser.tell(known("hooks", period_s=60), heard_s=0)
    assert chooser.best(599) is not None
    assert chooser.best(601) is None


def test_a_source_without_confidence_is_not_believed() -> None:
    chooser = Chooser()
    chooser.tell(known("hooks", confidence=0.2), 0)
    assert chooser.best(0) is None
    chooser.tell(known("flow"), 0)
    best = chooser.best(0)
    assert best is not None
    assert best.source == "flow"


def test_what_the_best_source_cannot_tell_comes_from_one_that_agrees() -> None:
    chooser = Chooser()
    chooser.tell(known("hooks"), 0)
    chooser.tell(known("flow", period_s=0.52, bytes_per_iteration=1000, gap_s=0.2), 0)
    assert chooser.best(0) == known("hooks", bytes_per_iteration=1000, gap_s=0.2)
    chooser.tell(known("flow", period_s=0.25, bytes_per_iteration=500, gap_s=0.1), 0)
    assert chooser.best(0) == known("hooks")


# Hooks


def told(
    number: int, begin_s: float, end_s: float, pid: int = 1, busy_s: float | None = None
) -> Message:
    return Message(pid, 0, "job", number, begin_s, end_s, busy_s, None)


def test_hooks_give_the_period_and_half_the_idle_time_as_gap() -> None:
    rhythm = Rhythm()
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


def test_hooks_that_do_not_know_communication_leave_the_gap_open() -> None:
    rhythm = Rhythm()
    for number in range(1, 10):
        rhythm.add(told(number, number * 0.5, number * 0.5 + 0.4))
    found = rhythm.metadata()
    assert found is not None
    assert found.gap_s == 0


def test_lost_messages_do_not_change_the_period() -> None:
    rhythm = Rhythm()
    for number in (1, 2, 5, 6, 9, 11, 30):
        rhythm.add(told(number, number * 0.5, number * 0.5 + 0.1))
    found = rhythm.metadata()
    assert found is not None
    assert found.period_s == pytest.approx(0.5)


def test_a_loop_that_begins_anew_forgets_what_was() -> None:
    rhythm = Rhythm()
    for number in range(1, 20):
        rhythm.add(told(number, number * 0.5, number * 0.5 + 0.1))
    rhythm.add(told(1, 100, 100.1))
    assert rhythm.metadata() is None
    rhythm.add(told(2, 102, 102.1))
    found = rhythm.metadata()
    assert found is not None
    assert found.period_s == pytest.approx(2)


def test_one_lying_process_does_not_shift_the_job() -> None:
    rhythm = Rhythm()
    for number in range(1, 30):
        for pid in range(1, 5):
            rhythm.add(told(number, number * 0.5, number * 0.5, pid))
        rhythm.add(told(number, number * 1e-6, number * 1e-6, pid=9))
    found = rhythm.metadata()
    assert found is not None
    assert found.period_s == pytest.approx(0.5)
    rhythm.forget(9)
    assert rhythm.metadata() is not None


@given(st.lists(st.tuples(st.integers(1, 9), st.floats(0, 1e6), st.floats(0, 1e5))))
def test_any_messages_give_a_period_or_none(rows: list[tuple[int, float, float]]) -> None:
    rhythm = Rhythm()
    for number, begin_s, length_s in rows:
        rhythm.add(told(number, begin_s, begin_s + length_s, busy_s=length_s / 2))
    found = rhythm.metadata()
    assert found is None or (found.period_s > 0 and 0 <= found.confidence <= 1 and found.gap_s >= 0)


# Flows


def train(
    count: int,
    parts: int = 1,
    jitter: float = 0.0,
    period_s: float = 0.5,
    inner_s: float = 0.03,
    seed: int = 1,
) -> list[Burst]:
    """Bursts of iterations of `parts` bursts each, 20 ms and 100 kB, with silences between."""
    random = Random(seed)
    bursts, now = [], 10.0
    for _ in range(count):
        for part in range(parts):
            bursts.append(Burst(now, now + 0.02, 100_000))
            now += 0.02
            if part + 1 < parts:
                now += inner_s * max(0.2, random.gauss(1, jitter))
        idle_s = period_s - parts * 0.02 - (parts - 1) * inner_s
        now += idle_s * max(0.2, random.gauss(1, jitter))
    return bursts


@given(st.integers(12, 60), st.integers(1, 5), st.floats(0, 0.2), st.integers(0, 10**6))
def test_iterations_are_found_in_bursts(count: int, parts: int, jitter: float, seed: int) -> None:
    found = learn(train(count, parts, jitter, seed=seed))
    assert found is not None
    assert found.source == "flow"
    assert found.bytes_per_iteration == parts * 100_000
    assert found.period_s == pytest.approx(0.5, rel=0.3)
    assert found.confidence >= 0.5
    idle_s = 0.5 - parts * 0.02 - (parts - 1) * 0.03
    assert found.gap_s <= 0.75 * idle_s
    if parts > 1:
        assert found.gap_s > 0.03


def test_too_few_bursts_say_nothing() -> None:
    for count in range(7):
        assert learn(train(count)) is None
    assert learn([]) is None


def test_bursts_without_a_rhythm_get_no_confidence() -> None:
    random = Random(3)
    bursts, now = [], 0.0
    for _ in range(100):
        bursts.append(Burst(now, now + 0.01, random.randrange(1_000, 10_000_000)))
        now += 0.01 + random.expovariate(2)
    found = learn(bursts)
    assert found is None or found.confidence < 0.5


def test_a_known_period_puts_bursts_together() -> None:
    found = learn(train(40, parts=4), period_s=0.5)
    assert found is not None
    assert (found.period_s, found.bytes_per_iteration) == (pytest.approx(0.5), 400_000)
    # Every other iteration as far as the training loop is concerned: nothing tells them apart.
    found = learn(train(40), period_s=1.0)
    assert found is not None
    assert found.period_s == 1.0
    assert found.bytes_per_iteration == pytest.approx(200_000, rel=0.01)
    assert found.gap_s == 0


@given(
    st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10), st.integers(0, 2**62)), max_size=80),
    st.none() | st.floats(1e-3, 1e3),
)
def test_any_bursts_are_learned_from(
    rows: list[tuple[float, float, int]], period_s: float | None
) -> None:
    bursts, now = [], 0.0
    for silence_s, length_s, size in rows:
        bursts.append(Burst(now + silence_s, now + silence_s + length_s, size))
        now += silence_s + length_s
    found = learn(bursts, period_s)
    if found is not None:
        assert found.period_s > 0
        assert 0 <= found.confidence <= 1
        assert found.gap_s >= 0


def event(number: int, burst: Burst, cookie: int = 1) -> IterationEvent:
    return IterationEvent(
        job_id=1,
        cookie=cookie,
        local_addr="10.0.0.1",
        local_port=1,
        remote_addr="10.0.0.2",
        remote_port=2,
        iteration=number,
        first_ack_s=burst.begin_s,
        last_ack_s=burst.end_s,
        bytes=burst.bytes,
        retransmits=0,
        srtt_us=100,
        cwnd=10,
        ratio=1.0,
    )


def test_the_busiest_flow_counts_and_a_lost_event_breaks_no_rhythm() -> None:
    bursts = FlowBursts()
    for number, burst in enumerate(train(60), 1):
        if number != 30:
            bursts.add(event(number, burst))
        bursts.add(event(number, Burst(burst.begin_s, burst.end_s, 10), cookie=2))
    found = bursts.metadata()
    assert found is not None
    assert found.bytes_per_iteration == 100_000
    assert found.iterations_seen <= 30


def test_flows_without_number_take_no_memory() -> None:
    bursts = FlowBursts()
    for cookie in range(5000):
        bursts.add(event(1, Burst(0, 1, 1), cookie))
        bursts.add(event(2, Burst(2, 3, 1), cookie))
    assert len(bursts._kept) <= 256


# A followed job


def followed(**rule: object) -> Followed:
    made = Rule("job", Target(patterns=("x",)), **rule)  # type: ignore[arg-type]
    return Followed(Job(1, "job", JobParams(**made.parameters())), made, 0)


def test_a_new_job_is_its_base_with_a_short_gap_until_bursts_are_known() -> None:
    job = followed()
    assert (job.job.params.total_bytes, job.job.params.gap_s) == (0, PROBE_GAP_S)
    assert job.learn(0) is None
    job.see(event(number, burst) for number, burst in enumerate(train(30), 1))
    changed = job.learn(1)
    assert changed is not None
    assert changed.params.total_bytes == 100_000
    assert changed.params.gap_s == pytest.approx(0.24, rel=0.05)
    best = job.best(1)
    assert best is not None
    assert best.source == "flow"
    assert job.learn(2) is None  # no news
    assert job.learn(1000) is None  # silence is no reason to forget
    assert job.best(1000) is None


def test_a_job_that_loses_its_rhythm_goes_back_to_its_base() -> None:
    job = followed()
    rhythm = list(enumerate(train(30), 1))
    job.see(event(*each) for each in rhythm)
    assert job.learn(0) is not None
    random, now, number = Random(5), 1000.0, 31
    for number in range(31, 400):
        burst = Burst(now, now + 0.01, random.randrange(1_000, 10_000_000))
        now += 0.01 + random.expovariate(2)
        job.see([event(number, burst)])
    changed = job.learn(2)
    assert changed is not None
    assert (changed.params.total_bytes, changed.params.gap_s) == (0, PROBE_GAP_S)


def test_what_the_rule_fixes_stays() -> None:
    job = followed(total_bytes=7, gap_s=0.3, given={"slope": 2.0})
    job.see(event(number, burst) for number, burst in enumerate(train(30), 1))
    assert job.learn(1) is None
    assert job.job.params == JobParams(total_bytes=7, gap_s=0.3, slope=2.0)
    job = followed(gap_s=0.3)
    job.see(event(number, burst) for number, burst in enumerate(train(30), 1))
    changed = job.learn(1)
    assert changed is not None
    assert (changed.params.total_bytes, changed.params.gap_s) == (100_000, 0.3)


def test_hooks_and_flows_together() -> None:
    job = followed()
    bursts = train(40, parts=2)
    job.see(event(number, burst) for number, burst in enumerate(bursts, 1))
    for number in range(1, 40):
        job.hear(told(number, number * 0.5, number * 0.5 + 0.4))
    changed = job.learn(1)
    assert changed is not None
    assert changed.params.total_bytes == 200_000
    assert 0.03 < changed.params.gap_s < 0.43
    best = job.best(1)
    assert best is not None
    assert (best.source, best.bytes_per_iteration) == ("hooks", 200_000)
