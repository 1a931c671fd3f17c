# SPDX-License-Identifier: BSD-2-Clause
"""Workers and aggregator over a network that fails in every way: no sum is ever wrong.

The code is that of the workers and of the BPF programs; the references are int64 and float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.aggregation.faults import Array, Outcome, run

from mltcp_tools.collectives.library import Chunks, How, Kind, State, Worker

ALL_FAULTS = {"lose": 0.02, "repeat": 0.02, "delay": 0.05, "corrupt": 0.02, "forge": 0.03}


def integers(count: int, workers: int, collectives: int = 1, seed: int = 1) -> list[list[Array]]:
    rng = np.random.default_rng(seed)
    return [
        [rng.integers(-(2**31), 2**31, count).astype(np.int32) for _ in range(workers)]
        for _ in range(collectives)
    ]


def floats(count: int, workers: int, seed: int = 1, scale: float = 1.0) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal(count) * scale).astype(np.float32) for _ in range(workers)]


def assert_int_sums(collectives: list[list[Array]], outcome: Outcome) -> None:
    for arrays, results, states in zip(collectives, outcome.results, outcome.states, strict=True):
        exact = np.sum([array.astype(np.int64) for array in arrays], axis=0)
        assert set(states) == {State.DONE}
        for result in results:
            assert (result == exact.astype(np.int32)).all()  # modulo 2^32, as int32 is


def error_bound(arrays: list[Array], values: int, width: int = 32) -> Array:
    """Return what worker.h promises for each value of a sum, before it is rounded to its type.

    values: of a packet. width: bits of each.
    """
    workers = len(arrays)
    bits = width - 2 - int(np.ceil(np.log2(workers)))
    largest = np.max(np.abs(np.array(arrays, dtype=np.float64)), axis=0)
    bound = np.empty(largest.size)
    for begin in range(0, largest.size, values):
        top = largest[begin : begin + values].max()
        exponent = np.frexp(top)[1] if top else 0
        bound[begin : begin + values] = workers * 2.0 ** (exponent - bits - 1)
    return bound


def assert_float_sums(arrays: list[Array], outcome: Outcome, values: int = 32) -> None:
    exact = np.sum([array.astype(np.float64) for array in arrays], axis=0)
    assert set(outcome.states[0]) == {State.DONE}
    first = outcome.results[0][0]
    rounding = np.abs(exact) * 2.0**-23
    assert (np.abs(first - exact) <= error_bound(arrays, values) + rounding).all()
    for result in outcome.results[0]:
        assert result.tobytes() == first.tobytes()  # bit for bit on every rank


def test_a_million_packets_with_every_fault_at_once() -> None:
    collectives = integers(100_000, workers=4, collectives=28)
    outcome = run(collectives, Kind.INT32, **ALL_FAULTS)
    assert outcome.report["packets"] >= 1_000_000
    for fault in ("lost", "repeated", "corrupted", "forged", "refused"):
        assert outcome.report[fault] > 1000, fault
    assert_int_sums(collectives, outcome)


@settings(max_examples=60)
@given(
    workers=st.integers(1, 12),
    count=st.integers(1, 5000),
    slots=st.integers(1, 40),
    values=st.sampled_from([4, 32, 352]),
    seed=st.integers(0, 2**32),
    faults=st.fixed_dictionaries({name: st.floats(0, 0.2) for name in ALL_FAULTS}),
)
def test_sums_of_integers(
    workers: int,
    count: int,
    slots: int,
    values: int,
    seed: int,
    faults: dict[str, float],
) -> None:
    collectives = integers(count, workers, collectives=3, seed=seed)
    outcome = run(collectives, Kind.INT32, slots=slots, values=values, seed=seed, **faults)
    assert_int_sums(collectives, outcome)


@pytest.mark.parametrize("fault", [{"lose": 0.02}, {"delay": 0.3}])
def test_workers_with_differing_windows_never_wait_forever(
    fault: dict[str, float],
) -> None:
    """A packet that the aggregator holds has left the window, or nothing else would be sent."""
    collectives = integers(20_000, workers=4, collectives=3)
    outcome = run(collectives, Kind.INT32, slots=256, limit_ns=60 * 10**9, **fault)
    assert_int_sums(collectives, outcome)


def test_nothing_is_refused_where_nobody_forges() -> None:
    collectives = integers(20_000, workers=4)
    outcome = run(collectives, Kind.INT32)
    assert_int_sums(collectives, outcome)
    assert outcome.report["refused"] == 0


@settings(max_examples=60)
@given(
    workers=st.integers(1, 12),
    count=st.integers(1, 3000),
    seed=st.integers(0, 2**32),
    exponent=st.integers(-140, 120),
    sparse=st.booleans(),
    in_use=st.integers(0, 40),
    lose=st.floats(0, 0.1),
)
def test_sums_of_floats_within_the_stated_bound(
    workers: int,
    count: int,
    seed: int,
    exponent: int,
    sparse: bool,
    in_use: int,
    lose: float,
) -> None:
    arrays = floats(count, workers, seed, 2.0**exponent)
    rng = np.random.default_rng(seed)
    for array in arrays:
        for begin in range(0, count, 32):
            if rng.random() < 0.6:
                array[begin : begin + 32] = 0
    outcome = run([arrays], Kind.FLOAT32, sparse=sparse, in_use=in_use, seed=seed, lose=lose)
    assert_float_sums(arrays, outcome)
    for chunks in outcome.chunks:  # marked is what isn't zero everywhere
        for chunk, summed in enumerate(chunks.summed()):
            rows = [array[32 * chunk : 32 * chunk + 32] for array in arrays]
            assert summed == (sparse and any(row.any() for row in rows))


def test_only_chunks_that_are_not_zero_are_sent() -> None:
    arrays = [np.zeros(32 * 4000, dtype=np.float32) for _ in range(4)]
    for rank, array in enumerate(arrays):
        array[32 * 40 * rank : 32 * 40 * rank + 32 * 20] = 1 + rank
    dense = run([arrays], Kind.FLOAT32)
    sparse = run([arrays], Kind.FLOAT32, sparse=True)
    assert_float_sums(arrays, sparse)
    assert sparse.results[0][0].tobytes() == dense.results[0][0].tobytes()
    assert sparse.report["packets"] < 0.1 * dense.report["packets"]


def test_agreeing_costs_a_packet_for_each_slot_in_use() -> None:
    """With one chunk in a hundred, the slots of a dense sum cost more than the sum."""
    arrays = [np.zeros(32 * 4000, dtype=np.float32) for _ in range(4)]
    for array in arrays:
        array.reshape(-1, 32)[::100] = 1
    outcome = run([arrays], Kind.FLOAT32, sparse=True, slots=256, in_use=23)
    assert_float_sums(arrays, outcome)
    all_slots = run([arrays], Kind.FLOAT32, sparse=True, slots=256)
    assert outcome.report["packets"] < 0.5 * all_slots.report["packets"]


def test_zeros_of_either_sign_are_zeros() -> None:
    array = np.zeros(320, dtype=np.float32)
    array[40], array[70], array[71] = -0.0, -0.0, -1
    outcome = run([[array]], Kind.FLOAT32, sparse=True)
    chunks, sums = outcome.chunks[0], outcome.results[0][0]
    assert list(chunks.summed()) == [False, False, True] + [False] * 7
    worker = Worker(-1, -1, values=32, slots=1, workers=1)
    worker.copy_summed(chunks, sums.ctypes.data, array.ctypes.data, array.size, Kind.FLOAT32)
    assert array[71] == -1
    assert not np.delete(array, 71).view(np.uint32).any()


@pytest.mark.parametrize("kind", [Kind.FLOAT32, Kind.BFLOAT16])
def test_chunks_that_are_not_zero_are_counted(kind: Kind) -> None:
    array = np.zeros(325, dtype=np.float32 if kind is Kind.FLOAT32 else np.uint16)
    array[[64, 80, 100, 324]] = 1
    worker = Worker(-1, -1, values=8 * kind.bytes, slots=1, workers=1)  # chunks of 32
    at = array.ctypes.data
    assert worker.count_present(at, array.size, kind, 16) == (3, 4)
    chunks = Chunks.of(array.size, 32)
    chunks.marks[2] = chunks.marks[4] = 1  # there are sums of these alone
    assert worker.count_present(at, array.size, kind, 16, chunks) == (1, 2)


def test_average_is_the_mean() -> None:
    arrays = floats(3000, workers=5)
    average = run([arrays], Kind.FLOAT32, How.AVERAGE).results[0][0]
    assert np.allclose(average, np.mean(np.array(arrays, dtype=np.float64), axis=0), atol=1e-6)


def shorts(count: int, workers: int, kind: Kind) -> tuple[list[Array], list[Array]]:
    """Arrays of a short kind, some values of which are small, and the same in float64."""
    scale = 2.0 ** np.random.default_rng(7).integers(-20, 4, -(-count // 8)).repeat(8)[:count]
    arrays = [(array * scale).astype(np.float32) for array in floats(count, workers, seed=3)]
    if kind is Kind.FLOAT16:
        halves = [array.astype(np.float16) for array in arrays]
        return halves, [half.astype(np.float64) for half in halves]
    bits = [(array.view(np.uint32) >> 16).astype(np.uint16) for array in arrays]
    return bits, [widened(each) for each in bits]


def widened(bits: Array) -> Array:
    """The values of bfloat16s in float64."""
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


@pytest.mark.parametrize("kind", [Kind.FLOAT16, Kind.BFLOAT16])
@pytest.mark.parametrize("workers", [1, 3, 4, 16, 17])
def test_short_floats_are_as_near_as_promised(kind: Kind, workers: int) -> None:
    arrays, wide = shorts(2003, workers, kind)
    outcome = run([arrays], kind, **ALL_FAULTS)
    assert set(outcome.states[0]) == {State.DONE}
    assert all((result == outcome.results[0][0]).all() for result in outcome.results[0])
    result = outcome.results[0][0]
    found = result.astype(np.float64) if kind is Kind.FLOAT16 else widened(result)
    exact = np.sum(wide, axis=0)
    # 16 bits for up to 16 workers, so twice as many values in a packet.
    bound = error_bound(wide, 64, 16) if workers <= 16 else error_bound(wide, 32)
    step = 2.0**-10 if kind is Kind.FLOAT16 else 2.0**-7
    assert (np.abs(found - exact) <= bound + (np.abs(exact) + bound) * step / 2 + 2.0**-25).all()


def test_short_floats_take_half_the_packets() -> None:
    arrays, _ = shorts(20_000, 4, Kind.BFLOAT16)
    long = run([floats(20_000, 4)], Kind.FLOAT32).report["packets"]
    assert run([arrays], Kind.BFLOAT16).report["packets"] < 0.55 * long


@pytest.mark.parametrize("kind", [Kind.FLOAT16, Kind.BFLOAT16])
def test_short_floats_without_zeros(kind: Kind) -> None:
    arrays, wide = shorts(4000, 3, kind)
    for array, same in zip(arrays, wide, strict=True):
        array[300:3900] = 0
        same[300:3900] = 0
    outcome = run([arrays], kind, sparse=True, lose=0.05)
    chunks, result = outcome.chunks[0], outcome.results[0][0]
    assert chunks.values == 64
    assert list(np.flatnonzero(chunks.summed())) == [0, 1, 2, 3, 4, 60, 61, 62]
    found = result.astype(np.float64) if kind is Kind.FLOAT16 else widened(result)
    there = np.repeat(chunks.summed(), 64)[:4000]
    step = 2.0**-10 if kind is Kind.FLOAT16 else 2.0**-7
    bound = error_bound(wide, 64, 16) + np.abs(np.sum(wide, axis=0)) * step + 2.0**-25
    assert (np.abs(found - np.sum(wide, axis=0)) <= bound)[there].all()


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_is_noticed_by_every_rank(bad: float) -> None:
    arrays = floats(5000, workers=3)
    arrays[1][4321] = bad
    outcome = run([arrays, floats(5000, workers=3, seed=9)], Kind.FLOAT32, lose=0.05)
    assert set(outcome.states[0]) == {State.NONFINITE}
    assert set(outcome.states[1]) == {State.DONE}  # and the next is none the worse for it


def test_ranks_that_want_different_things_never_get_a_sum() -> None:
    arrays: list[Any] = floats(5000, workers=3)
    arrays[2] = arrays[2][:4000].copy()
    outcome = run([arrays], Kind.FLOAT32, limit_ns=10**9)
    assert State.MISMATCH in outcome.states[0]
    assert State.DONE not in outcome.states[0]


def test_nothing_at_all_takes_no_packet() -> None:
    outcome = run([[np.zeros(0, dtype=np.float32)] * 3], Kind.FLOAT32)
    assert set(outcome.states[0]) == {State.DONE}
    assert outcome.report["packets"] == 0
