# SPDX-License-Identifier: BSD-2-Clause
"""The simulator by itself: what holds of every run, whatever the jobs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mltcp_tools.kernel.backends.base import JobParams
from mltcp_tools.kernel.backends.params import params_fields
from mltcp_tools.kernel.native import uapi
from mltcp_tools.lab.simulator.inputs import PacketJob, SimulatedLink
from mltcp_tools.lab.simulator.library import (
    SimulationResult,
    SimulationStopped,
    StopFlag,
    simulate,
)

MSS = 1448
WIRE = 1514  # bytes of a full segment on the wire
LINK = SimulatedLink(rate=200e6, queue=30_000, rtt=100e-6)
ALL = uapi.SCALE_INCREASE | uapi.YIELD | uapi.TRUSTED


def params(mechanisms: int = ALL, **fields: Any) -> dict[str, int]:
    return params_fields(JobParams(**fields)) | {"mechanisms": mechanisms}


def jobs(
    count: int = 4, mltcp: dict[str, int] | None = None, flows: int = 1, size: int = 2_500_000
) -> list[PacketJob]:
    """Equal jobs of 6 iterations whose compute times differ by a few per cent."""
    return [
        PacketJob(
            start=0.07 * number,
            compute=[0.34 + 0.01 * ((number + i) % 5) for i in range(6)],
            bytes=[[size // flows] * flows] * 6,
            params=mltcp,
        )
        for number in range(count)
    ]


def times(result: SimulationResult) -> list[list[tuple[int, ...]]]:
    """Per job and burst: its start, the end of the first flow, and its end, nanoseconds."""
    return [[tuple(burst)[:3] for burst in of_job.tolist()] for of_job in result.bursts]


@settings(max_examples=40)
@given(
    link=st.builds(
        SimulatedLink,
        rate=st.sampled_from([5e6, 50e6, 1e9]),
        queue=st.integers(3_028, 200_000),
        rtt=st.sampled_from([100e-6, 2e-3, 20e-3]),
        loss=st.sampled_from([0.0, 0.01, 0.2]),
    ),
    sizes=st.lists(st.integers(0, 60_000), min_size=1, max_size=6).filter(any),
    mltcp=st.sampled_from([None, params(), params(uapi.SCALE_INCREASE)]),
    seed=st.integers(0, 2**64 - 1),
)
def test_bytes_arrive_once_and_packets_are_accounted_for(
    link: SimulatedLink, sizes: list[int], mltcp: dict[str, int] | None, seed: int
) -> None:
    pair = [PacketJob(0.001 * k, [0.05, 0.3, 0.01], [sizes] * 3, 1, mltcp) for k in range(2)]
    result = simulate(link, pair, seed=seed, trace=0.005)
    counted = result.counters
    segments = 2 * 3 * sum(-(-size // MSS) for size in sizes)
    assert counted["received_bytes"] == 2 * 3 * sum(sizes)
    assert counted["sent"] - counted["retransmitted"] == segments
    assert counted["forwarded"] >= segments
    # What is still on its way at the end is a needless retransmission.
    on_the_way = counted["sent"] - counted["forwarded"] - counted["dropped"] - counted["lost"]
    assert 0 <= on_the_way <= counted["retransmitted"]
    assert counted["largest_queue"] <= link.queue
    if not link.loss:
        assert counted["lost"] == 0


@settings(max_examples=20)
@given(
    seed=st.integers(0, 2**32),
    flows=st.integers(1, 5),
    mltcp=st.sampled_from([None, params()]),
)
def test_time_only_goes_on(seed: int, flows: int, mltcp: dict[str, int] | None) -> None:
    result = simulate(LINK, jobs(3, mltcp, flows, 500_000), seed=seed, trace=0.001)
    for of_job in times(result):
        before = 0
        for start, first_end, end in of_job:
            assert before < start < first_end <= end
            before = end
    assert (np.diff(result.samples["time_ns"].astype(np.int64)) >= 0).all()
    assert (result.events["first_ack_ns"] <= result.events["last_ack_ns"]).all()


def test_same_seed_gives_same_run_and_another_seed_differs() -> None:
    first, again = (simulate(LINK, jobs(), seed=3, trace=0.01) for _ in range(2))
    assert times(first) == times(again)
    assert first.counters == again.counters
    assert first.samples.tolist() == again.samples.tolist()
    assert times(simulate(LINK, jobs(), seed=4)) != times(first)


@pytest.mark.parametrize(
    ("link", "flows"), [(LINK, 1), (SimulatedLink(50e6, 60_000, 10e-3, 0.01), 3)]
)
def test_at_f_1_mltcp_is_reno_to_the_bit(link: SimulatedLink, flows: int) -> None:
    plain = params(uapi.SCALE_INCREASE, slope=0.0, intercept=1.0)
    reno = simulate(link, jobs(3, None, flows), seed=1, trace=0.002)
    mltcp = simulate(link, jobs(3, plain, flows), seed=1, trace=0.002)
    assert len(mltcp.events)  # it was at work
    assert times(reno) == times(mltcp)
    assert reno.counters == mltcp.counters
    assert reno.samples.tolist() == mltcp.samples.tolist()
    other = simulate(link, jobs(3, params(uapi.SCALE_INCREASE), flows), seed=1)
    assert times(other) != times(reno)


def test_single_flow_takes_time_of_bytes_after_slow_start() -> None:
    wide = SimulatedLink(rate=200e6, queue=10_000_000, rtt=10e-3)
    lone = PacketJob(0.0, [0.1], [[5_000_000]])
    (start, _, end), *_ = times(simulate(wide, [lone], seed=1))[0]
    segments = -(-5_000_000 // MSS)
    sending = segments * WIRE * 8 / wide.rate
    # Windows of 10, 20, 40 … are sent one per round trip until the link is full all the time,
    # which is when a window fills a round trip.
    full = wide.rtt * wide.rate / 8 / WIRE
    windows = int(np.ceil(np.log2(full / 10)))
    waiting = wide.rtt * (windows + 1) - (2**windows - 1) * 10 * WIRE * 8 / wide.rate
    assert (end - start) * 1e-9 == pytest.approx(sending + waiting, rel=0.02)


def test_token_bucket_saves_at_most_its_size_while_idle() -> None:
    lone = PacketJob(0.0, [0.1, 0.1], [[2_500_000]] * 2)
    bucket = 10 * WIRE
    plain, saving = (
        [end - start for start, _, end in times(simulate(link, [lone], seed=1))[0]]
        for link in (LINK, replace(LINK, bucket=bucket))
    )
    saved = bucket * 8e9 / LINK.rate
    assert [first - second for first, second in zip(plain, saving, strict=True)] == pytest.approx(
        [saved, saved], rel=0.1
    )


def test_slow_start_doubles_the_window_and_restarts_after_idling() -> None:
    wide = SimulatedLink(rate=1e9, queue=10_000_000, rtt=20e-3)
    lone = PacketJob(0.0, [0.1, 2.0], [[1_000_000]] * 2)
    samples = simulate(wide, [lone], seed=1, trace=0.021).samples
    first, second = (samples[samples["iteration"] == number]["cwnd"] for number in (1, 2))
    assert first[:4].tolist() == [10, 20, 40, 80]
    assert second[0] == 10
    kept = simulate(wide, [lone], seed=1, trace=0.021, slow_start_after_idle=False).samples
    assert kept[kept["iteration"] == 2]["cwnd"][0] == first[-1]


def test_the_shortest_time_out_is_waited_for() -> None:
    """A lone segment that is lost is sent again by the probe, which waits as long at least."""
    link = SimulatedLink(rate=50e6, queue=100_000, rtt=1e-3, loss=0.3)
    job = PacketJob(0.0, [0.1] * 20, [[1000]] * 20)

    def bursts(rto_min: float) -> Any:
        done = simulate(link, [job], seed=1, rto_min=rto_min).bursts[0]
        return (done["end_ns"] - done["start_ns"]) / 1e9

    usual, short = bursts(0.2), bursts(0.02)
    assert usual.max() > 0.2
    assert 0.02 < short.max() < 0.2
    assert (usual < 0.02).sum() == (short < 0.02).sum()  # those without a loss


def test_single_losses_are_repaired_without_a_time_out() -> None:
    link = SimulatedLink(rate=50e6, queue=100_000, rtt=5e-3)
    long = PacketJob(0.0, [0.1], [[30_000_000]])
    result = simulate(link, [long], seed=1)
    assert result.counters["dropped"] > 0
    assert result.counters["retransmitted"] == result.counters["dropped"]
    assert result.counters["timeouts"] == 0


def test_a_lost_end_of_a_burst_is_found_by_a_probe() -> None:
    link = SimulatedLink(rate=50e6, queue=100_000, rtt=5e-3, loss=0.1)
    short = PacketJob(0.0, [0.05] * 200, [[4 * MSS]] * 200)
    result = simulate(link, [short], seed=1)
    bursts = result.bursts[0]
    duration = (bursts["end_ns"] - bursts["start_ns"]) * 1e-9
    lost_and_fast = (duration > 0.011) & (duration < 0.15)  # a round trip more, but no timeout
    assert lost_and_fast.sum() > 20


def test_a_window_follows_reno_between_losses() -> None:
    link = SimulatedLink(rate=50e6, queue=60_000, rtt=10e-3)
    result = simulate(link, [PacketJob(0.0, [0.1], [[40_000_000]])], seed=1, trace=0.05)
    cwnd = result.samples["cwnd"].astype(int)
    after_slow_start = cwnd[len(cwnd) // 4 :]
    fits = (link.rate / 8 * link.rtt + link.queue) / WIRE
    assert after_slow_start.max() == pytest.approx(fits, rel=0.1)
    assert after_slow_start.min() == pytest.approx(fits / 2, rel=0.1)


def test_mltcp_tells_iterations_apart() -> None:
    result = simulate(LINK, jobs(2, params(), flows=2), seed=1)
    for job in range(2):
        for flow in range(2):
            own = result.events[(result.events["job"] == job) & (result.events["flow"] == flow)]
            # With the second one it learns what an iteration is.
            assert own["iteration"].tolist()[-4:] == [3, 4, 5, 6]
            assert set(own["bytes"]) == {1_250_000}


def test_a_simulation_is_stopped_from_another_thread() -> None:
    endless = [PacketJob(0.0, [1e-3] * 100_000, [[10_000_000]] * 100_000)]
    stop = StopFlag()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(simulate, LINK, endless, seed=1, stop=stop)
        stop.set()
        with pytest.raises(SimulationStopped):
            running.result()


def both(chunk: int = 0, mltcp: dict[str, int] | None = None, count: int = 1) -> list[PacketJob]:
    return [
        PacketJob(
            0.01 * n, [0.1] * 4, [[1_000_000]] * 4, params=mltcp, back=(1,), both=True, chunk=chunk
        )
        for n in range(count)
    ]


@settings(max_examples=30)
@given(
    chunk=st.sampled_from([0, 1, 1_448, 10_000, 65_536, 5_000_000]),
    sizes=st.lists(st.integers(0, 60_000), min_size=1, max_size=4).filter(any),
    mltcp=st.sampled_from([None, params()]),
    loss=st.sampled_from([0.0, 0.02]),
    seed=st.integers(0, 2**32),
)
def test_every_byte_arrives_both_ways(
    chunk: int, sizes: list[int], mltcp: dict[str, int] | None, loss: float, seed: int
) -> None:
    if chunk == 1:
        sizes = [size % 50 for size in sizes] + [1]
    links = [SimulatedLink(50e6, 20_000, 1e-3, loss), SimulatedLink(20e6, 10_000, 1e-3)]
    pair = [
        PacketJob(
            0.001 * n, [0.05, 0.01], [sizes] * 2, params=mltcp, back=(1,), both=True, chunk=chunk
        )
        for n in range(2)
    ]
    result = simulate(links, pair, seed=seed, trace=0.005)
    assert result.counters["received_bytes"] == 2 * 2 * 2 * sum(sizes)


def test_with_chunks_each_end_waits_for_the_other() -> None:
    """On a long path every chunk takes a round trip, whatever the window is."""
    links = [SimulatedLink(1e9, 1_000_000, 20e-3)] * 2
    (of_job,) = simulate(
        links, [PacketJob(0.0, [0.1], [[1_000_000]], back=(1,), both=True)], seed=1
    ).bursts
    chunked = PacketJob(0.0, [0.1], [[1_000_000]], back=(1,), both=True, chunk=10_000)
    (in_chunks,) = simulate(links, [chunked], seed=1).bursts
    # A chunk of 10 kB comes half a round trip after the one that it answers.
    assert in_chunks["end_ns"][0] - in_chunks["start_ns"][0] >= 99 * 10_000_000
    assert of_job["end_ns"][0] - of_job["start_ns"][0] < 300_000_000


def test_a_queue_that_marks_is_kept_short_without_a_loss() -> None:
    long = PacketJob(0.0, [0.1], [[20_000_000]])
    dropping = SimulatedLink(100e6, 200_000, 2e-3)
    marking = SimulatedLink(100e6, 200_000, 2e-3, marks=(40_000, 40_000))
    dropped, marked = (simulate(link, [long], seed=1).counters for link in (dropping, marking))
    assert dropped["dropped"] > 0
    assert dropped["marked"] == 0
    assert marked["marked"] > 0
    # Slow start alone is fast enough to fill the queue before the first mark comes back.
    assert marked["dropped"] < dropped["dropped"]


DCTCPS = {"base": "dctcp", "params": None}, {"base": "dctcp", "params": params()}
"""dctcp, and mltcp_dctcp."""


def periodic(start: float, **fields: Any) -> PacketJob:
    """A job that needs 0.21 s of a link of 50 Mbit/s, and computes as long, more or less."""
    compute = [0.2 + 0.01 * (number * 7 % 5) for number in range(140)]
    return PacketJob(start, compute, [[1_250_000]] * 140, **fields)


def test_jobs_of_mltcp_dctcp_interleave_where_dctcp_shares() -> None:
    """Four jobs that need all of the link together: the last of them is done so much earlier."""
    link = SimulatedLink(50e6, 24_000, 2e-3, marks=(6_000, 18_000))
    ends = []
    for fields in DCTCPS:
        each = [
            replace(periodic(0.1 * n, **fields), compute=[0.68] * 60, bytes=[[1_250_000]] * 60)
            for n in range(4)
        ]
        result = simulate(link, each, seed=1)
        ends.append(max(float(bursts["end_ns"][-1]) for bursts in result.bursts) * 1e-9)
        assert result.counters["marked"] > 1000
    assert ends[1] < 0.9 * ends[0]


@pytest.mark.parametrize(
    ("link", "bulk", "least"),
    [
        (SimulatedLink(50e6, 60_000, 2e-3, marks=(15_000, 45_000)), "dctcp", 0.4),
        (SimulatedLink(50e6, 24_000, 2e-3, marks=(6_000, 18_000)), "dctcp", 0.35),
        # Reno halves its window for marks that dctcp lives with; next to dctcp it has as little.
        (SimulatedLink(50e6, 60_000, 2e-3, marks=(15_000, 45_000)), "reno", 0.19),
        (SimulatedLink(50e6, 30_000, 2e-3), "reno", 0.4),
    ],
)
def test_next_to_jobs_of_mltcp_dctcp_nobody_starves(
    link: SimulatedLink, bulk: str, least: float
) -> None:
    """The share of the link that a bulk flow gets next to two jobs; an equal one is a third."""
    neighbour = PacketJob(0.0, [0.01], [[60_000_000]], base=bulk)
    jobs = [periodic(0.1 * number, **DCTCPS[1]) for number in range(2)]
    (ended, *others) = (
        of_job["end_ns"] for of_job in simulate(link, [neighbour, *jobs], seed=1).bursts
    )
    assert all(ended[0] < each[-1] for each in others)  # it was never alone
    assert 60e6 * 8 / (ended[0] * 1e-9) / link.rate > least


def test_a_path_that_holds_more_than_the_usual_buffers_is_filled() -> None:
    """At 100 Gbit/s over 2 ms, 4,096 segments would be a quarter of what the path holds."""
    link = SimulatedLink(100e9, 25_000_000, 2e-3)
    (burst,) = simulate(link, [PacketJob(0.0, [0.01], [[1_000_000_000]])], seed=1).bursts
    taken = float(burst["end_ns"][0] - burst["start_ns"][0]) * 1e-9
    assert taken < 1.4 * 1_000_000_000 / MSS * WIRE * 8 / link.rate


@pytest.mark.parametrize(
    "job",
    [
        PacketJob(0.0, [0.1], [[1000]], ahead=(1,)),
        PacketJob(0.0, [0.1], [[1000]], both=True),
        PacketJob(0.0, [0.1], [[1000]], chunk=100),
    ],
)
def test_jobs_over_links_that_are_not_there_are_refused(job: PacketJob) -> None:
    with pytest.raises(ValueError, match="links"):
        simulate(LINK, [job], seed=1)


def test_probe_is_sent_only_without_known_loss() -> None:
    """A probe of a segment that had been delivered left a flow without anything to wait for."""
    link = SimulatedLink(1e9, 120_048, 1e-4, loss=0.2)
    sizes = [32_165, 27_522, 56_079]
    pair = [PacketJob(0.001 * k, [0.05, 0.3, 0.01], [sizes] * 3) for k in range(2)]
    result = simulate(link, pair, seed=14_186_789_218_485_684_492)
    assert result.counters["received_bytes"] == 2 * 3 * sum(sizes)
