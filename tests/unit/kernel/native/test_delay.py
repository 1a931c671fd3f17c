# SPDX-License-Identifier: BSD-2-Clause
"""The queueing delay that a flow acts on, and its full queue (kmod/mltcp_delay.h)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.core_flows import U32, ffi, lib, word

BASE_US = 200
KEY = 0xC0FFEE42


def make_delay(**fields: int) -> Any:
    return ffi.new("struct mltcp_delay *", {"least_us": lib.MLTCP_NO_SAMPLE} | fields)


def seen(delay: Any, *queues_us: int) -> int:
    """The queue after samples of these, microseconds, and a look."""
    for queue_us in queues_us:
        lib.mltcp_delay_sample(delay, BASE_US + queue_us, BASE_US)
    lib.mltcp_delay_look(delay)
    return int(delay.queue_us)


def lose(delay: Any, queue_us: int) -> int:
    """A loss with so much queue; the full queue as known afterwards."""
    lib.mltcp_delay_full(delay, BASE_US + queue_us, BASE_US)
    return int(delay.full_us)


def test_the_queue_is_the_minimum_since_the_last_look() -> None:
    delay = make_delay()
    assert seen(delay, 700, 300, 900) == 300
    assert seen(delay, 900) == 900
    assert seen(delay) == 900  # nothing has said otherwise


@pytest.mark.parametrize("noise_us", [50, 1000, 40_000])
def test_one_delayed_sample_is_no_queue(noise_us: int) -> None:
    """A delayed ACK, a coalesced interrupt, a timestamp of milliseconds, a burst of its own."""
    delay = make_delay()
    assert seen(delay, 100, 100 + noise_us, 100) == 100
    assert seen(delay, 100 + noise_us, 100, 100 + noise_us) == 100


def test_a_shorter_sample_is_believed_at_once() -> None:
    delay = make_delay()
    assert seen(delay, 700) == 700
    lib.mltcp_delay_sample(delay, BASE_US + 100, BASE_US)
    assert delay.queue_us == 100
    lib.mltcp_delay_sample(delay, BASE_US + 900, BASE_US)
    assert delay.queue_us == 100


@pytest.mark.parametrize("rtt_us", [0, -1, -(2**31)])
def test_an_ack_without_a_sample_says_nothing(rtt_us: int) -> None:
    delay = make_delay(queue_us=123)
    lib.mltcp_delay_sample(delay, rtt_us, BASE_US)
    lib.mltcp_delay_look(delay)
    assert delay.queue_us == 123


def test_sample_below_the_minimum_rtt_is_no_queue() -> None:
    delay = make_delay(queue_us=5)
    lib.mltcp_delay_sample(delay, BASE_US - 1, BASE_US)
    assert delay.queue_us == 0


def test_a_full_queue_follows_losses_by_a_quarter() -> None:
    delay = make_delay()
    assert lose(delay, 1000) == 1000
    assert lose(delay, 2000) == 1250
    assert lose(delay, 0) == 1250  # a loss without a queue was none of its making


def test_flows_of_a_path_share_the_full_queue() -> None:
    one, other, slot = make_delay(), make_delay(), word()
    lib.mltcp_delay_ask(other, slot, KEY)
    assert other.full_us == 0
    lose(one, 1000)
    lib.mltcp_delay_tell(one, slot, KEY)
    for key, full_us in ((KEY + 1, 0), (KEY, 1000)):
        lib.mltcp_delay_ask(other, slot, key)
        assert other.full_us == full_us


samples = st.tuples(st.integers(-(2**31), 2**31 - 1), st.integers(0, U32))


@given(st.lists(st.tuples(samples, st.booleans()), max_size=30))
def test_the_queue_is_never_longer_than_any_sample_since_a_look(
    events: list[tuple[tuple[int, int], bool]],
) -> None:
    delay = make_delay()
    shortest = U32
    for (rtt_us, min_us), looks in events:
        lib.mltcp_delay_sample(delay, rtt_us, min_us)
        lib.mltcp_delay_full(delay, rtt_us & U32, min_us)
        if rtt_us > 0:
            shortest = min(shortest, max(rtt_us - min_us, 0))
        if looks:
            lib.mltcp_delay_look(delay)
        if shortest < U32:
            assert delay.queue_us <= shortest
        if looks:
            shortest = U32
