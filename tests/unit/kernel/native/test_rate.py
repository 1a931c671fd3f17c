# SPDX-License-Identifier: BSD-2-Clause
"""The law of rates from feedback, against exact arithmetic and in closed loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.rate_law import rate

from mltcp_tools.kernel.native.rate import pack_params
from mltcp_tools.kernel.native.uapi import ONE

lib, ffi = rate()

MSS = 1448
US = 1000
MS = 1_000_000
S = 1_000_000_000
NS_PER_KIB = 40_960  # 200 Mbit/s
LEAST_WORD = 2  # above that of a packet which asks


def link(**fields: int) -> Any:
    """A hop's, of 200 Mbit/s unless said otherwise."""
    return ffi.new("struct mltcp_hop_link *", {"ns_per_kib": NS_PER_KIB} | fields)


def make_params(**fields: int) -> Any:
    defaults = {"target_us": 200, "low": ONE * 4 // 10, "add_bytes": 0, "host": 0}
    return ffi.new("struct mltcp_rate_params *", defaults | fields)


@dataclass
class Flow:
    """A flow of a job, with a path of its own where none is given."""

    path: Any = field(default_factory=lambda: ffi.new("struct mltcp_rate_path *"))
    job: Any = field(default_factory=lambda: ffi.new("struct mltcp_rate_job *", {"flows": 1}))
    params: Any = field(default_factory=make_params)
    min_rtt_us: int = 100
    cwnd: int = 10
    state: Any = field(default_factory=lambda: ffi.new("struct mltcp_rate *"))
    rtt_us: int = 0
    mltcp: Any = field(default_factory=lambda: ffi.new("struct mltcp_flow *", {"gain": ONE}))

    def hear(self, now: int, busy: float, queue_us: int) -> None:
        """A hop's word comes with an ACK."""
        word = lib.mltcp_hop_word(int(busy * ONE), queue_us)
        lib.mltcp_rate_hear(self.path, now, word, self.min_rtt_us)

    def ack(self, now: int, size: int) -> int:
        """So many bytes are acknowledged; the window after that."""
        lib.mltcp_rate_job_ack(self.job, now, size, 0, 0)
        ack = {"now": now, "cwnd": self.cwnd, "mss": MSS, "min_rtt_us": self.min_rtt_us}
        ack["rtt_us"] = self.rtt_us
        found = ffi.new("struct mltcp_rate_ack *", ack)
        self.cwnd = lib.mltcp_rate_window(
            self.state, self.params, self.path, self.job, self.mltcp, found
        )
        return self.cwnd

    def accepts(self) -> int:
        """Delay of the queue that it accepts, microseconds."""
        ack = ffi.new("struct mltcp_rate_ack *", {"mss": MSS, "min_rtt_us": self.min_rtt_us})
        found: int = lib.mltcp_rate_accepts(self.params, self.job, self.mltcp, ack)
        return found


@given(st.lists(st.tuples(st.integers(0, 2 * MS), st.integers(64, 1514)), min_size=1, max_size=50))
def test_a_hop_counts_what_waits(packets: list[tuple[int, int]]) -> None:
    hop = ffi.new("struct mltcp_hop *")
    now, waits_ns = MS, 0
    for pause, size in packets:
        now += pause
        waits_ns = max(0, waits_ns - pause)
        said = lib.mltcp_hop_queue_us(lib.mltcp_hop_pass(hop, link(), now, size))
        if waits_ns >= 2 * US:
            assert said == lib.mltcp_hop_queue_us(lib.mltcp_hop_word(0, waits_ns // US))
        else:
            assert said <= LEAST_WORD
        waits_ns += size * NS_PER_KIB // 1024


@given(st.integers(0, ONE), st.integers(0, 10**6))
def test_a_word_says_what_was_put_in(busy: int, queue_us: int) -> None:
    word = lib.mltcp_hop_word(busy, queue_us)
    assert 0 <= word < 1 << 16
    assert abs(lib.mltcp_hop_busy(word) - busy) <= ONE // lib.MLTCP_HOP_BUSY + 1
    said = lib.mltcp_hop_queue_us(word)
    assert said == queue_us if queue_us < 256 else said <= queue_us
    if queue_us < 16_000:
        assert queue_us - said < 64


@given(st.lists(st.tuples(st.integers(0, ONE), st.integers(0, 30_000)), min_size=2, max_size=2))
def test_the_worst_hop_says_the_largest_word(hops: list[tuple[int, int]]) -> None:
    one, other = (lib.mltcp_hop_word(*hop) for hop in hops)
    busier = lib.mltcp_hop_busy(one) - lib.mltcp_hop_busy(other)
    longer = lib.mltcp_hop_queue_us(one) - lib.mltcp_hop_queue_us(other)
    assert (one > other) == (busier > 0 or (busier == 0 and longer > 0))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 2.0])
def test_a_hop_knows_how_busy_it_is(share: float) -> None:
    hop = ffi.new("struct mltcp_hop *")
    step = round(1514 * NS_PER_KIB / 1024 / share)
    said = [lib.mltcp_hop_pass(hop, link(), n * step, 1514) for n in range(1, 500)]
    assert lib.mltcp_hop_busy(said[-1]) / ONE == pytest.approx(min(share, 1), abs=0.02)
    # After a long pause nothing is left of what was.
    last = lib.mltcp_hop_pass(hop, link(), 501 * step + 10**10, 64)
    assert lib.mltcp_hop_busy(last) == 0
    assert last == LEAST_WORD


def test_hop_queue_is_not_resent_for_packets_of_another_cpu() -> None:
    """Whoever comes to the hop second may have read the clock first."""
    hop, other = ffi.new("struct mltcp_hop *"), ffi.new("struct mltcp_hop *")
    for n in range(200):
        now = MS + n * 50 * US
        for each, earlier in ((hop, 40 * US), (other, 0)):
            lib.mltcp_hop_pass(each, link(), now, 1514)
            lib.mltcp_hop_pass(each, link(), now - earlier, 64)
    assert hop.waits_ns == other.waits_ns > 0


@given(st.integers(0, 100 * MS), st.integers(1, 200), st.integers(64, 1514), st.integers(0, MS))
def test_a_hops_queue_is_no_longer_than_it_can_be(
    queue_ns: int, packets: int, size: int, bucket_ns: int
) -> None:
    """A full queue drops what comes, and nothing waits for that."""
    hop = ffi.new("struct mltcp_hop *")
    slow = link(ns_per_kib=1000 * NS_PER_KIB, queue_ns=queue_ns, bucket_ns=bucket_ns)
    for _ in range(packets):
        lib.mltcp_hop_pass(hop, slow, MS, size)
    most = min(queue_ns or lib.MLTCP_HOP_MOST_NS, lib.MLTCP_HOP_MOST_NS)
    takes = size * slow.ns_per_kib // 1024
    assert hop.waits_ns == min(packets, -(-(bucket_ns + most) // takes)) * takes
    # As soon as that is sent it is empty.
    later = MS + hop.waits_ns
    assert lib.mltcp_hop_queue_us(lib.mltcp_hop_pass(hop, slow, later, size)) <= LEAST_WORD
    said = lib.mltcp_hop_word(0, lib.MLTCP_HOP_MOST_NS // US)
    assert lib.mltcp_hop_queue_us(said) == lib.MLTCP_HOP_MOST_NS // US


def test_what_a_token_bucket_passes_on_doesnt_wait() -> None:
    """20 kB at 200 Mbit/s, at once after a pause; but the link is busy with it."""
    hop, bucket_ns = ffi.new("struct mltcp_hop *"), 800 * US
    shaped, plain = link(bucket_ns=bucket_ns), link()
    other = ffi.new("struct mltcp_hop *")
    for n in range(30):
        now = MS + n * US
        told = lib.mltcp_hop_queue_us(lib.mltcp_hop_pass(hop, shaped, now, 1514))
        waits = lib.mltcp_hop_queue_us(lib.mltcp_hop_pass(other, plain, now, 1514))
        assert hop.busy == other.busy
        if waits < 700:
            assert told <= LEAST_WORD
    assert told == pytest.approx(waits - bucket_ns // US, abs=64)


@given(st.integers(1, ONE), st.integers(0, 1000), st.integers(0, ONE))
def test_a_step_is_to_what_the_path_has_room_for(busy: int, queue_us: int, progress: int) -> None:
    """delivered / interval / busy, for the minimum RTT and the accepted queue."""
    flow = Flow(cwnd=20)
    flow.mltcp.ratio = progress
    flow.hear(10 * MS, busy / ONE, queue_us)
    assert flow.ack(10 * MS, MSS) == 20
    busy, queue_us = flow.path.busy, flow.path.queue_us
    delivered, passed_us = 20 * MSS, 100 + queue_us
    now = 10 * MS + passed_us * US
    flow.ack(now, delivered)
    accepts = flow.accepts()
    low = Fraction(flow.params.low, ONE)
    assert abs(accepts - 200 * (low + (1 - low) * Fraction(progress, ONE))) <= 2
    share = Fraction(1) if queue_us > 2 * accepts else Fraction(max(busy, ONE // 16), ONE)
    exact = Fraction(delivered * (100 + accepts), passed_us) / share
    most = lib.MLTCP_RATE_STEP
    exact = min(Fraction(most * 20 * MSS), max(Fraction(20 * MSS, most), exact))
    assert abs(flow.state.window - exact) <= 2 + exact / 1000
    # The window in segments leaves room for one more; pacing keeps to it below two.
    window = Fraction(flow.state.window)
    window *= 1 + min(Fraction(1), max(Fraction(0), window / MSS - 1))
    pace = window * 10**6 / flow.state.rtt_us
    assert abs(lib.mltcp_rate_pacing(flow.state, MSS) - pace) <= 10**6 / flow.state.rtt_us + 1
    assert flow.cwnd == -(-flow.state.window // MSS) + 1
    # Within the same round trip nothing more happens.
    assert flow.ack(now + 50 * US, MSS) == flow.cwnd
    assert flow.state.steps == 1


def test_a_pause_of_the_application_says_nothing_of_the_path() -> None:
    """As at the end of a chunk of a ring: the round trip begins anew with the next ACK."""
    flow = Flow(cwnd=20)
    flow.hear(10 * MS, 1.0, 0)
    flow.ack(10 * MS, MSS)
    flow.mltcp.send_ns = 13 * MS
    assert flow.ack(13 * MS + 100 * US, MSS) == 20
    assert flow.state.window == 20 * MSS
    flow.hear(13 * MS + 200 * US, 1.0, 0)
    flow.ack(13 * MS + 200 * US, 20 * MSS)
    assert flow.state.steps == 1
    assert flow.state.window >= 20 * MSS


def test_waiting_flow_has_pauses_and_still_gets_its_turn() -> None:
    """Less than a segment in a round trip: it sends with nothing outstanding each time."""
    job = ffi.new("struct mltcp_rate_job *", {"flows": 1, "kib_ns": NS_PER_KIB})
    flow = Flow(cwnd=2, job=job)
    now = MS
    for busy, queue_us in ((1.0, 1000), (0.01, 0)):
        for _ in range(50):
            pace = max(1, lib.mltcp_rate_pacing(flow.state, MSS))
            now += max(200 * US, min(5 * MS, MSS * S // pace))
            flow.mltcp.send_ns = now - 150 * US
            flow.hear(now, busy, queue_us)
            flow.ack(now, MSS)
        if busy == 1.0:
            assert flow.state.window < MSS
    assert flow.state.window > 2 * MSS


def test_where_acks_wait_behind_what_comes_back_a_step_is_short() -> None:
    """It goes a part of the way, so that windows of both directions don't swing."""
    plain, crossed = Flow(cwnd=20), Flow(cwnd=20)
    crossed.mltcp.flags = lib.MLTCP_BIDIRECTIONAL
    for flow in (plain, crossed):
        flow.hear(10 * MS, 1.0, 100)
        flow.ack(10 * MS, MSS)
        flow.ack(10 * MS + 400 * US, 30 * MSS)
    went, whole = 20 * MSS - crossed.state.window, 20 * MSS - plain.state.window
    assert went * lib.MLTCP_RATE_CAUTION == pytest.approx(whole, abs=4)
    assert whole > MSS


def late(flow: Flow, samples: int, queue_us: int) -> int:
    """Return what it takes for the hosts' part of the round trip, after so many round trips that
    were longer by this than the least, where hops say that nothing waits.
    """
    flow.rtt_us = flow.min_rtt_us + queue_us
    for n in range(samples):
        flow.hear(MS + n * MS, 0.9, 0)
        flow.ack(MS + n * MS, 100 * MSS)
    found: int = flow.state.late_us
    return found


def test_what_hosts_take_is_no_queue() -> None:
    """Round trips are longer than the least and hops say that nothing waits: the window is for
    such round trips, up to a bound; to a host that goes by round trips all is queue."""
    assert late(Flow(), 200, 150) == pytest.approx(150, abs=16)
    assert late(Flow(), 200, 10_000) == pytest.approx(200, abs=16)
    assert late(Flow(params=make_params(host=1)), 200, 150) == 0
    flow = Flow()
    assert late(flow, 200, 150) > 100
    flow.hear(S, 0.9, 150)
    for _ in range(200):
        flow.hear(S, 0.9, 150)
        flow.ack(S, MSS)
    assert flow.state.late_us < 16


def test_it_goes_on_from_what_a_loss_has_left() -> None:
    flow = Flow(cwnd=20)
    flow.hear(MS, 1.0, 100)
    flow.ack(MS, MSS)
    flow.cwnd = 5
    flow.ack(MS + 10 * US, MSS)
    assert flow.state.window == 5 * MSS


def test_waiting_flow_sends_less_than_a_segment_per_rtt() -> None:
    """But a packet in two milliseconds, over all flows of the job."""
    job = ffi.new("struct mltcp_rate_job *", {"flows": 4, "kib_ns": NS_PER_KIB})
    flow = Flow(cwnd=2, job=job)
    now = MS
    flow.hear(now, 1.0, 1000)
    flow.ack(now, MSS)
    for _ in range(100):
        now += 5 * MS
        flow.hear(now, 1.0, 1000)
        flow.ack(now, MSS)
    assert flow.cwnd == 2
    assert 4 * lib.mltcp_rate_pacing(flow.state, MSS) == pytest.approx(MSS / 2e-3, rel=0.02)
    assert lib.mltcp_rate_least(flow.job, MSS, 10**6) == 2 * MSS


def test_a_new_burst_begins_from_the_connections_window() -> None:
    flow = Flow(cwnd=10)
    flow.hear(MS, 1.0, 500)
    flow.ack(MS, MSS)
    for trip in range(1, 20):
        flow.hear(MS + trip * MS, 1.0, 500)
        flow.ack(MS + trip * MS, MSS)
    waiting = flow.state.window
    assert waiting < 2 * MSS
    lib.mltcp_rate_job_ack(flow.job, 400 * MS, 0, 1, 300 * MS)
    flow.cwnd = 10
    flow.hear(400 * MS, 0.1, 0)
    assert flow.ack(400 * MS, MSS) == 10
    assert flow.state.window == 10 * MSS


@given(st.integers(1, 1_000_000), st.integers(0, 10**10))
def test_feedback_grows_stale(min_rtt_us: int, age_ns: int) -> None:
    path = ffi.new("struct mltcp_rate_path *")
    assert not lib.mltcp_rate_fresh(path, 10**12, min_rtt_us)
    lib.mltcp_rate_hear(path, 10**12, LEAST_WORD, min_rtt_us)
    rtt_us = min_rtt_us + path.queue_us
    limit = max(lib.MLTCP_STALE_NS, rtt_us * 1000 * lib.MLTCP_STALE_RTTS)
    assert bool(lib.mltcp_rate_fresh(path, 10**12 + age_ns, min_rtt_us)) is (age_ns <= limit)


@given(st.integers(1, 10 * MS))
def test_what_is_heard_after_the_ack_came_is_fresh(ahead_ns: int) -> None:
    """An ACK brings a word, or another CPU's does, later than the time the ACK came at."""
    path, job = ffi.new("struct mltcp_rate_path *"), ffi.new("struct mltcp_rate_job *")
    now = 10**12
    assert lib.mltcp_rate_path_is(path, 7, now)
    assert lib.mltcp_rate_job_is(job, 7, now)
    lib.mltcp_rate_hear(path, now + ahead_ns, LEAST_WORD, 100)
    lib.mltcp_rate_job_ack(job, now + ahead_ns, MSS, 1, S)
    assert lib.mltcp_rate_fresh(path, now, 100)
    # The slots are still in use,
    assert not lib.mltcp_rate_path_is(path, 8, now)
    assert not lib.mltcp_rate_job_is(job, 8, now)
    # an older word isn't worth more than its time,
    lib.mltcp_rate_hear(path, now, lib.mltcp_hop_word(ONE, 200), 100)
    assert path.queue_us < 50
    # and the job's next flow begins the same burst.
    lib.mltcp_rate_job_ack(job, now, MSS, 1, S)
    assert (job.bursts, job.flows) == (1, 2)


def test_flows_whose_gap_is_not_known_begin_one_burst_together() -> None:
    job = ffi.new("struct mltcp_rate_job *")
    for iteration in range(1, 4):
        for flow in range(3):
            lib.mltcp_rate_job_ack(job, (10 * iteration + flow) * MS, MSS, iteration, 0)
        assert (job.bursts, job.flows) == (1, 3)
    lib.mltcp_rate_job_ack(job, 130 * MS, MSS, 4, 90 * MS)
    assert (job.bursts, job.flows, job.total) == (2, 1, 9 * MSS)


def test_no_window_is_so_small_that_it_stays() -> None:
    """Many flows on a path of some microseconds: a share of a segment in a round trip is none."""
    job = ffi.new("struct mltcp_rate_job *", {"flows": 100})
    assert lib.mltcp_rate_least(job, MSS, 5) == 1
    flow = Flow(min_rtt_us=5, job=job, cwnd=1)
    flow.state.follows, flow.state.stepped_ns, flow.state.cwnd = 1, MS, 1
    for step in range(1, 40):
        now = MS + step * 100 * US
        flow.hear(now, 0.5, 0)
        flow.ack(now, 100 * MSS)
    assert flow.state.window > MSS


def test_a_job_whose_slot_was_lost_delivered_nothing() -> None:
    """Its delivered bytes are fewer than before, which is no reason for another window."""
    flow = Flow()
    flow.hear(MS, 0.9, 0)
    flow.ack(MS, 1000 * MSS)
    flow.job = ffi.new("struct mltcp_rate_job *", {"flows": 1})
    flow.hear(2 * MS, 0.9, 0)
    assert flow.ack(2 * MS, MSS) == 10
    assert flow.state.window == 10 * MSS
    assert flow.job.kib_ns == 0
    assert flow.state.stepped_bytes == MSS


def test_its_loss_is_counted_once() -> None:
    flow = Flow()
    lib.mltcp_rate_lose(flow.state)
    assert flow.state.fallbacks == 0
    flow.hear(MS, 1.0, 300)
    flow.ack(MS, MSS)
    for _ in range(3):
        lib.mltcp_rate_lose(flow.state)
    assert (flow.state.fallbacks, flow.state.follows) == (1, 0)
    assert lib.mltcp_rate_pacing(flow.state, MSS) == 0


def test_a_slow_link_has_room_for_some_segments() -> None:
    """At 10 Mbit/s three full segments take 3.5 ms, which no shorter queue could hold."""
    flow = Flow()
    flow.mltcp.ratio = ONE
    assert flow.accepts() == pytest.approx(200, abs=1)
    flow.hear(MS, 1.0, 0)
    flow.ack(MS, MSS)
    flow.ack(MS + 10 * MS, 12_500)
    assert flow.accepts() == pytest.approx(3 * MSS * 8 / 10, rel=0.01)


@given(st.integers(0, 2**20), st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_guess_is_a_hops_word(queue_us: int, min_rtt_us: int, kib_ns: int) -> None:
    """Full segments take a while on each link; what is left of the round trip is queue."""
    ack = ffi.new(
        "struct mltcp_rate_ack *",
        {"mss": MSS, "min_rtt_us": min_rtt_us, "rtt_us": min_rtt_us + queue_us},
    )
    said = lib.mltcp_rate_guess(ffi.new("struct mltcp_rate_job *", {"kib_ns": kib_ns}), ack)
    assert said < 1 << 16
    queue_us -= min(queue_us, 2 * MSS * kib_ns // 1024 // 1000)
    certain = queue_us > max(50, min_rtt_us // 16)
    assert lib.mltcp_hop_busy(said) / ONE == pytest.approx(1 if certain else 2 / 3, abs=0.01)
    assert lib.mltcp_hop_queue_us(said) <= queue_us


def test_slots_are_kept_while_they_are_used() -> None:
    """One that another path or job uses is left to it, and taken a second after it fell silent."""
    path, job = ffi.new("struct mltcp_rate_path *"), ffi.new("struct mltcp_rate_job *")
    assert lib.mltcp_rate_path_is(path, 7, MS)
    assert lib.mltcp_rate_job_is(job, 7, MS)
    lib.mltcp_rate_hear(path, MS, 5000, 100)
    lib.mltcp_rate_job_ack(job, MS, 1000, 1, 0)
    for later, free in ((MS, 0), (lib.MLTCP_RATE_KEPT_NS + 2 * MS, 1)):
        assert lib.mltcp_rate_path_is(path, 8, MS + later) == free
        assert lib.mltcp_rate_job_is(job, 8, MS + later) == free
    assert (path.heard_ns, job.acked, path.key, job.key) == (0, 0, 8, 8)


def burst(job: Any, now: int, sizes: Sequence[int], idle_ns: int) -> int:
    """All flows begin and send their bytes, a millisecond each; when the last is done."""
    for size in sizes:
        now += MS
        lib.mltcp_rate_job_ack(job, now, 0, 1, idle_ns)
        lib.mltcp_rate_job_ack(job, now, size, 0, 0)
    return now


def test_a_jobs_flows_are_one_burst() -> None:
    job = ffi.new("struct mltcp_rate_job *")
    now = MS
    for _ in range(3):
        now = burst(job, now, [1000, 3000], 100 * MS) + 100 * MS
    assert (job.bursts, job.flows, job.total, job.acked - job.begun) == (3, 2, 4000, 4000)
    # Half of the next one, of which one flow has sent nothing yet.
    burst(job, now, [2000], 100 * MS)
    flow = ffi.new("struct mltcp_flow *", {"active": 1, "ratio": ONE // 8})
    assert lib.mltcp_rate_progress(job, flow) == ONE // 2
    flow.active = 0
    assert lib.mltcp_rate_progress(job, flow) == ONE // 8


@given(st.integers(1, 8), st.lists(st.integers(100, 10**6), min_size=8, max_size=8))
def test_shares_are_those_of_what_is_left(flows: int, totals: list[int]) -> None:
    """All have sent a quarter; each gets what it has left, and none less than a part of equal."""
    totals = [4 * total for total in totals[:flows]]
    sent = sum(totals) // 4
    job = ffi.new("struct mltcp_rate_job *", {"acked": sent, "total": sum(totals), "flows": flows})
    for total in totals:
        state = {"active": 1, "ratio": ONE // 4, "acked_bytes": total // 4}
        share = lib.mltcp_rate_share(job, ffi.new("struct mltcp_flow *", state)) / ONE
        assert share == pytest.approx(max(total / sum(totals), 1 / flows / 4), abs=1e-3)
        state["ratio"] = 0
        equal = lib.mltcp_rate_share(job, ffi.new("struct mltcp_flow *", state)) / ONE
        assert equal == pytest.approx(1 / flows, abs=1e-3)


def shares(ratios: Sequence[int], round_trips: int, add: int = 362) -> list[float]:
    """Shares of a link of 200 Mbit/s and 1 ms, of jobs that stay at these ratios."""
    flows = [Flow(min_rtt_us=1000, cwnd=50, params=make_params(add_bytes=add)) for _ in ratios]
    for flow, ratio in zip(flows, ratios, strict=True):
        flow.mltcp.ratio = ratio
    carried = 25_000  # bytes per ms
    now = MS
    for _ in range(round_trips):
        windows = [flow.state.window or 50 * MSS for flow in flows]
        queue_us = max(0, sum(windows) - carried) * 1000 // carried
        passed_us = 1000 + queue_us
        now += passed_us * US
        delivered = min(sum(windows), carried * passed_us // 1000)
        for flow, window in zip(flows, windows, strict=True):
            flow.hear(now, sum(windows) / carried if not queue_us else 1.0, queue_us)
            flow.ack(now, delivered * window // sum(windows))
    total = sum(flow.state.window for flow in flows)
    # Full, with a queue about as is accepted: at most half of the round trip.
    assert carried * 0.95 < total < carried * 1.65
    return [flow.state.window / total for flow in flows]


def test_equals_share_equally_and_the_one_ahead_has_nearly_all() -> None:
    assert shares([ONE // 2, ONE // 2], 200) == pytest.approx([0.5, 0.5], abs=0.05)
    ahead, behind = shares([ONE, 0], 60, add=0)
    assert ahead > 0.9 > 0.1 > behind


def test_parameters_are_packed_as_c_has_them() -> None:
    fields = {"target_us": 1, "low": 2, "add_bytes": 3, "host": 4}
    assert pack_params(fields) == bytes(ffi.buffer(ffi.new("struct mltcp_rate_params *", fields)))
