# SPDX-License-Identifier: BSD-2-Clause
"""Learning of iterations by flows, on traces; traces.py prints the whole table."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import chain, islice, pairwise
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.core_flows import MS, ack, ffi, lib, make_env
from support.traces import (
    CHANGES,
    FIRST_BYTES,
    MADE,
    NOT_PERIODIC,
    Piece,
    bursts,
    recorded,
    replay,
)

from mltcp_tools.kernel.native.uapi import CONFIDENCE_MAX

SEEDS = range(3)
LATER = {
    "slow_start_of_the_job": 60,  # its pauses look like those between iterations, only longer
    "now_and_then_no_gap": 10,  # one that is missing among the first leaves nothing that repeats
    # The gaps of its chunks take three times as long as those between iterations.
    "90 %, 60 chunks": 5,
    # The first gaps differ by more than three times.
    "eight-flows-cubic job-1/6": 5,
    "eight-flows-cubic job-1/8": 5,
}
"""Iterations after which these are learned, where that is more than four."""

RECORDED = recorded()

HARD = {
    # Gaps between layers are as long as some between iterations.
    "fsdp": 0.7,
    # To each of several ranks every all-to-all sends the same, at even distances.
    "experts": 0.0,
    # The way back of a pipeline sends micro-batches at even distances.
    "pipeline-cubic job-1-rank-1/2": 0.15,
}
"""Recordings of which some flows are learned late, by how their names begin: false boundaries per
iteration that they have at most afterwards."""


def is_hard(name: str) -> bool:
    return name.startswith(tuple(HARD))


def iterations(pieces: Iterator[Piece], count: int) -> Iterator[Piece]:
    """The pieces of so many iterations."""
    seen = 0
    for piece in pieces:
        seen += piece.first
        if seen > count:
            return
        yield piece


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", MADE)
def test_learned_within_four_iterations_and_kept(name: str, seed: int) -> None:
    outcome = replay(iterations(MADE[name](random.Random(seed)), 200))
    assert outcome.total == pytest.approx(FIRST_BYTES[name], rel=0.02)
    assert outcome.learned_after is not None
    assert outcome.learned_after <= LATER.get(name, 4)
    assert outcome.found >= 0.8 * (outcome.iterations - outcome.learned_after)
    assert outcome.false <= 0.02 * outcome.iterations


def size_of_iterations(pieces: list[Piece]) -> float:
    """Bytes (median) between an iteration's first piece and the next one's."""
    starts = [k for k, piece in enumerate(pieces) if piece.first]
    return median(sum(p.bytes for p in pieces[i:j]) for i, j in pairwise(starts))


@pytest.mark.parametrize("name", [name for name in RECORDED if is_hard(name)])
def test_what_is_hard_to_learn_is_learned_late(name: str) -> None:
    outcome = replay(RECORDED[name])
    assert outcome.total == pytest.approx(size_of_iterations(RECORDED[name]), rel=0.02)
    assert outcome.found >= 15
    most = next(most for start, most in HARD.items() if name.startswith(start))
    assert outcome.false <= most * outcome.iterations


@pytest.mark.parametrize("name", [name for name in RECORDED if not is_hard(name)])
def test_what_real_flows_send_is_learned(name: str) -> None:
    pieces = RECORDED[name]
    outcome = replay(pieces)
    assert outcome.total == pytest.approx(size_of_iterations(pieces), rel=0.02)
    assert outcome.learned_after is not None
    assert outcome.learned_after <= LATER.get(name, 4)
    left = outcome.iterations - outcome.learned_after
    assert outcome.missed <= 0.2 * left
    assert outcome.false <= 0.05 * left


@pytest.mark.parametrize("name", [name for name in RECORDED if not is_hard(name)])
def test_what_real_flows_send_is_learned_by_whom_attaches_late(name: str) -> None:
    pieces = RECORDED[name]
    starts = [k for k, piece in enumerate(pieces) if piece.first][3:16:4]
    late = [replay(pieces[start + 1 :]) for start in starts]  # within a burst, where it has gaps
    size = size_of_iterations(pieces)
    assert [each.total for each in late] == [pytest.approx(size, rel=0.02)] * len(late)
    assert median(each.learned_after or 0 for each in late) <= 4


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_the_job_is_learned_within_six_iterations(name: str, seed: int) -> None:
    before, after, size = CHANGES[name]
    rng = random.Random(seed)
    first = list(iterations(before(rng), 40))
    outcome = replay(chain(first, iterations(after(rng), 6)))
    assert outcome.total == pytest.approx(size, rel=0.02)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", NOT_PERIODIC)
def test_what_has_no_period_hardly_ever_acts(name: str, seed: int) -> None:
    outcome = replay(islice(NOT_PERIODIC[name](random.Random(seed)), 3000))
    assert outcome.acting_pieces < 0.1


def test_confidence_falls_when_iterations_differ_and_returns() -> None:
    rng = random.Random(1)
    regular = bursts()
    steady = replay(iterations(regular(rng), 30))
    assert steady.confidence == CONFIDENCE_MAX
    odd = (Piece(300, rng.randrange(100_000, 9_000_000), 100, True) for _ in range(12))
    lost = replay(chain(iterations(regular(rng), 30), odd))
    assert lost.confidence == 0
    odd = (Piece(300, rng.randrange(100_000, 9_000_000), 100, True) for _ in range(12))
    again = replay(chain(iterations(regular(rng), 30), odd, iterations(regular(rng), 12)))
    assert again.confidence > 0
    assert again.total == pytest.approx(2_500_000, rel=0.02)


def test_the_iteration_at_whose_end_a_flow_is_sure_is_reported() -> None:
    flow, params = ffi.new("struct mltcp_flow *"), make_params()
    lib.mltcp_reset(flow, 0, 0, 0)
    reported = []
    for number in range(6):
        lib.mltcp_on_send(flow, number * 300 * MS, 0)
        now = flow.send_ns + 100 * MS
        env = make_env(flow, params)
        lib.mltcp_step(env, flow, now, flow.acked_bytes + 2_500_000)
        reported += [env.reported_bytes] * env.reports
    # Of the first nothing is known yet at its end, and the last one hasn't ended.
    assert reported == [2_500_000] * 4


def make_params(**fields: int) -> Any:
    return ffi.new("struct mltcp_params *", {"slope": 7 << 14, "intercept": 1 << 14} | fields)


def test_the_usual_gap_may_be_longer_than_35_minutes() -> None:
    params, flow = make_params(), ffi.new("struct mltcp_flow *")
    lib.mltcp_reset(flow, 1, 0, 0)
    gap_us, now = 2_400_000_000, MS
    for _ in range(12):
        lib.mltcp_on_send(flow, now, 0)
        ack(flow, params, now + MS, flow.acked_bytes + 2_500_000)
        now += MS + 1000 * gap_us
    assert flow.gap_us == pytest.approx(gap_us, rel=0.001)


@pytest.mark.parametrize("total", [5 << 40, 2**63 - 1])
def test_what_is_told_may_be_more_than_four_tebibytes(total: int) -> None:
    params, flow = make_params(burst_bytes=total), ffi.new("struct mltcp_flow *")
    lib.mltcp_reset(flow, 1, 0, 0)
    lib.mltcp_begin(flow, params, MS, 0, ffi.NULL)

    def ends(sent: int) -> bool:
        """A gap of 100 ms after so many bytes of the iteration."""
        flow.acked_bytes = sent
        lib.mltcp_on_send(flow, flow.last_ns + 100 * MS, 0)
        return bool(lib.mltcp_is_boundary(flow, params))

    assert not ends(total & ((4 << 40) - 1))
    assert not ends(total // 16 * 15)
    assert ends(total - total // 100)
    assert ends(total)


@pytest.mark.parametrize("given", [{"burst_bytes": 2_500_000}, {"gap_ns": 170_000_000}, {}])
def test_what_is_told_need_not_be_learned(given: dict[str, int]) -> None:
    outcome = replay(
        iterations(bursts(pieces=10, inner_ms=15)(random.Random(1)), 50), make_params(**given)
    )
    assert outcome.total == pytest.approx(2_500_000, rel=0.001)
    assert outcome.found >= 40
    assert outcome.missed <= 3


@pytest.mark.parametrize("first", [2_500_000, 2_500_000_000])
@pytest.mark.parametrize("pieces", [1, 10])
def test_what_is_told_outlives_other_gaps_and_sizes(first: int, pieces: int) -> None:
    """The warm-up's gap of 10 s, a checkpoint of three bursts, and a size that is a thousand times
    too large until it is corrected."""
    params, flow = make_params(burst_bytes=first), ffi.new("struct mltcp_flow *")
    lib.mltcp_reset(flow, 1, 0, 0)
    now, begun, active = MS, [], []
    for number in range(40):
        if number == 5:
            params.burst_bytes = 2_500_000
        for piece in range(3 * pieces if number == 20 else pieces):
            lib.mltcp_on_send(flow, now, 0)
            for part in (1, 2):
                if ack(flow, params, now + part * MS, flow.acked_bytes + 1_250_000 // pieces):
                    begun.append((number, piece))
            active.append(flow.active)
            now += 5 * MS
        now += 10_000 * MS if number == 0 else 100 * MS
    assert begun[-15:] == [(number, 0) for number in range(25, 40)]
    assert all(active[-15 * pieces :])
    assert flow.gap_us == pytest.approx(103_000, rel=0.2)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**64 - 1),  # when sending begins
            st.integers(0, 2**64 - 1),  # when it is acknowledged
            st.integers(0, 2**64 - 1),  # bytes acknowledged in all
        ),
        max_size=30,
    ),
    st.integers(0, 2**63 - 1),
    st.integers(0, 3_600_000_000_000),
)
def test_no_sequence_of_gaps_leaves_the_defined_range(
    steps: list[tuple[int, int, int]], total: int, gap: int
) -> None:
    params = make_params(burst_bytes=total, gap_ns=gap)
    flow = ffi.new("struct mltcp_flow *")
    lib.mltcp_reset(flow, 1, 0, 0)
    for sent, now, acked in steps:
        lib.mltcp_on_send(flow, sent, 0)
        env = make_env(flow, params)
        env.received_bytes = acked
        lib.mltcp_step(env, flow, now, acked)
        assert flow.confidence <= CONFIDENCE_MAX
        assert flow.ratio <= 1 << 16
        assert flow.gain <= 1 << 17
