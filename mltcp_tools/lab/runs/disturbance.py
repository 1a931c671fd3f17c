# SPDX-License-Identifier: BSD-2-Clause
"""The rule by which a variant counts as disturbed; runs and reports share it.

A second is disturbed when the hypervisor took more than STOLEN of all CPUs' time, when timers fired
later than LATE_S on average or LATEST_S at worst, or when the jobs' processes together waited for a
CPU for more than QUEUED of it. Waiting counts only while other processes used more than OTHERS of
the CPUs' time, and so do late timers where the run itself used more than CROWDED of it: on a host
that is too small for the jobs, another run doesn't help. A burst of 100 ms that starts 1 ms late is
1 % slower, which is as much as close variants differ by. A variant is disturbed when more than MOST
of its seconds are. Skipped BPF programs are only counted: a kernel that skips them does so every
few seconds, in each run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from mltcp_tools.kernel.host.disturbance import Second

STOLEN = 0.05
LATE_S = 0.001
LATEST_S = 0.02
QUEUED = 0.25
OTHERS = 0.1
CROWDED = 0.5
MOST = 0.1
BUSY_CPU = 0.85
"""Share of all CPUs' time above which the machine, not the link, may limit a variant."""


@dataclass(kw_only=True)
class Disturbance:
    """The disturbance of a variant in a repetition, as in host/disturbance.py: means, but latest_s
    the worst.

    share: of seconds that were disturbed. others, queued: None where unknown. busiest: share of its
    time for which the busiest CPU was in use, by the jobs or others. skipped: BPF programs that the
    kernel skipped. seconds: how many were watched. attempt: number of the variant's run, from 1.
    """

    share: float
    stolen: float
    others: float | None
    queued: float | None
    late_s: float
    latest_s: float
    seconds: int
    busiest: float | None = None
    skipped: int = 0
    attempt: int = 1

    @property
    def disturbed(self) -> bool:
        """Return whether the variant can't be compared with others."""
        return self.share > MOST

    def sentence(self) -> str:
        """Return the sentence on its causes, without a full stop."""
        causes = [f"{self.share:.0%} of its seconds were disturbed"]
        if self.stolen > STOLEN / 2:
            causes.append(f"the hypervisor took {self.stolen:.0%} of the CPUs' time")
        if self.others is not None and self.others > OTHERS / 2:
            causes.append(f"other processes used {self.others:.0%} of the CPUs")
        if self.queued is not None and self.queued > QUEUED / 2:
            causes.append(f"the jobs waited {self.queued:.2f} s per second for a CPU")
        if self.late_s > LATE_S / 2 or self.latest_s > LATEST_S:
            causes.append(
                f"timers fired {self.late_s * 1e3:.1f} ms late, at worst {self.latest_s * 1e3:.0f}"
            )
        return ", ".join(causes)


def rows_of(seconds: Iterable[Second], start: float) -> list[dict[str, Any]]:
    """Rows of the table `disturbance` without the variant's key; times count from `start`."""
    names = [each.name for each in fields(Second) if each.name != "at"]
    return [
        {"time_s": each.at - start} | {name: getattr(each, name) for name in names}
        for each in seconds
    ]


def judge(rows: Sequence[Mapping[Any, Any]], attempt: int = 1) -> Disturbance | None:
    """The verdict on one run of a variant from its rows; None where nothing was watched."""
    if not rows:
        return None
    late_s = _known(rows, "late_s")
    return Disturbance(
        seconds=len(rows),
        share=sum(map(_is_bad, rows)) / len(rows),
        stolen=_mean(_known(rows, "stolen")) or 0.0,
        others=_mean(_known(rows, "others")),
        queued=_mean(_known(rows, "queued")),
        late_s=_mean(late_s) or 0.0,
        latest_s=max(_known(rows, "latest_s"), default=0.0),
        busiest=_mean(_known(rows, "busiest")),
        skipped=int(sum(_known(rows, "skipped"))),
        attempt=attempt,
    )


def _is_bad(row: Mapping[Any, Any]) -> bool:
    # A column that the kernel couldn't fill is None, or not a number where it was read from a file:
    # no comparison with that is true.
    queued, own, others = (row.get(name) or 0.0 for name in ("queued", "own", "others"))
    late = row["late_s"] > LATE_S or row["latest_s"] > LATEST_S
    return bool(
        row["stolen"] > STOLEN
        or (late and not (own > CROWDED and others <= OTHERS))
        or (queued > QUEUED and others > OTHERS)
    )


def _known(rows: Sequence[Mapping[Any, Any]], column: str) -> list[float]:
    values = [row.get(column) for row in rows]
    return [float(each) for each in values if each is not None and not math.isnan(each)]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
