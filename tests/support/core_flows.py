# SPDX-License-Identifier: BSD-2-Clause
"""Flows of the core for tests, and what befalls them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from support.core import core

from mltcp_tools.kernel.native.uapi import ONE

lib, ffi = core()

U32 = 2**32 - 1
U64 = 2**64 - 1
MS = 1_000_000
INCREASE, DECREASE, YIELD, TRUSTED = 1, 2, 4, 8
ALL = INCREASE | DECREASE | YIELD | TRUSTED
"""Of a job that the host's administrator set."""

ratios = st.integers(0, ONE)
times = st.integers(0, U64)


def make_params(**fields: int) -> Any:
    defaults = {
        "total_bytes": 1_000_000,
        "gap_ns": 100 * MS,
        "slope": 7 * ONE // 4,
        "intercept": ONE // 4,
        "keep_min": ONE // 10,
        "keep_max": lib.MLTCP_KEEP_MAX,
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
) -> bool:
    """One ACK, as the kernel side feeds it; True when it opens an iteration.

    sent: when, in ns, sending had begun with nothing outstanding; None: it hadn't.
    """
    if sent is not None:
        lib.mltcp_on_send(flow, sent, flow.retransmits)
    env = make_env(flow, params, mechanisms)
    env.rtt = make_sample(now, rtt_us, min_rtt_us)[0]
    iteration = flow.iteration
    lib.mltcp_step(env, flow, now, acked)
    return bool(flow.iteration != iteration)


def make_env(flow: Any, params: Any, mechanisms: int = ALL) -> Any:
    """Return what a flow's step asks for; no sample, and the connection is where it was."""
    fields = {name: getattr(flow, name) for name in ("cwnd", "srtt_us", "retransmits")}
    return ffi.new("struct mltcp_env *", {"params": params, "mechanisms": mechanisms} | fields)


def sample_rtt(flow: Any, now: int, rtt_us: int, min_rtt_us: int) -> None:
    """A sample of an ACK that nothing is wrong with."""
    sample = make_sample(now, rtt_us, min_rtt_us)
    sample.bytes = 2896
    lib.mltcp_delay_rtt(ffi.addressof(flow.delay), sample)


def make_sample(now: int, rtt_us: int, min_rtt_us: int) -> Any:
    """The round trip as an ACK at `now` says it."""
    fields = {"now_us": now // 1000 & U32, "rtt_us": rtt_us, "min_us": min_rtt_us, "segments": 2}
    return ffi.new("struct mltcp_rtt *", fields)


def lose(flow: Any, cwnd: int, base: int, srtt_us: int = 10**6) -> int:
    """The slow-start threshold after a loss."""
    return int(lib.mltcp_on_loss(flow, cwnd, base, srtt_us, 0))
