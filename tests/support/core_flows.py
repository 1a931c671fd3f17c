# SPDX-License-Identifier: BSD-2-Clause
"""Flows of the core for tests, and what befalls them."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from hypothesis import strategies as st
from support.core import core

from mltcp_tools.kernel.native.uapi import ONE

lib, ffi = core()

U32 = 2**32 - 1
U64 = 2**64 - 1
MS = 1_000_000
INCREASE, YIELD, TRUSTED = 1, 4, 8
ALL = INCREASE | YIELD | TRUSTED
"""Of a job that the host's administrator set."""

ratios = st.integers(0, ONE)
times = st.integers(0, U64)


def make_params(**fields: int) -> Any:
    defaults = {
        "burst_bytes": 1_000_000,
        "gap_ns": 100 * MS,
        "slope": 7 * ONE // 4,
        "intercept": ONE // 4,
        "yield_min": ONE // 5 * 2,
        "yield_max": ONE,
    }
    return ffi.new("struct mltcp_params *", defaults | fields)


def make_flow(job: int = 1, acked: int = 0, retransmits: int = 0) -> Any:
    flow = ffi.new("struct mltcp_flow *")
    lib.mltcp_reset(flow, job, acked, retransmits)
    flow.delay.watched = 1  # as its first decision leaves it
    return flow


def ack(
    flow: Any,
    params: Any,
    now: int,
    acked: int,
    sent: int | None = None,
    rtt_us: int = 0,
    min_rtt_us: int = 0,
    mechanisms: int = ALL,
    job_word: Any = ffi.NULL,
) -> bool:
    """One ACK, as the kernel side feeds it; True when it opens an iteration.

    sent: when, in ns, sending had begun with nothing outstanding; None: it hadn't.
    """
    if sent is not None:
        lib.mltcp_on_send(flow, sent, flow.retransmits)
    env = make_env(flow, params, mechanisms)
    env.rtt_us, env.min_us, env.job_path = rtt_us, min_rtt_us, job_word
    iteration = flow.iteration
    lib.mltcp_step(env, flow, now, acked)
    return bool(flow.iteration != iteration)


def make_env(flow: Any, params: Any, mechanisms: int = ALL) -> Any:
    """Return what a flow's step asks for; no sample, and the connection is where it was."""
    fields = {name: getattr(flow, name) for name in ("cwnd", "srtt_us", "retransmits")}
    path = ffi.new("unsigned long long *")
    env = ffi.new(
        "struct mltcp_env *", {"params": params, "mechanisms": mechanisms, "path": path} | fields
    )
    _paths[env] = path
    return env


_paths: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
"""The path's words of environments, which live as long."""


def see_queue(flow: Any, queue_us: int) -> None:
    """All samples since the flow last looked say so, and it looks."""
    flow.delay.least_us = flow.delay.queue_us = queue_us


def lose(flow: Any, srtt_us: int = 10**6, slot: Any = None) -> None:
    """A loss, with no RTT without a queue."""
    lib.mltcp_on_loss(flow, srtt_us, 0, slot or word(), 1)


def word(value: int = 0) -> Any:
    """A word in which flows of a path keep what they share."""
    return ffi.new("unsigned long long *", value)
