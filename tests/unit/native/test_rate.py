"""The law of windows from feedback, against exact arithmetic and in closed loops."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltcp_tools.native.rate import rate
from mltcp_tools.native.uapi import ONE

lib, ffi = rate()

QUEUE, BUSY = lib.MLTCP_HOP_QUEUE, lib.MLTCP_HOP_BUSY
MSS = 1448
US = 1000
MS = 1_000_000
NEVER_LOST = 0x7FFFFFFF
NS_PER_KIB = 40_960  # 200 Mbit/s


def make_params(**fields: int) -> Any:
    defaults = {"target_us": 200, "low": ONE * 4 // 10, "add_bytes": MSS, "host": 0}
    return ffi.new("struct mltcp_rate_params *", defaults | fields)


def follow(
    state: Any,
    now: int,
    acked: int,
    cwnd: int,
    params: Any = None,
    gain: int = ONE,
    ratio: int = ONE,
    ssthresh: int = 2,
) -> int:
    """The window after an ACK, on a path of 100 us."""
    chosen = make_params() if params is None else params
    window: int = lib.mltcp_rate_window(
        state, chosen, now, acked, cwnd, ssthresh, MSS, 100, 100, gain, ratio
    )
    return window


@given(st.lists(st.tuples(st.integers(0, 2 * MS), st.integers(64, 1514)), min_size=1, max_size=50))
def test_a_hop_counts_what_waits(packets: list[tuple[int, int]]) -> None:
    hop = ffi.new("struct mltcp_hop *")
    now, waits_ns = MS, 0
    for pause, size in packets:
        now += pause
        waits_ns = max(0, waits_ns - pause)
        said = lib.mltcp_hop_pass(hop, now, size, NS_PER_KIB)
        if waits_ns >= US:
            assert said == QUEUE | waits_ns // US
        else:
            assert said < QUEUE
        waits_ns += size * NS_PER_KIB // 1024


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_hop_knows_how_busy_it_is(share: float) -> None:
    hop = ffi.new("struct mltcp_hop *")
    step = round(1514 * NS_PER_KIB / 1024 / share)
    said = [lib.mltcp_hop_pass(hop, n * step, 1514, NS_PER_KIB) for n in range(1, 500)]
    assert said[-1] / BUSY == pytest.approx(share, abs=0.05)
    # After a long pause nothing is known of what was.
    assert lib.mltcp_hop_pass(hop, 501 * step + 10 * MS, 64, NS_PER_KIB) < BUSY // 100


def test_a_queue_is_worse_than_any_load() -> None:
    """The worst hop says the largest number, so the next ones need only the maximum."""
    full = ffi.new("struct mltcp_hop *")
    for _ in range(100):
        said = lib.mltcp_hop_pass(full, MS, 1514, NS_PER_KIB)
    idle = ffi.new("struct mltcp_hop *")
    assert lib.mltcp_hop_pass(idle, MS, 1514, NS_PER_KIB) < QUEUE <= said < 1 << 16
    for _ in range(2000):
        said = lib.mltcp_hop_pass(full, MS, 1514, NS_PER_KIB)
    assert said == QUEUE | (QUEUE - 1)


@given(st.integers(0, 30_000), st.integers(1, 30_000), st.integers(0, 10_000), st.integers(0, ONE))
def test_load_is_just_right_at_the_target(
    queue_us: int, target_us: int, min_rtt_us: int, ratio: int
) -> None:
    params = make_params(target_us=target_us)
    state = ffi.new("struct mltcp_rate *", {"queue_us": queue_us, "busy": ONE})
    load = Fraction(lib.mltcp_rate_load(state, params, min_rtt_us, ratio), ONE)
    accepted = max(target_us, min_rtt_us // 4)
    low = Fraction(params.low, ONE)
    target = accepted * (low + (1 - low) * Fraction(ratio, ONE))
    if queue_us:
        exact = 1 + (queue_us - target) / (min_rtt_us + accepted)
        # The target is a whole number of microseconds.
        assert abs(load - max(exact, Fraction(1, 2))) <= Fraction(2, min_rtt_us + accepted)
    else:
        assert load == 1


@given(st.integers(0, 2**16 - 1), st.integers(2, 4000), st.integers(0, 64 * ONE))
def test_a_step_divides_by_the_load(value: int, cwnd: int, gain: int) -> None:
    state = ffi.new("struct mltcp_rate *")
    lib.mltcp_rate_hear(state, 10 * MS, value, 100)
    assert follow(state, 10 * MS, 0, cwnd, gain=gain) == cwnd
    load = lib.mltcp_rate_load(state, make_params(), 100, ONE)
    sent = 100 * cwnd * MSS
    now = follow(state, 10 * MS + 100 * US, sent, cwnd, gain=gain)
    factor = min(Fraction(2), max(Fraction(1, 2), Fraction(ONE, load or 1)))
    exact = factor * cwnd + Fraction(gain, ONE)
    assert abs(now - max(exact, 2)) <= 1
    # Within the same round trip nothing more happens.
    assert follow(state, 10 * MS + 150 * US, sent, now, gain=gain) == now


def test_a_window_that_is_not_used_does_not_grow() -> None:
    state = ffi.new("struct mltcp_rate *")
    lib.mltcp_rate_hear(state, MS, BUSY // 10, 100)
    assert follow(state, MS, 0, 40) == 40
    assert follow(state, MS + 200 * US, 10 * MSS, 40) == 40
    assert follow(state, MS + 400 * US, 50 * MSS, 40) == 80 + 1


def test_it_goes_on_from_what_a_loss_has_left() -> None:
    state = ffi.new("struct mltcp_rate *")
    lib.mltcp_rate_hear(state, MS, QUEUE | 200, 100)
    follow(state, MS, 0, 40)
    assert follow(state, MS + 50 * US, 10 * MSS, 7) == 7


def test_slow_start_is_left_alone_until_the_path_is_full() -> None:
    state = ffi.new("struct mltcp_rate *")
    lib.mltcp_rate_hear(state, MS, BUSY // 2, 100)
    assert follow(state, MS, 0, 10, ssthresh=NEVER_LOST) == 0
    assert not state.follows
    for _ in range(20):
        lib.mltcp_rate_hear(state, MS, QUEUE | 300, 100)
    assert follow(state, MS, 0, 10, ssthresh=NEVER_LOST) == 10
    assert state.follows


@given(st.integers(0, 1_000_000), st.integers(0, 10**10))
def test_feedback_grows_stale(srtt_us: int, age_ns: int) -> None:
    state = ffi.new("struct mltcp_rate *")
    assert not lib.mltcp_rate_fresh(state, 10**12, srtt_us)
    lib.mltcp_rate_hear(state, 10**12, 0, srtt_us)
    limit = max(lib.MLTCP_STALE_NS, srtt_us * 1000 * lib.MLTCP_STALE_RTTS)
    assert bool(lib.mltcp_rate_fresh(state, 10**12 + age_ns, srtt_us)) is (age_ns <= limit)


def test_its_loss_is_counted_once() -> None:
    state = ffi.new("struct mltcp_rate *")
    lib.mltcp_rate_lose(state)
    assert state.fallbacks == 0
    lib.mltcp_rate_hear(state, MS, QUEUE | 300, 100)
    follow(state, MS, 0, 10)
    for _ in range(3):
        lib.mltcp_rate_lose(state)
    assert (state.fallbacks, state.follows, state.heard_ns) == (1, 0, 0)


@given(st.integers(0, 2**32 - 1))
def test_a_guess_is_a_hops_word(queue_us: int) -> None:
    said = lib.mltcp_rate_guess(queue_us)
    assert said < 1 << 16
    assert (said >= QUEUE) is (queue_us > 50)


def share_of(ratios: list[int], round_trips: int) -> list[float]:
    """Shares of a link of 200 Mbit/s and 1 ms, of flows that stay at these ratios."""
    params = make_params()
    states = [ffi.new("struct mltcp_rate *") for _ in ratios]
    windows = [50] * len(ratios)
    carried = 25_000  # bytes per ms
    acked = [0] * len(ratios)
    for trip in range(1, round_trips + 1):
        now = trip * MS
        total = sum(windows) * MSS
        queue_us = max(0, total - carried) * 1000 // carried
        value = QUEUE | queue_us if queue_us else total * BUSY // carried
        for flow, state in enumerate(states):
            acked[flow] += windows[flow] * MSS * min(carried, total) // total
            lib.mltcp_rate_hear(state, now, value, 1000)
            windows[flow] = lib.mltcp_rate_window(
                state,
                params,
                now,
                acked[flow],
                windows[flow],
                2,
                MSS,
                1000,
                1000,
                ONE,
                ratios[flow],
            )
    return [window / sum(windows) for window in windows]


def test_equals_share_equally_and_the_one_ahead_gets_more() -> None:
    assert share_of([ONE // 2, ONE // 2], 200) == pytest.approx([0.5, 0.5], abs=0.1)
    ahead, behind = share_of([ONE, 0], 200)
    assert ahead > 2 * behind


def test_a_queue_that_has_gone_is_forgotten() -> None:
    """Else the window would grow as slowly ever after as next to a queue."""
    state = ffi.new("struct mltcp_rate *")
    lib.mltcp_rate_hear(state, MS, QUEUE | 300, 100)
    for _ in range(40):
        lib.mltcp_rate_hear(state, MS, BUSY // 10, 100)
    assert state.queue_us == 0
    assert lib.mltcp_rate_load(state, make_params(), 100, ONE) < ONE // 5
