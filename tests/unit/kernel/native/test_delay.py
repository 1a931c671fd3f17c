# SPDX-License-Identifier: BSD-2-Clause
"""The delay signal (kmod/mltcp_delay.h): what of a round-trip time is queue, and what isn't."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.core import core

lib, ffi = core()

U32 = 2**32 - 1
BASE_US = 200
FULL_US = 1000
S = 1_000_000_000
AGE = lib.MLTCP_DATES_MAX + 1 << lib.MLTCP_DATE_SHIFT
KEY = 0xC0FFEE42


def make_delay(**fields: int) -> Any:
    return ffi.new("struct mltcp_delay *", fields)


def sample(delay: Any, now_us: int, rtt_us: int, **fields: int) -> int:
    """One ACK of two segments, unless `fields` say otherwise; the queue as known afterwards."""
    usual = {"min_us": BASE_US, "segments": 2, "bytes": 2896, "outstanding": 20}
    given_fields = usual | {"now_us": now_us & U32, "rtt_us": rtt_us} | fields
    lib.mltcp_delay_rtt(delay, ffi.new("struct mltcp_rtt *", given_fields))
    return int(delay.queue_us)


def lose(delay: Any, now: int, queue_us: int, srtt_us: int | None = None) -> int:
    """A loss with so much queue; the full queue as known afterwards."""
    delay.queue_us = queue_us
    lib.mltcp_delay_full(delay, now, BASE_US + queue_us if srtt_us is None else srtt_us, BASE_US)
    return int(delay.full_us)


def ask(delay: Any, now: int, slot: Any, key: int = KEY) -> int:
    lib.mltcp_delay_ask(delay, now, slot, key)
    return int(delay.full_us)


def make_slot() -> Any:
    return ffi.new("unsigned long long *")


def test_the_queue_is_what_is_beyond_the_least_round_trip() -> None:
    delay = make_delay()
    assert sample(delay, 10_000, 900) == 700
    assert sample(delay, 20_000, 150) == 0
    assert sample(delay, 30_000, 500) == 300


@pytest.mark.parametrize("rtt_us", [0, -1])
def test_without_a_sample_what_is_known_stays(rtt_us: int) -> None:
    delay = make_delay(queue_us=123, sent_us=7)
    assert sample(delay, 10_000, rtt_us) == 123
    assert delay.sent_us == 7


@pytest.mark.parametrize(("rtt_us", "queue_us"), [(4000, 100), (4001, 3801)])
def test_a_whole_millisecond_after_a_retransmission_is_no_queue(rtt_us: int, queue_us: int) -> None:
    """Linux takes the coarse timestamp where the ACK covers data that was sent twice."""
    delay = make_delay(queue_us=100)
    assert sample(delay, 10_000, rtt_us, retransmitted=3) == queue_us


def test_millisecond_clock_needs_a_flow_without_retransmission() -> None:
    assert sample(make_delay(), 10_000, 4000) == 3800


def test_an_ack_that_the_receiver_may_have_delayed_is_no_queue() -> None:
    delay = make_delay(queue_us=100)
    assert sample(delay, 90_000, 40_250, segments=1, bytes=1448, outstanding=0) == 100
    # But it shows that the queue is no longer than that,
    assert sample(delay, 190_000, 250, segments=1, bytes=1448, outstanding=0) == 50
    # and what comes while more is on its way, or for two segments, wasn't delayed.
    assert sample(delay, 290_000, 900, segments=1, bytes=1448) == 700
    assert sample(delay, 390_000, 950, outstanding=0) == 750


@pytest.mark.parametrize("start_us", [1000, U32 - 500])
def test_first_packet_of_one_instant_gives_the_queue(start_us: int) -> None:
    """A super-packet of 44 segments takes 2.6 ms at 200 Mbit/s; the queue before it was 0.1 ms."""
    delay = make_delay()
    for segment in range(0, 44, 2):
        rtt_us = BASE_US + 100 + segment * 60
        assert sample(delay, start_us + rtt_us, rtt_us) == 100
    assert sample(delay, start_us + 8000, 700) == 500  # another one


def test_a_stretch_ack_is_less_what_its_own_segments_took() -> None:
    """44 segments at 10 Gbit/s take 51 us, of which an ACK of two would have seen 2 us."""
    delay = make_delay()
    lib.mltcp_delay_rate(delay, 1 << 20, 839_000)
    assert delay.kib_ns == 819
    queue_us = sample(delay, 10_000, BASE_US + 30 + 51, segments=44, bytes=44 * 1448)
    assert 30 <= queue_us <= 34


def test_what_is_taken_off_leaves_a_quarter_of_the_sample() -> None:
    """The rate of a flow that shares its link says too much of what its own segments took."""
    delay = make_delay(kib_ns=10_000_000)
    assert sample(delay, 10_000, BASE_US + 400, segments=44, bytes=44 * 1448) == 100


def test_the_rate_is_the_fastest_seen_and_fades() -> None:
    delay = make_delay()
    for ns in (4000, 1600, 2400):
        lib.mltcp_delay_rate(delay, 1 << 20, ns << 10)
    assert delay.kib_ns == 1600
    lib.mltcp_delay_rate(delay, 1023, 1)  # less than a KiB says nothing
    assert delay.kib_ns == 1600
    lib.mltcp_delay_fade(delay)
    assert delay.kib_ns == 1800


def test_a_full_queue_is_learned_from_losses_and_forgets_slowly() -> None:
    delay = make_delay()
    assert lose(delay, 10 * S, 1000) == 1000
    assert lose(delay, 11 * S, 2000) == 1250


def test_a_loss_without_a_queue_says_nothing_of_a_full_one() -> None:
    delay = make_delay()
    assert lose(delay, 10 * S, lib.MLTCP_QUEUE_MIN_US - 1) == 0
    assert lose(delay, 10 * S, 1000) == 1000
    assert lose(delay, 10 * S, lib.MLTCP_QUEUE_MIN_US - 1) == 1000


@pytest.mark.parametrize(
    ("queue_us", "srtt_us", "full_us"),
    [(40_000, BASE_US + 500, 1000), (900, BASE_US + 500, 900), (900, BASE_US, 0),
     (900, BASE_US - 1, 0), (5_000_000, 10_000_000, lib.MLTCP_QUEUE_MAX_US)],
)  # fmt: skip
def test_the_first_full_queue_fits_to_the_smoothed_round_trip(
    queue_us: int, srtt_us: int, full_us: int
) -> None:
    assert lose(make_delay(), 10 * S, queue_us, srtt_us) == full_us


def test_loss_with_absurd_delay_moves_full_queue_by_a_quarter() -> None:
    delay = make_delay()
    lose(delay, 10 * S, 1000)
    assert lose(delay, 11 * S, 700_000) == 1250


def test_what_a_flow_knows_ages() -> None:
    delay, slot = make_delay(), make_slot()
    lose(delay, 10 * S, 1000)
    assert ask(delay, 10 * S + AGE - (2 << lib.MLTCP_DATE_SHIFT), slot) == 1000
    assert ask(delay, 10 * S + AGE, slot) == 0
    lose(delay, 10 * S, 1000)
    assert lose(delay, 10 * S + AGE, 5000) == 5000  # nothing is left to fit to


def test_without_a_loss_no_queue_is_taken_for_full() -> None:
    slot = make_slot()
    assert ask(make_delay(queue_us=5000), 10 * S, slot) == 0
    assert not slot[0]


def test_flows_of_a_path_agree_on_its_full_queue() -> None:
    slot, one, other, stranger = make_slot(), make_delay(), make_delay(), make_delay(full_us=5)
    assert ask(other, 10 * S, slot) == 0  # nobody has lost yet
    lose(one, 10 * S, FULL_US)
    stranger.full_date = one.full_date
    lib.mltcp_delay_tell(one, slot, KEY)
    assert ask(other, 11 * S, slot) == FULL_US
    assert ask(stranger, 11 * S, slot, KEY + 1) == 5
    lib.mltcp_delay_tell(make_delay(), slot, KEY)  # it has found nothing, and takes nothing away
    assert ask(make_delay(), 11 * S, slot) == FULL_US
    lib.mltcp_delay_tell(stranger, slot, KEY + 1)  # the same slot: the latest has it
    assert ask(make_delay(), 11 * S, slot) == 0


def test_path_knowledge_ages_however_often_it_is_used() -> None:
    slot, one = make_slot(), make_delay()
    lose(one, 10 * S, FULL_US)
    lib.mltcp_delay_tell(one, slot, KEY)
    for second in range(10, 290):
        sibling = make_delay()
        assert ask(sibling, second * S, slot) == FULL_US
        lib.mltcp_delay_tell(sibling, slot, KEY)
    assert ask(make_delay(), 10 * S + AGE, slot) == 0


@pytest.mark.parametrize("others_us", [FULL_US * 4, FULL_US // 4])
def test_flow_on_other_path_of_same_hosts_keeps_its_knowledge(others_us: int) -> None:
    """ECMP: queues differ, addresses don't."""
    slot, ours, theirs = make_slot(), make_delay(), make_delay()
    for second in range(10, 20):
        for delay, queue_us in ((theirs, others_us), (ours, FULL_US)):
            ask(delay, second * S, slot)
            lose(delay, second * S, queue_us)
            lib.mltcp_delay_tell(delay, slot, KEY)
    for delay, queue_us in ((theirs, others_us), (ours, FULL_US)):
        assert ask(delay, 20 * S, slot) == pytest.approx(queue_us, rel=0.1)


def test_flows_that_find_about_the_same_agree() -> None:
    slot, ours, theirs = make_slot(), make_delay(), make_delay()
    for second in range(10, 40):
        for delay, queue_us in ((theirs, 1200), (ours, 800)):
            ask(delay, second * S, slot)
            lose(delay, second * S, queue_us)
            lib.mltcp_delay_tell(delay, slot, KEY)
    assert ask(ours, 40 * S, slot) == pytest.approx(ask(theirs, 40 * S, slot), rel=0.1)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**64 - 1), st.integers(-(2**31), 2**31 - 1), st.integers(0, U32),
            st.integers(0, U32), st.integers(0, 2**64 - 1), st.booleans(),
        ),
        max_size=30,
    )
)  # fmt: skip
def test_no_sequence_of_events_leaves_the_defined_range(
    events: list[tuple[int, int, int, int, int, bool]],
) -> None:
    delay, slot = make_delay(), make_slot()
    for now, rtt_us, least, segments, count, lost in events:
        fields = {"min_us": least, "segments": segments, "bytes": count, "outstanding": least & 1}
        fields |= {"stamp": segments}
        before, most = delay.queue_us, max(rtt_us - least, 0)
        assert sample(delay, now & U32, rtt_us, **fields) <= max(before, most)
        lib.mltcp_delay_cross(delay, count & 1)
        lib.mltcp_delay_rate(delay, count, now)
        ask(delay, now, slot, least)
        if lost:
            lib.mltcp_delay_full(delay, now, segments, least)
            lib.mltcp_delay_tell(delay, slot, least)
        assert delay.full_us <= lib.MLTCP_QUEUE_MAX_US
        assert delay.own_losses <= lib.MLTCP_OWN_LOSSES


CLOCK = 0xFFFF_F000
"""Of the receiver, when ours is at 0: soon to wrap."""


def stamped(
    delay: Any, now_us: int, ahead_us: int, back_us: int, skew: float = 0.0, unit_us: int = 1
) -> int:
    """An ACK that came after queues of `ahead_us` and `back_us`; the queue as known afterwards."""
    received_us = int((now_us - BASE_US // 2 - back_us) * (1 + skew))
    stamp = (CLOCK + received_us // unit_us) & U32
    return sample(delay, now_us, BASE_US + ahead_us + back_us, stamp=stamp)


def know_stamps(delay: Any, skew: float = 0.0, unit_us: int = 1) -> int:
    """ACKs on an empty path, one in 120 us, until the stamps should be known; the time then."""
    now_us = 0
    while now_us < 2 * lib.MLTCP_FINE_WITHIN_US:
        now_us += 120
        stamped(delay, now_us, 0, 0, skew, unit_us)
    return now_us


@pytest.mark.parametrize(("unit_us", "fine"), [(1, True), (10, False), (1000, False)])
def test_microsecond_timestamps_of_receiver_are_detected(unit_us: int, fine: bool) -> None:
    delay = make_delay()
    now_us = know_stamps(delay, unit_us=unit_us)
    assert bool(delay.fine) == fine
    # Where they don't, what is queue is all of the round trip, as without any.
    assert stamped(delay, now_us + 120, 300, 500, unit_us=unit_us) == (300 if fine else 800)


def test_they_are_not_known_before_enough_were_seen() -> None:
    delay = make_delay()
    for now_us in range(120, lib.MLTCP_FINE_WITHIN_US, 120):
        stamped(delay, now_us, 0, 0)
    assert not delay.fine
    stamped(delay, lib.MLTCP_FINE_WITHIN_US + 120, 0, 0)
    assert delay.fine


@pytest.mark.parametrize("skew", [-1e-4, 0, 1e-4])
def test_microsecond_timestamps_count_only_the_forward_queue(skew: float) -> None:
    delay = make_delay()
    now_us = know_stamps(delay, skew)
    for ahead_us, back_us in ((0, 0), (300, 0), (900, 5000), (0, 5000), (400, 300), (0, 0)) * 10:
        now_us += 120
        assert stamped(delay, now_us, ahead_us, back_us, skew) == pytest.approx(ahead_us, abs=2)


@pytest.mark.parametrize("waited_us", [300, 20_000])
def test_a_receiver_that_acknowledges_late_makes_no_queue(waited_us: int) -> None:
    """Linux stamps what the application's reading sends with the time of the segment's arrival."""
    delay = make_delay()
    now_us = know_stamps(delay) + waited_us + 500
    received_us = now_us - waited_us - BASE_US // 2
    stamp = (CLOCK + received_us) & U32
    assert sample(delay, now_us, BASE_US + 250 + waited_us, stamp=stamp) == 250


def test_clocks_that_drift_apart_for_an_hour_make_no_queue() -> None:
    """100 parts in a million make 360 ms of it; each short round trip sets the way ahead anew."""
    for skew in (-1e-4, 1e-4):
        delay = make_delay()
        now_us = know_stamps(delay, skew)
        for _ in range(3600):
            now_us += 1_000_000
            assert stamped(delay, now_us, 0, 0, skew) == 0
            assert stamped(delay, now_us + 120, 700, 0, skew) == pytest.approx(700, abs=2)
            assert stamped(delay, now_us + 540, 700, 300, skew) == pytest.approx(700, abs=2)


@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(0, U32)), max_size=50))
def test_lying_receiver_cannot_exceed_the_rtt(
    lies: list[tuple[int, int]],
) -> None:
    delay = make_delay()
    now_us = know_stamps(delay)
    for queue_us, stamp in lies:
        now_us += 120
        before = delay.queue_us
        assert sample(delay, now_us, BASE_US + queue_us, stamp=stamp) <= max(queue_us, before)
    # One short round trip, and it is trusted again.
    assert stamped(delay, now_us + 5000, 0, 0) == 0
    assert stamped(delay, now_us + 10_000, 300, 500) == pytest.approx(300, abs=1)


@pytest.mark.parametrize("jump_us", [-50_000, 50_000])
def test_receiver_clock_jump_is_corrected_by_a_short_rtt(jump_us: int) -> None:
    delay = make_delay()
    now_us = know_stamps(delay)
    for ahead_us, back_us in ((300, 300), (0, 0)):
        now_us += 1000
        stamp = (CLOCK + now_us + jump_us - BASE_US // 2 - back_us) & U32
        queue_us = sample(delay, now_us, BASE_US + ahead_us + back_us, stamp=stamp)
        assert queue_us in ((0, 600) if ahead_us else (0,))
    now_us += 1000
    stamp = (CLOCK + now_us + jump_us - BASE_US // 2 - 300) & U32
    assert sample(delay, now_us, BASE_US + 700, stamp=stamp) == 400


def test_an_ack_without_a_stamp_tells_the_round_trip_alone() -> None:
    delay = make_delay()
    now_us = know_stamps(delay)
    ahead_us = delay.ahead_us
    assert sample(delay, now_us + 1000, BASE_US + 500, stamp=0) == 500
    assert delay.ahead_us == ahead_us


def crossed(delay: Any, two_way: bool = True) -> bool:
    lib.mltcp_delay_cross(delay, two_way)
    return bool(delay.crossed)


def test_acks_wait_with_fine_timestamps_and_much_received() -> None:
    """Not where a busy host delays them: nothing comes in bunches for that."""
    delay = make_delay()
    assert not crossed(delay)
    now_us = know_stamps(delay)
    stamped(delay, now_us + 1000, 0, 5000)
    assert not crossed(delay, two_way=False)
    assert crossed(delay)
    assert not crossed(delay, two_way=False)


def test_with_waiting_acks_only_queue_of_a_full_rtt_stands() -> None:
    delay = make_delay()
    now_us = know_stamps(delay) + 1000
    stamped(delay, now_us, 400, 550)
    assert crossed(delay)
    assert delay.standing_us == 400
    for ahead_us, back_us in ((50, 900), (400, 550), (900, 50)):
        now_us += 1000
        stamped(delay, now_us, ahead_us, back_us)
    lib.mltcp_delay_passed(delay)
    assert delay.standing_us == 50
    # And the queue was full when it was longest, not when the loss was found.
    for ahead_us in (300, 950, 350):
        now_us += 1000
        stamped(delay, now_us, ahead_us, 0)
    lib.mltcp_delay_full(delay, 10 * S, BASE_US + 1000, BASE_US)
    assert delay.full_us == 950
