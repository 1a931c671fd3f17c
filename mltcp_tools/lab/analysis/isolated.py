# SPDX-License-Identifier: BSD-2-Clause
"""The communication time that a job needs with the link to itself, and the time it took alone.

The need follows from the job's bytes and the link's rate. An isolated run isn't the reference: a
congestion control that loses packets on an empty link would lower the bar for others. The best
isolated iterations stand in where the link's rate is unknown (recorded jobs) or isn't enough (jobs
that send both ways share the link with their own acknowledgements), and where they were faster
than computed, which shows a mistake in the computation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from mltcp_tools.lab.experiments.jobs import ExperimentJob
from mltcp_tools.lab.experiments.variants import ALONE
from mltcp_tools.lab.runs.run import Run

HEADER_BYTES, STAMP_BYTES = 40, 12
"""Bytes of a packet that aren't payload: IPv4 (20) and TCP (20), and TCP's timestamps."""
ETHERNET_BYTES = 14
"""A qdisc counts this on top of a packet."""
BEST = 0.1
"""The quantile of isolated communication times that counts as the best; the minimum may be an
artefact of one late timestamp."""
ROUNDING = 1e-6
"""The share by which sums of times may differ."""
MUCH_LOST = 1.1
"""A job that took this many times its need alone loses much to its own congestion control."""
TOO_FAST = 0.95
"""Below this share of the need, the bottleneck's rate can't have been as configured."""


@dataclass(frozen=True)
class Isolated:
    """A job with the link to itself; times are seconds of communication per iteration.

    needs_s: its need, without `latency_s`. latency_s: seconds per burst from its last byte on the
    link until the sender knows. how: the source of needs_s. stands_for_it: the job of the variant
    `alone` that was measured for it, or None; best_s, mean_s, median_s: of that job's iterations,
    with latency.
    """

    needs_s: float
    latency_s: float
    how: Literal["computed", "measured"]
    stands_for_it: str | None
    best_s: float | None
    mean_s: float | None
    median_s: float | None
    bursts: int
    alone_s: float = field(init=False)
    """The need with latency: communication time of an undisturbed iteration, seconds."""
    loss: float | None = field(init=False)
    """Mean time of the isolated iterations divided by their need."""

    def __post_init__(self) -> None:
        alone_s = self.needs_s + self.bursts * self.latency_s
        object.__setattr__(self, "alone_s", alone_s)
        loss = self.mean_s / alone_s if self.mean_s and alone_s > 0 else None
        object.__setattr__(self, "loss", loss)


def isolated_jobs(run: Run) -> dict[str, Isolated]:
    """Job -> its need, where that is known."""
    standing = match_isolated_jobs(run)
    alone = run.iterations[run.iterations["variant"] == ALONE]
    measured = {str(job): rows["comm_s"] for job, rows in alone.groupby("job")}
    found = {}
    for job in run.job_names:
        view = run.experiment.jobs[job]
        times = measured.get(standing.get(job, ""))
        only = run.experiment.links.get("")
        delay_s = only.delay if only else 0.0
        latency_s = delay_s + setting(run, "rtt_s", 0.0)
        least_s = _least_s(run, view)
        best_s = float(times.quantile(BEST)) if times is not None else None
        count = view.bursts
        if least_s is None and best_s is None:
            continue
        computed_s = None if least_s is None else least_s + count * latency_s
        if computed_s is None or (best_s is not None and best_s < (1 - ROUNDING) * computed_s):
            assert best_s is not None
            needs_s, how = max(0.0, best_s - count * latency_s), "measured"
        else:
            assert least_s is not None
            needs_s, how = least_s, "computed"
        found[job] = Isolated(
            needs_s=needs_s,
            latency_s=latency_s,
            how="computed" if how == "computed" else "measured",
            stands_for_it=standing.get(job),
            best_s=best_s,
            mean_s=float(times.mean()) if times is not None else None,
            median_s=float(times.median()) if times is not None else None,
            bursts=count,
        )
    return found


def _least_s(run: Run, view: ExperimentJob) -> float | None:
    """Seconds that the job's bytes take on the slowest of its links, None where that isn't known.

    All flows of a burst share the link, so their number and shares don't matter.
    """
    rates = {name: link.rate for name, link in run.experiment.links.items()}
    if view.connections:
        return None  # patterned.py knows
    crossed = [rates[name] for name in view.links] or list(rates.values())
    if not crossed or view.direction == "both":
        return None
    return view.bytes * 8 / (min(crossed) * payload_share(run))


def payload_share(run: Run) -> float:
    """Share of a link's bytes that is payload."""
    mtu = setting(run, "mtu", min(link.mtu for link in run.experiment.links.values()))
    header = HEADER_BYTES + (STAMP_BYTES if run.experiment.stamps else 0)
    return (mtu - header) / (mtu + ETHERNET_BYTES)


def setting(run: Run, name: str, default: float) -> float:
    """Return a setting of the simulation, as environment.json has it."""
    value = run.environment.get(name)
    usable = run.environment.get("simulated") and isinstance(value, (int, float)) and value > 0
    return float(value) if usable and value is not None else default


def match_isolated_jobs(run: Run) -> dict[str, str]:
    """Return the job of the variant `alone` that stands for each job: itself, else one with equal
    parameters."""
    measured = list(dict.fromkeys(run.iterations.loc[run.iterations["variant"] == ALONE, "job"]))
    jobs, matches = run.experiment.jobs, {}
    for job in run.job_names:
        if job in measured:
            matches[job] = job
        elif alike := [m for m in measured if jobs[m].demand() == jobs[job].demand()]:
            matches[job] = alike[0]
    return matches


def findings(run: Run, isolated: Mapping[str, Isolated]) -> list[str]:
    """Sentences on jobs that lose much without competition, and on links that carry more than
    their rate."""
    cc = run.experiment.isolated_cc or "its congestion control"
    return [
        sentence
        for job, each in measured_once(isolated)
        for sentence in (_lost(run, job, each, cc), _too_fast(job, each, run))
        if sentence
    ]


def measured_once(isolated: Mapping[str, Isolated]) -> Iterable[tuple[str, Isolated]]:
    """One entry for each job that ran alone."""
    once = {each.stands_for_it: each for each in isolated.values() if each.stands_for_it}
    return [(str(job), each) for job, each in once.items()]


def _lost(run: Run, job: str, found: Isolated, cc: str) -> str | None:
    if found.loss is None or found.mean_s is None or found.loss < MUCH_LOST:
        return None
    rows = run.variants[run.variants["variant"] == ALONE]
    packets, drops = rows["link_packets"].sum(), rows["link_drops"].sum()
    dropped = f", and the link dropped {drops / packets:.1%} of all packets" if drops else ""
    return (
        f"{job} alone under {cc} communicated {found.mean_s * 1e3:.1f} ms per iteration, "
        f"{found.loss:.2f} times the {found.alone_s * 1e3:.1f} ms that it needs{dropped}: it loses"
        " this time without competition."
    )


def _too_fast(job: str, found: Isolated, run: Run) -> str | None:
    least_s = _least_s(run, run.experiment.jobs[job])
    if least_s is None or found.median_s is None or found.median_s >= TOO_FAST * least_s:
        return None
    return (
        f"{job} alone communicated faster ({found.median_s * 1e3:.1f} ms) than the link's rate"
        f" allows ({least_s * 1e3:.1f} ms): check the bottleneck."
    )
