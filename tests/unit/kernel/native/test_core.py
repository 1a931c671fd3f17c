# SPDX-License-Identifier: BSD-2-Clause
"""Reductions of windows by the core, and what it gives back: losses, marks, yielding, sequences of
these.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.core_flows import (
    ALL,
    INCREASE,
    MS,
    TRUSTED,
    U32,
    U64,
    YIELD,
    ack,
    ffi,
    lib,
    lose,
    make_env,
    make_flow,
    make_params,
    ratios,
    see_queue,
    times,
    word,
)

from mltcp_tools.kernel.native.uapi import ONE

slopes = st.integers(0, 4 * ONE)
fields64 = st.integers(0, U64)
fields32 = st.integers(0, U32)


def avoid(flow: Any, cwnd: int, ssthresh: int, srtt_us: int = 1000) -> tuple[bool, int, int]:
    """Return what comes before the window's increase: whether it yields, window and threshold.

    srtt_us: what a round trip takes, and has taken.
    """
    window, threshold = ffi.new("uint32_t *", cwnd), ffi.new("uint32_t *", ssthresh)
    yields = bool(lib.mltcp_yield_or_resume(flow, srtt_us, srtt_us, window, threshold))
    return yields, window[0], threshold[0]


@given(st.integers(0, ALL))
def test_each_mechanism_acts_only_when_asked_for(mechanisms: int) -> None:
    params, flow = make_params(), make_flow()
    flow.delay.full_us = 1000
    ack(flow, params, 0, 500_000, rtt_us=2000, mechanisms=mechanisms | TRUSTED)
    assert (flow.gain != ONE) == bool(mechanisms & INCREASE)
    assert (flow.yield_us != 0) == bool(mechanisms & YIELD)


@pytest.mark.parametrize("mechanisms", [0, INCREASE, INCREASE | YIELD])
def test_only_a_flow_that_may_yield_looks_at_queue_and_host(mechanisms: int) -> None:
    params, flow = make_params(), ffi.new("struct mltcp_flow *")
    lib.mltcp_reset(flow, 1, 0, 0)
    path = ffi.new("unsigned long long *", 1 << 32 | 1234)  # a full queue, by a flow with key 1
    for number in range(0, 900, 300):
        lib.mltcp_on_send(flow, number * MS, 0)
        env = make_env(flow, params, mechanisms)
        env.path, env.path_key = path, 1
        now = (number + 1) * MS
        env.rtt_us, env.min_us = 700, 200
        lib.mltcp_step(env, flow, now, number * 1000)
    assert flow.iteration == 3
    assert flow.delay.least_us == (500 if mechanisms & YIELD else lib.MLTCP_NO_SAMPLE)
    assert flow.delay.full_us == (1234 if mechanisms & YIELD else 0)
    assert bool(flow.flags & lib.MLTCP_HOST_KNOWN) == bool(mechanisms & YIELD)


@given(fields32, fields32, fields32)
def test_scaled_growth_never_exceeds_slow_start(before: int, cwnd: int, acked: int) -> None:
    bounded = lib.mltcp_bounded_cwnd(before, cwnd, acked)
    assert bounded <= cwnd
    assert bounded == cwnd or bounded == before + acked


def behind_and_ahead(sent: int, rtt_us: int) -> Any:
    params, flow = make_params(), make_flow()
    flow.delay.full_us = 1000
    ack(flow, params, 1, sent, rtt_us=rtt_us, min_rtt_us=100)
    see_queue(flow, rtt_us - 100)
    return flow


def test_the_flow_behind_yields_where_the_one_ahead_does_not() -> None:
    assert lib.mltcp_must_yield(behind_and_ahead(sent=0, rtt_us=700))
    assert not lib.mltcp_must_yield(behind_and_ahead(sent=900_000, rtt_us=700))


def test_before_the_first_loss_nobody_yields() -> None:
    params, flow = make_params(), make_flow()
    ack(flow, params, 1, 0)
    see_queue(flow, 10**6)
    assert not lib.mltcp_must_yield(flow)


@pytest.mark.parametrize("said", [True, False])
def test_a_long_pause_is_no_time_to_yield_for(said: bool) -> None:
    """After an evaluation a job would else wait for a flow that never ends, as long as that took.

    said: by the job, what an iteration is; else it is learned.
    """
    size, pause = 1_000_000, 300 * MS
    fields = {"burst_bytes": size, "gap_ns": 50 * MS} if said else {"burst_bytes": 0, "gap_ns": 0}
    params, flow, now = make_params(**fields), make_flow(), 0
    env = make_env(flow, params)
    yielded: list[int] = []
    for idle in [pause] * 8 + [140_000 * MS] + [pause] * 2:
        now += idle
        begun, sent = now, flow.acked_bytes
        lib.mltcp_on_send(flow, now, 0)
        flow.delay.full_us = 1000
        lib.mltcp_step(env, flow, now, sent + 1000)
        see_queue(flow, 900)
        # Hardly anything gets through for as long as it yields.
        while lib.mltcp_must_yield(flow):
            now += 10 * MS
            lib.mltcp_step(env, flow, now, flow.acked_bytes + 10)
        yielded.append(now - begun)
        now += 10 * MS
        lib.mltcp_step(env, flow, now, sent + size)
    assert all(pause <= each <= pause + 20 * MS for each in yielded[5:8])
    # The usual gap moves by half at most.
    assert all(pause < each <= 1.5 * pause + 20 * MS for each in yielded[8:])


@pytest.mark.parametrize(("received", "yields"), [(0, True), (100_000, True), (200_000, False)])
def test_flow_that_receives_does_not_yield(received: int, yields: bool) -> None:
    """Its RTT holds the queue of what comes towards it."""
    params, flow = make_params(), make_flow()
    flow.delay.full_us = 1000
    flow.acked_bytes = 1_000_000
    lib.mltcp_begin(flow, params, 100 * MS, received, ffi.NULL)
    lib.mltcp_count(flow, 101 * MS, 1_000_000)
    lib.mltcp_decide(flow, params, ALL, 101 * MS, ffi.NULL, 0)
    assert bool(flow.yield_us) == yields


KIB = 1024


@pytest.mark.parametrize(
    ("rx", "tx", "bidirectional"),
    [
        (0, 1000, False),
        (100, 1000, False),
        (200, 1000, True),
        (1250, 64_000, False),  # to 64 flows of a mebibyte each
        (-5, 1000, False),  # nothing but short ACKs
        (100_000, -1000, True),  # of what it receives
    ],
)
def test_flow_of_receiving_host_does_not_yield(rx: int, tx: int, bidirectional: bool) -> None:
    """Its own connection carries nothing towards it; what counts is the latest iteration."""
    params, flow = make_params(), make_flow()
    env = make_env(flow, params)
    env.host.rx_kib, env.host.tx_kib = U32 - 100, U32 - 100  # they wrap
    flow.delay.full_us = 1000

    def iteration(number: int) -> None:
        lib.mltcp_on_send(flow, number * 200 * MS, 0)
        lib.mltcp_step(env, flow, number * 200 * MS + MS, number * 1_000_000 - 500_000)
        lib.mltcp_step(env, flow, number * 200 * MS + 2 * MS, number * 1_000_000)

    for number in range(1, 4):
        iteration(number)
        seen = bool(flow.flags & lib.MLTCP_HOST_BIDIRECTIONAL)
        assert seen == (bidirectional and number > 1)
        env.host.rx_kib = (env.host.rx_kib + rx) & U32
        env.host.tx_kib = (env.host.tx_kib + tx) & U32
    assert bool(flow.yield_us) == (not bidirectional)
    env.host.rx_kib = (env.host.rx_kib - rx) & U32
    iteration(4)
    assert not flow.flags & lib.MLTCP_HOST_BIDIRECTIONAL


def test_what_a_host_receives_is_counted_without_its_acks() -> None:
    assert lib.mltcp_host_kib(1000 * 1448 + 1000 * 112, 1000) == 1448 * 1000 // KIB
    assert lib.mltcp_host_kib(1000 * 52, 1000) == (-1000 * 60 // KIB) & U32


def test_flow_without_iterations_decides_100_times_a_second() -> None:
    """Whatever it sends meanwhile, and though it pauses for less; not at every idle restart."""
    params, flow = make_params(burst_bytes=0, gap_ns=0), make_flow()
    ack(flow, params, 100 * MS, 1000)
    decided = set()
    for k in range(1, 400):
        now = 100 * MS + k * MS // 4  # a hundred milliseconds
        sent = now - 5000 if k % 4 == 0 else None
        ack(flow, params, now, 1000 + k * 65536, sent)
        decided.add(flow.next_ns)
    assert len(decided) in (10, 11)


def test_no_gap_shorter_than_a_millisecond_ends_an_iteration() -> None:
    """Else a job that says so has its listeners told of an iteration for each segment."""
    params, flow = make_params(gap_ns=1, burst_bytes=1000), make_flow()
    ack(flow, params, 100 * MS, 1000)
    for k in range(1, 50):
        now = 100 * MS + k * MS
        assert not ack(flow, params, now, 1000 + k * 1000, now - MS // 10)
    assert ack(flow, params, 152 * MS, 60_000, 151 * MS)


def test_yielding_shrinks_once_per_rtt_and_ends_in_slow_start() -> None:
    flow = behind_and_ahead(sent=0, rtt_us=1100)
    flow.last_ns = 5 * MS
    assert avoid(flow, 100, 60) == (True, 50, 50)  # at most half
    flow.last_ns += 1
    assert avoid(flow, 50, 50) == (True, 50, 50)
    flow.last_ns = 7 * MS
    assert avoid(flow, 50, 50) == (True, 25, 25)
    see_queue(flow, flow.yield_us // 2)
    assert avoid(flow, 25, 25) == (False, 25, 25)  # the queue is still long
    see_queue(flow, 0)
    assert avoid(flow, 25, 25, srtt_us=100) == (False, 25, 25)  # the queue doesn't show the cut yet
    flow.last_ns = 9 * MS
    assert avoid(flow, 25, 25, srtt_us=100) == (False, 25, 100)
    assert avoid(flow, 25, 25) == (False, 25, 25)


def test_a_flow_that_yields_in_slow_start_takes_it_up_again() -> None:
    """With long round trips it would else stay where it was, far from its share."""
    flow = behind_and_ahead(sent=0, rtt_us=1100)
    flow.last_ns = 5 * MS
    assert avoid(flow, 20, 80) == (True, 10, 10)
    see_queue(flow, 0)
    flow.last_ns = 7 * MS
    assert avoid(flow, 10, 10, srtt_us=50) == (False, 10, 80)


def test_yielded_share_is_of_the_rtt_not_of_the_queue() -> None:
    """Flows don't yield what fills the pipe: 0.6 ms too much of 30 ms, taken three times."""
    flow = behind_and_ahead(sent=0, rtt_us=1100)
    flow.last_ns = 50 * MS
    assert flow.delay.queue_us - flow.yield_us == 601
    assert avoid(flow, 1000, 1000, srtt_us=30_000) == (True, 940, 940)


def test_flow_decides_at_each_step_and_after_full_yield() -> None:
    flow = behind_and_ahead(sent=0, rtt_us=110)
    step = 1_000_000 // lib.MLTCP_STEPS
    assert not lib.mltcp_is_due(flow, 2, step - 1)
    assert lib.mltcp_is_due(flow, 2, step)
    assert lib.mltcp_is_due(flow, 1 + 100 * MS + 1, 0)  # it yields no longer than the job's gap


@pytest.mark.parametrize("ssthresh", [0x7FFFFFFF, 80])
def test_a_loss_is_final(ssthresh: int) -> None:
    """Nothing yielded before a loss is taken back after it, in recovery or after a timeout."""
    flow = behind_and_ahead(sent=0, rtt_us=1100)
    flow.last_ns = 5 * MS
    _, cwnd, _ = avoid(flow, 20, ssthresh)
    lose(flow)
    left = cwnd // 2
    see_queue(flow, 0)
    for window in (1, left, 4 * left):
        assert avoid(flow, window, left) == (False, window, left)
    # It may yield again below what the loss has left, and take that back, but no more.
    see_queue(flow, 1000)
    flow.last_ns = 50 * MS
    assert avoid(flow, 1, left)[0]
    see_queue(flow, 0)
    assert avoid(flow, 1, 1, srtt_us=1)[2] <= left


def test_flow_does_not_yield_after_rto_to_the_earlier_queue() -> None:
    """Segments sent twice have no round trip, so nothing would say that the queue has gone."""
    flow = behind_and_ahead(sent=0, rtt_us=1100)
    flow.last_ns = 5 * MS
    assert lib.mltcp_must_yield(flow)
    lose(flow)
    lib.mltcp_on_time_out(flow, flow.last_ns)
    threshold = 40
    cwnd = 1
    for _ in range(6):  # slow start, a round trip at a time
        flow.last_ns += 2 * MS
        yields, cwnd, threshold = avoid(flow, cwnd, threshold)
        assert (yields, threshold) == (False, 40)
        cwnd = min(2 * cwnd, threshold)
    assert cwnd == 40


def test_queue_seen_after_rto_leaves_at_least_minimum_window() -> None:
    """One segment is under way, and its ACK tells of a queue: a threshold of one segment would end
    slow start there."""
    flow = behind_and_ahead(sent=0, rtt_us=1100)
    flow.last_ns = 5 * MS
    lose(flow)
    lib.mltcp_on_time_out(flow, flow.last_ns)
    threshold = 40
    cwnd = 1
    for _ in range(4):
        see_queue(flow, 1000)
        flow.last_ns += 2 * MS
        assert lib.mltcp_must_yield(flow)
        yields, left, threshold = avoid(flow, cwnd, threshold)
        assert (yields, left, threshold) == (True, cwnd, lib.MLTCP_CWND_MIN)
        cwnd = min(cwnd + 1, threshold)
    assert flow.resume_ssthresh == 40


def test_flow_moved_during_recovery_undoes_nothing_of_before() -> None:
    flow, slot = behind_and_ahead(sent=1_000_000, rtt_us=1100), word()
    lose(flow)
    lib.mltcp_reset(flow, 2, flow.acked_bytes, 0)
    lib.mltcp_on_undo(flow, slot, 7)
    assert (flow.losses, flow.resume_ssthresh) == (0, 0)
    lose(flow)
    lib.mltcp_on_undo(flow, slot, 7)
    assert flow.losses == 0


def test_spurious_loss_leaves_flow_and_siblings_as_they_were() -> None:
    flow, sibling, slot = behind_and_ahead(sent=0, rtt_us=1100), make_flow(), word()
    lib.mltcp_delay_tell(ffi.addressof(flow.delay), slot, 7)
    flow.last_ns = 5 * MS
    assert avoid(flow, 100, 100)[1] == 50
    known = flow.delay.full_us, flow.losses
    lib.mltcp_on_loss(flow, 100, 0, slot, 7)
    assert flow.delay.full_us != known[0]
    assert flow.resume_ssthresh == 0
    lib.mltcp_on_undo(flow, slot, 7)
    assert known == (flow.delay.full_us, flow.losses)
    assert flow.resume_ssthresh == 100
    lib.mltcp_delay_ask(ffi.addressof(sibling.delay), slot, 7)
    assert sibling.delay.full_us == flow.delay.full_us
    lib.mltcp_on_undo(flow, slot, 7)  # there is nothing left to undo
    assert flow.losses == known[-1]


def test_a_spurious_first_loss_is_forgotten_by_all() -> None:
    flow, sibling, slot = behind_and_ahead(sent=0, rtt_us=1100), make_flow(), word()
    flow.delay.full_us = 0
    lose(flow, 300, slot)
    lib.mltcp_delay_ask(ffi.addressof(sibling.delay), slot, 1)
    assert flow.delay.full_us == sibling.delay.full_us == 300
    lib.mltcp_on_undo(flow, slot, 1)
    lib.mltcp_delay_ask(ffi.addressof(sibling.delay), slot, 1)
    assert flow.delay.full_us == sibling.delay.full_us == 0
    flow.yield_us, flow.resume_ssthresh, flow.last_ns = 0, 80, 50 * MS
    assert avoid(flow, 20, 20) == (False, 20, 80)


def test_value_of_a_sibling_since_a_spurious_loss_stays() -> None:
    flow, sibling, slot = behind_and_ahead(sent=0, rtt_us=1100), make_flow(), word()
    lose(flow, 300, slot)
    lose(sibling, 500, slot)
    told = slot[0]
    lib.mltcp_on_undo(flow, slot, 1)
    assert slot[0] == told


def test_trusted_flow_behind_grows_as_one_ahead_without_queue() -> None:
    flow = behind_and_ahead(sent=0, rtt_us=110)
    short, params = flow.yield_us // 4 - 1, make_params()
    flow.iteration = 2

    def gain(queue_us: int, mechanisms: int) -> float:
        see_queue(flow, queue_us)
        lib.mltcp_decide(flow, params, mechanisms, 2, ffi.NULL, 0)
        return sum(lib.mltcp_scaled_acked(flow, 1) for _ in range(100)) / 100

    assert gain(short, ALL) == 2
    assert gain(short + 1, ALL) == 0.25
    assert gain(short, INCREASE | YIELD) == 0.25
    assert gain(short, INCREASE | TRUSTED) == 0.25  # nothing is yielded


def test_flow_ahead_grows_by_its_gain() -> None:
    flow = behind_and_ahead(sent=900_000, rtt_us=700)
    assert flow.gain > ONE
    scaled = sum(lib.mltcp_scaled_acked(flow, 1) for _ in range(100))
    assert scaled == 100 * flow.gain // ONE


@pytest.mark.parametrize("mechanisms", [INCREASE | YIELD, ALL])
def test_raised_total_holds_from_the_next_iteration(mechanisms: int) -> None:
    """F would else stay at its largest, just ahead of what has been sent."""
    params, flow, first = make_params(), make_flow(), 1_000_000
    for sent in range(0, 4 * first, 10_000):
        params.burst_bytes = max(first, sent + 1)
        ack(flow, params, MS + sent, sent, mechanisms=mechanisms)
        if sent > first + first // 4:
            assert not flow.active
            assert flow.gain == ONE
    ack(flow, params, 400 * MS, 4 * first, sent=300 * MS, mechanisms=mechanisms)
    assert flow.active
    assert lib.mltcp_total(flow) == params.burst_bytes


@pytest.mark.parametrize(("trusted", "gain"), [(0, ONE), (TRUSTED, 2 * ONE)])
def test_untrusted_flow_tagged_with_each_ack_is_its_base(trusted: int, gain: int) -> None:
    size = 14_480
    params, flow = make_params(burst_bytes=size), make_flow()
    for number in range(1, 20):
        lib.mltcp_reset(flow, 1 + number % 2, flow.acked_bytes, 0)
        ack(flow, params, number * MS, number * size, mechanisms=INCREASE | trusted)
        assert flow.gain == gain


def test_untrusted_flow_acts_after_its_first_pause() -> None:
    params, flow = make_params(), make_flow()
    ack(flow, params, MS, 1000, mechanisms=INCREASE)
    assert flow.gain == ONE
    ack(flow, params, 300 * MS, 2000, sent=200 * MS, mechanisms=INCREASE)
    assert flow.gain < ONE


def test_what_a_burst_has_not_taken_back_the_next_one_does() -> None:
    params, flow = make_params(), behind_and_ahead(sent=0, rtt_us=1100)
    flow.last_ns = 5 * MS
    _, cwnd, ssthresh = avoid(flow, 20, 80)
    lib.mltcp_on_send(flow, 1000 * MS, 0)
    lib.mltcp_begin(flow, params, 1001 * MS, 0, ffi.NULL)
    see_queue(flow, 0)
    assert avoid(flow, cwnd, ssthresh, srtt_us=50)[2] == 80


def begin_small(flow: Any, cwnd: int, ssthresh: int, srtt_us: int, min_us: int) -> tuple[int, int]:
    """Window and threshold with which sending begins anew."""
    window, threshold = ffi.new("uint32_t *", cwnd), ffi.new("uint32_t *", ssthresh)
    flow.cwnd = flow.cwnd or cwnd
    lib.mltcp_begin_small(flow, srtt_us, min_us, window, threshold)
    return window[0], threshold[0]


def test_iteration_starts_at_path_capacity_and_grows_by_queue() -> None:
    flow = behind_and_ahead(sent=1_000_000, rtt_us=700)
    assert begin_small(flow, 80, 60, srtt_us=800, min_us=100) == (10, 10)
    flow.last_ns = 5 * MS
    see_queue(flow, flow.yield_us // 2)
    assert avoid(flow, 10, 10)[2] == 10
    flow.last_ns += 2 * MS
    see_queue(flow, 0)
    assert avoid(flow, 10, 10, srtt_us=100)[2] == 80


def test_window_restarted_by_the_base_is_not_reduced_again() -> None:
    """With long round trips the path holds more than the base begins with after a pause."""
    flow = behind_and_ahead(sent=1_000_000, rtt_us=700)
    flow.cwnd = 80
    assert begin_small(flow, 20, 60, srtt_us=800, min_us=200) == (20, 60)
    assert begin_small(flow, 21, 60, srtt_us=800, min_us=200) == (20, 20)


@pytest.mark.parametrize(("cwnd", "left"), [(8, 4), (4, 4), (3, 3)])
def test_loss_of_one_segment_of_first_window_is_detected(cwnd: int, left: int) -> None:
    flow = behind_and_ahead(sent=1_000_000, rtt_us=700)
    assert begin_small(flow, cwnd, cwnd, srtt_us=800, min_us=10)[0] == left


@pytest.mark.parametrize(
    ("sent", "full_us", "srtt_us"),
    [(900_000, 1000, 800), (1_000_000, 0, 800), (1_000_000, 1000, 100), (1_000_000, 1000, 0)],
    ids=["within an iteration", "nothing is known of the queue", "no queue", "no round trip yet"],
)
def test_sending_begins_with_the_window_it_had(sent: int, full_us: int, srtt_us: int) -> None:
    params, flow = make_params(), make_flow()
    flow.delay.full_us = full_us
    ack(flow, params, 1, sent, rtt_us=700, min_rtt_us=100)
    assert begin_small(flow, 80, 60, srtt_us, min_us=100) == (80, 60)
    assert not flow.resume_ssthresh


@given(st.tuples(fields32, fields32), st.integers(0, U32), st.integers(1, U32), fields32, times)
@example((1, 20), 10**6, 1, 1000, 10**9)
def test_yielding_is_defined_for_any_state(
    window: tuple[int, int], queue: int, target: int, srtt: int, now: int
) -> None:
    flow = make_flow()
    see_queue(flow, queue)
    flow.yield_us, flow.last_ns = target, now
    yields, left, ssthresh = avoid(flow, *window, srtt)
    assert yields == (queue > target)
    if flow.yields:
        assert window[0] // 2 <= left <= window[0]
        assert left >= min(window[0], lib.MLTCP_CWND_MIN)
        assert ssthresh <= max(left, lib.MLTCP_CWND_MIN)
        assert ssthresh >= min(window[1], lib.MLTCP_CWND_MIN)


@given(
    st.builds(dict, burst_bytes=st.integers(0, lib.MLTCP_TOTAL_MAX),
              gap_ns=st.integers(0, lib.MLTCP_GAP_MAX_NS),
              slope=slopes, intercept=slopes,
              yield_min=ratios, yield_max=ratios),
    st.lists(
        st.tuples(times, fields64, st.none() | times, st.integers(-(2**31), 2**31 - 1), fields32,
                  st.sampled_from(["ack", "loss", "avoid", "send"])),
        max_size=30,
    ),
)  # fmt: skip
def test_no_sequence_of_events_leaves_the_defined_range(
    fields: dict[str, int], events: list[tuple[int, int, int | None, int, int, str]]
) -> None:
    params, flow, slot = make_params(**fields), make_flow(), ffi.new("unsigned long long *")
    assert lib.mltcp_params_valid(params)
    for now, acked, sent, rtt_us, number, kind in events:
        if kind == "ack":
            ack(flow, params, now, acked, sent, rtt_us, number)
        elif kind == "loss":
            lose(flow, acked & U32)
        elif kind == "send":
            cwnd, _ = begin_small(flow, number, acked & U32, now & U32, rtt_us & U32)
            assert min(number, lib.MLTCP_CWND_BEGIN) <= cwnd <= number
        else:
            lib.mltcp_delay_ask(ffi.addressof(flow.delay), slot, number)
            avoid(flow, number, acked & U32, now & U32)
            lib.mltcp_scaled_acked(flow, number)
        assert flow.ratio <= ONE
        assert flow.gain <= 8 * ONE
        assert flow.carry < ONE


def begun(params: Any, job_word: Any) -> tuple[Any, Any]:
    """Two flows of a job whose iteration begins at 200 ms."""
    flows = make_flow(), make_flow()
    for flow in flows:
        ack(flow, params, 1 * MS, 1000, sent=0, job_word=job_word)
        ack(flow, params, 200 * MS, 2000, sent=199 * MS, job_word=job_word)
        assert flow.iteration == 2
    return flows


def test_a_jobs_flows_have_the_ratio_of_the_furthest() -> None:
    params, shared = make_params(), word()
    one, other = begun(params, shared)
    ack(one, params, 201 * MS, 751_000, job_word=shared)
    ack(other, params, 202 * MS, 101_000, job_word=shared)
    assert (other.ratio, other.gain) == (ONE // 10, one.gain)
    ack(other, params, 203 * MS, 901_000, job_word=shared)
    ack(one, params, 204 * MS, 771_000, job_word=shared)
    assert one.gain == other.gain > ONE * 3 // 2


def test_a_jobs_next_iteration_begins_for_all_its_flows() -> None:
    params, shared = make_params(), word()
    one, other = begun(params, shared)
    ack(one, params, 201 * MS, 1_001_000, job_word=shared)
    ack(one, params, 400 * MS, 1_002_000, sent=399 * MS, job_word=shared)
    ack(other, params, 401 * MS, 101_000, job_word=shared)
    assert other.gain == lib.mltcp_gain(params, ONE // 10)


@pytest.mark.parametrize(("mechanisms", "key"), [(INCREASE, 0), (ALL, 1)])
def test_others_flows_have_ratios_of_their_own(mechanisms: int, key: int) -> None:
    """Of a job that isn't the administrator's, and where another path's flows keep theirs."""
    params, shared = make_params(), word(key << 32 | ONE)
    _, other = begun(params, shared)
    shared[0] = key << 32 | ONE
    ack(other, params, 202 * MS, 101_000, mechanisms=mechanisms, job_word=shared)
    assert other.gain == lib.mltcp_gain(params, ONE // 10)
