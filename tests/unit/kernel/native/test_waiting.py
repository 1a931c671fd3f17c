# SPDX-License-Identifier: BSD-2-Clause
"""A job's connections for which a path has no room: who leads, and who waits (mltcp_wait.h)."""

from __future__ import annotations

from typing import Any

import pytest
from support.core_flows import MS, U32, ack, ffi, lib, lose, make_env, make_flow, make_params

from mltcp_tools.kernel.native.uapi import ONE

KIB = 1024
SRTT_US = 1000
WAIT_NS = lib.MLTCP_WAIT_RTTS * SRTT_US * 1000


class Job:
    """Flows of a job on a path, each with so much left, that have lost at the smallest window."""

    def __init__(self, *left_kib: int, now: int = 1000 * MS) -> None:
        self.slot = ffi.new("unsigned long long *")
        self.key = 7
        self.flows = [self.flow(kib, now) for kib in left_kib]

    @staticmethod
    def flow(left_kib: int, now: int) -> Any:
        flow = make_flow()
        flow.left_kib, flow.last_ns = left_kib, now
        lose(flow, lib.MLTCP_CWND_MIN, lib.MLTCP_CWND_MIN)
        return flow

    def waits(self, number: int, cwnd: int = lib.MLTCP_CWND_MIN) -> bool:
        """Say whether a flow waits that has to yield at that window."""
        flow = self.flows[number]
        return bool(lib.mltcp_must_wait(flow, cwnd, self.slot, self.key))


def test_the_one_with_most_left_leads_whoever_came_first() -> None:
    job = Job(100, 300, 200)
    assert [job.waits(0), job.waits(1), job.waits(2)] == [False, False, True]
    assert [job.waits(0), job.waits(1), job.waits(2)] == [True, False, True]


def test_of_flows_with_as_much_left_the_first_one_leads() -> None:
    job = Job(100, 100, 100)
    assert [job.waits(1), job.waits(0), job.waits(2), job.waits(1)] == [False, True, True, False]


def test_lead_passes_to_the_flow_behind_and_ends() -> None:
    job = Job(100, 99)
    assert [job.waits(0), job.waits(1)] == [False, True]
    job.flows[0].left_kib = 98
    assert not job.waits(0)  # nobody has asked for it yet
    assert [job.waits(1), job.waits(0)] == [False, True]
    job.flows[1].left_kib = 0
    lib.mltcp_lead(job.flows[1], 1000 * MS, job.slot, job.key)
    assert not job.flows[1].lead_kib
    assert not job.waits(0)


def test_silent_leader_loses_the_lead() -> None:
    job = Job(300, 100)
    assert [job.waits(0), job.waits(1)] == [False, True]
    job.flows[1].last_ns += lib.MLTCP_LEAD_OLD << 20
    assert job.waits(1)
    job.flows[1].last_ns += 1 << 20
    assert not job.waits(1)


def test_another_job_that_has_the_same_word_keeps_nobody_waiting() -> None:
    job = Job(300, 100)
    assert not job.waits(0)
    job.key += 1
    assert not job.waits(1)


def test_a_lone_flow_never_waits() -> None:
    job = Job(300)
    for left_kib in range(300, 0, -1):
        job.flows[0].left_kib = left_kib
        assert not job.waits(0)


@pytest.mark.parametrize(
    ("cwnd", "slot", "left_kib"),
    [(3, True, 100), (2, False, 100), (2, True, 0)],
    ids=["room in its window", "no job", "nothing left"],
)
def test_who_need_not_wait(cwnd: int, slot: bool, left_kib: int) -> None:
    job = Job(300, left_kib)
    job.waits(0)
    word = job.slot if slot else ffi.NULL
    assert not lib.mltcp_must_wait(job.flows[1], cwnd, word, job.key)
    assert not job.flows[1].waits


def test_path_has_room_unless_a_small_window_was_lost() -> None:
    job = Job(300, 100)
    job.flows[1].tight = 0
    assert [job.waits(0), job.waits(1)] == [False, False]
    lose(job.flows[1], lib.MLTCP_CWND_TIGHT + 1, lib.MLTCP_CWND_MIN)
    assert not job.waits(1)
    lose(job.flows[1], lib.MLTCP_CWND_TIGHT, lib.MLTCP_CWND_MIN)
    assert job.waits(1)


def test_spurious_loss_keeps_finding_of_an_earlier_loss() -> None:
    early, late = Job.flow(100, 1000 * MS), make_flow()
    early.tight -= 1
    for flow in early, late:
        known = flow.tight
        lose(flow, lib.MLTCP_CWND_MIN, lib.MLTCP_CWND_MIN)
        assert flow.tight == lib.MLTCP_TIGHT
        lib.mltcp_on_undo(flow, ffi.NULL, 0)
        assert flow.tight == known


def test_path_has_room_again_after_iterations_without_loss() -> None:
    flow, params = make_flow(), make_params()
    lose(flow, lib.MLTCP_CWND_MIN, lib.MLTCP_CWND_MIN)
    for i in range(lib.MLTCP_TIGHT):
        assert flow.tight
        assert ack(flow, params, (i + 1) * 1000 * MS, (i + 1) * 10**6, sent=(i + 1) * 1000 * MS - 1)
    assert not flow.tight


def begins_with(flow: Any) -> int:
    """Return the window that the next iteration begins with, where the path holds a segment."""
    flow.cwnd, flow.yield_us, flow.ratio = 10, 1000, ONE
    cwnd, ssthresh = ffi.new("uint32_t *", 10), ffi.new("uint32_t *", 2)
    lib.mltcp_begin_small(flow, 10 * SRTT_US, SRTT_US, cwnd, ssthresh)
    return int(cwnd[0])


def test_who_has_waited_begins_with_less_until_the_path_has_room() -> None:
    job, params = Job(300, 100), make_params()
    assert [job.waits(0), job.waits(1)] == [False, True]
    leader, sibling = job.flows
    for i in range(lib.MLTCP_TIGHT):
        assert begins_with(leader) == lib.MLTCP_CWND_BEGIN
        assert begins_with(sibling) == lib.MLTCP_CWND_MIN
        now = sibling.last_ns + 1000 * MS
        sibling.left_kib = 0  # it isn't held back any more
        assert ack(sibling, params, now, (i + 1) * 10**6, sent=now - 1)
    assert begins_with(sibling) == lib.MLTCP_CWND_BEGIN


def test_a_wait_is_of_some_round_trips_and_bounded() -> None:
    flow = make_flow()
    assert lib.mltcp_wait_ns(flow, SRTT_US, SRTT_US) == WAIT_NS
    assert lib.mltcp_wait_ns(flow, U32, U32) == lib.MLTCP_WAIT_MAX_NS


@pytest.mark.parametrize("fine", [0, 1])
def test_waits_within_smoothed_rtt_do_not_lengthen_the_next(fine: int) -> None:
    flow = make_flow()
    flow.delay.queue_us, flow.delay.fine = SRTT_US // 2, fine
    assert lib.mltcp_wait_ns(flow, 10 * SRTT_US, SRTT_US // 2) == WAIT_NS


@pytest.mark.parametrize("hours", [0, 1, 2, 3])
@pytest.mark.parametrize("seconds", [0, 10, 40, 60, 70])
def test_the_end_of_a_wait_is_no_gap_but_a_pause_after_it_is(hours: int, seconds: int) -> None:
    """A flow may think that it waits when its burst is over, however long the pause then is."""
    job = Job(300, 100, now=hours * 3600 * 1000 * MS + MS)
    job.waits(0)
    flow = job.flows[1]
    assert job.waits(1)
    lib.mltcp_on_send(flow, flow.last_ns + lib.MLTCP_WAITED_NS, 0)
    assert not lib.mltcp_was_idle(flow)
    lib.mltcp_on_send(flow, flow.last_ns + lib.MLTCP_WAITED_NS + seconds * 1000 * MS + 1, 0)
    assert lib.mltcp_was_idle(flow)
    assert not flow.waits


def test_data_held_back_after_the_wait_is_no_gap() -> None:
    job = Job(300, 100)
    job.waits(0)
    flow = job.flows[1]
    assert job.waits(1)
    job.flows[1].left_kib = 400
    assert not job.waits(1)
    lib.mltcp_on_send(flow, flow.last_ns + WAIT_NS, 0)
    assert not lib.mltcp_was_idle(flow)
    flow.delay.held = 0  # as its host says, once what it held back has left
    lib.mltcp_on_send(flow, flow.last_ns + WAIT_NS, 0)
    assert lib.mltcp_was_idle(flow)


def test_gap_after_burst_counts_at_any_length() -> None:
    params = make_params(total_bytes=64 * KIB)
    slot = ffi.new("unsigned long long *")
    flow = make_flow()
    flow.delay.full_us, flow.delay.held = 1000, 1
    lib.mltcp_on_send(flow, 1000 * MS, 0)
    for number, sent in enumerate((KIB, 64 * KIB), 1):
        env = make_env(flow, params)
        env.lead = slot
        lib.mltcp_step(env, flow, (1000 + number) * MS, sent)
    assert flow.delay.held
    lib.mltcp_on_send(flow, 1007 * MS, 0)
    assert lib.mltcp_was_idle(flow)


def test_a_flow_that_need_not_yield_any_more_waits_no_more() -> None:
    job = Job(300, 100)
    job.waits(0)
    flow = job.flows[1]
    assert job.waits(1)
    assert lib.mltcp_is_aside(flow)
    cwnd, ssthresh = ffi.new("uint32_t *", 2), ffi.new("uint32_t *", 2)
    assert not lib.mltcp_yield_or_resume(flow, SRTT_US, SRTT_US, cwnd, ssthresh)
    assert not flow.waits
    assert lib.mltcp_is_aside(flow), "nobody would let go of it"


def test_steps_say_what_is_left_and_who_leads() -> None:
    params = make_params(total_bytes=64 * KIB)
    slot = ffi.new("unsigned long long *")
    flow = make_flow()
    flow.delay.full_us = 1000
    now = 1000 * MS
    lib.mltcp_on_send(flow, now, 0)
    for sent in (KIB, 2 * KIB, 32 * KIB, 64 * KIB):
        now += MS
        env = make_env(flow, params)
        env.lead = slot
        lib.mltcp_step(env, flow, now, sent)
        assert flow.left_kib == 64 - sent // KIB
        assert flow.lead_kib == flow.left_kib
        assert slot[0] & 0xFFFFFF == flow.left_kib
