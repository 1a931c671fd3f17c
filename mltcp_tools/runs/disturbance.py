"""When an arm counts as disturbed: the rule that runs and reports share.

A second is disturbed when the hypervisor took more than STOLEN of all CPUs' time, when timers fired
later than LATE_S on average or LATEST_S at worst, or when the jobs' processes together waited for a
CPU for more than QUEUED of it. A burst of 100 ms that starts 1 ms late is 1 % slower by that alone,
which is what arms differ by when they are close. An arm is disturbed when more than MOST of its
seconds are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from mltcp_tools.host.disturbance import Second

STOLEN = 0.05
LATE_S = 0.001
LATEST_S = 0.02
QUEUED = 0.25
MOST = 0.1


@dataclass(frozen=True)
class Disturbance:
    """What disturbed an arm in a repetition.

    seconds: how many were watched. share: of them disturbed. stolen, queued, late_s: means;
    latest_s: the worst; all as in host/disturbance.py. queued is None where it isn't known.
    attempt: which run of the arm it was, from 1.
    """

    seconds: int
    share: float
    stolen: float
    queued: float | None
    late_s: float
    latest_s: float
    attempt: int = 1

    @property
    def disturbed(self) -> bool:
        """Whether the arm can't be compared with others."""
        return self.share > MOST

    def sentence(self) -> str:
        """What disturbed it, without a full stop."""
        causes = [f"{self.share:.0%} of its seconds were disturbed"]
        if self.stolen > STOLEN / 2:
            causes.append(f"the hypervisor took {self.stolen:.0%} of the CPUs' time")
        if self.queued is not None and self.queued > QUEUED / 2:
            causes.append(f"its processes waited {self.queued:.2f} s per second for a CPU")
        if self.late_s > LATE_S / 2 or self.latest_s > LATEST_S:
            causes.append(
                f"timers fired {self.late_s * 1e3:.1f} ms late, at worst {self.latest_s * 1e3:.0f}"
            )
        return ", ".join(causes)


def rows_of(seconds: Iterable[Second], start: float) -> list[dict[str, Any]]:
    """Rows of the table `disturbance`, less what names the arm; times count from `start`."""
    return [
        {
            "time_s": each.at - start,
            "length_s": each.length_s,
            "stolen": each.stolen,
            "busy": each.busy,
            "pressure": each.pressure,
            "queued": each.queued,
            "late_s": each.late_s,
            "latest_s": each.latest_s,
        }
        for each in seconds
    ]


def judge(rows: Sequence[dict[str, Any]] | pd.DataFrame, attempt: int = 1) -> Disturbance | None:
    """The verdict on one run of an arm from its rows; None where nothing was watched."""
    table = pd.DataFrame(rows)
    if table.empty:
        return None
    numbers = table[["stolen", "queued", "late_s", "latest_s"]].astype(float)
    bad = (
        (numbers["stolen"] > STOLEN)
        | (numbers["queued"] > QUEUED)
        | (numbers["late_s"] > LATE_S)
        | (numbers["latest_s"] > LATEST_S)
    )
    queued = numbers["queued"].mean()
    return Disturbance(
        seconds=len(table),
        share=float(bad.mean()),
        stolen=float(numbers["stolen"].mean()),
        queued=None if pd.isna(queued) else float(queued),
        late_s=float(numbers["late_s"].mean()),
        latest_s=float(numbers["latest_s"].max()),
        attempt=attempt,
    )
