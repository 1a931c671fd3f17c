# SPDX-License-Identifier: BSD-2-Clause
"""CUBIC in virtual time: the curve of RFC 9438, HyStart, and what a loss leaves."""

from __future__ import annotations

import numpy as np
import pytest

from mltcp_tools.kernel.backends.base import JobParams
from mltcp_tools.kernel.backends.params import params_fields
from mltcp_tools.kernel.native import uapi
from mltcp_tools.lab.simulator.inputs import PacketJob, SimulatedLink
from mltcp_tools.lab.simulator.library import simulate


def windows(link: SimulatedLink, size: int, trace: float = 0.02) -> tuple[np.ndarray, np.ndarray]:
    """Times (s) and windows of one long flow of CUBIC."""
    lone = PacketJob(0.0, [0.1], [[size]], base="cubic")
    samples = simulate(link, [lone], seed=1, trace=trace).samples
    return samples["time_ns"] * 1e-9, samples["cwnd"].astype(int)


def test_a_window_follows_the_curve_between_losses() -> None:
    """W(t) = 0.4 (t - K)^3 + plateau, K = cbrt((plateau - W(0)) / 0.4): RFC 9438, 4.2. The plateau
    is where the loss was, or less where the loss before was higher (4.7). On a path so long Reno's
    window is below the curve."""
    link = SimulatedLink(rate=100e6, queue=1_000_000, rtt=100e-3)
    time_s, cwnd = windows(link, 400_000_000)
    first, last = len(cwnd) // 8, len(cwnd) // 2
    begin = first + int(np.flatnonzero(cwnd[first:last] == cwnd[first:last].min())[-1])
    most = cwnd[begin - 40 : begin].max()

    def curve(plateau: float) -> np.ndarray:
        flat_s = np.cbrt((plateau - cwnd[begin]) / 0.4)
        past_s = time_s[begin : begin + 500] - time_s[begin] - flat_s
        found: np.ndarray = plateau + 0.4 * past_s**3
        return found

    seen = cwnd[begin : begin + 500]
    assert cwnd[begin] == pytest.approx(0.7 * most, rel=0.02)
    errors = [np.abs(curve(plateau) - seen).max() for plateau in (most, 0.85 * most)]
    assert min(errors) < 0.02 * most < max(errors)


def test_on_short_paths_it_grows_as_reno_would_with_that_cut() -> None:
    """0.53 segments per round trip (RFC 9438, 4.3), so that it keeps a share next to Reno."""
    link = SimulatedLink(rate=50e6, queue=60_000, rtt=2e-3)
    pair = [PacketJob(0.0, [0.1], [[30_000_000]], base=base) for base in ("cubic", "reno")]
    done = simulate(link, pair, seed=1, trace=0.05)
    samples = done.samples[done.samples["time_ns"] < min(b["end_ns"][0] for b in done.bursts)]
    acked = [int(samples[samples["job"] == job]["acked"].max()) for job in range(2)]
    assert 0.5 < acked[0] / acked[1] < 2


def test_slow_start_ends_before_the_queue_is_full() -> None:
    """HyStart hears ACKs in a train for half a round trip; Reno goes on until segments are lost."""
    link = SimulatedLink(rate=100e6, queue=400_000, rtt=40e-3)
    jobs = {base: PacketJob(0.0, [0.1], [[3_000_000]], base=base) for base in ("cubic", "reno")}
    done = {base: simulate(link, [job], seed=1) for base, job in jobs.items()}
    assert done["cubic"].counters["dropped"] == 0 < done["reno"].counters["dropped"]


def test_a_pause_stops_the_curve() -> None:
    """The window of the first burst's end, not that of a curve that went on meanwhile."""
    link = SimulatedLink(rate=100e6, queue=200_000, rtt=20e-3)
    jobs = [PacketJob(0.0, [0.1, 20.0], [[60_000_000], [2_000_000]], base="cubic")]
    done = simulate(link, jobs, seed=1, trace=0.01, slow_start_after_idle=False)
    first, second = (done.samples[done.samples["iteration"] == number]["cwnd"] for number in (1, 2))
    assert int(second[5]) < 1.15 * int(first[-1])


def test_at_f_1_mltcp_cubic_is_cubic_to_the_bit() -> None:
    plain = params_fields(JobParams(slope=0.0, intercept=1.0))
    plain |= {"mechanisms": uapi.SCALE_INCREASE}
    link = SimulatedLink(rate=200e6, queue=60_000, rtt=1e-3)

    def ends(params: dict[str, int] | None) -> list[list[int]]:
        jobs = [
            PacketJob(*(0.03 * n, [0.2] * 5, [[1_500_000]] * 5), params=params, base="cubic")
            for n in range(3)
        ]
        return [bursts["end_ns"].tolist() for bursts in simulate(link, jobs, seed=1).bursts]

    assert ends(plain) == ends(None)
    assert ends(plain | {"slope": 2 * plain["intercept"]}) != ends(None)
