# SPDX-License-Identifier: BSD-2-Clause
"""The rules by which jobs share links under each treatment, as the flow simulator has it.

Reno's and MLTCP's are fitted to the packet simulator (tests/bench/bench_flow_rules.py says how well
they do): `luck`, how unequal windows of equals are, and what a link loses when more flows fill it
than its queue has room for. MLTCP's weight is its F(progress) = slope x progress + intercept
(MLTCP, section 3) to a power of 0.2: between servers, hosts send and receive at once, so that a
round trip holds the queue of the way back and MLTCP hardly yields. Its windows are as unequal as
Reno's, and stay so for 16 bursts. `fair` is what ideal fairness gives.
"""

from __future__ import annotations

from dataclasses import dataclass

from mltcp_tools.base.errors import UsageError
from mltcp_tools.clusters.engine.library import Rule

FAIR = Rule("fair")
RENO = Rule("reno", luck=0.81, loss=0.76, crowd=1.52)
MLTCP = Rule(
    "mltcp",
    intercept=0.25,
    slope=1.75,
    power=0.2,
    levels=16,
    luck=0.81,
    lasting=16,
    loss=1.93,
    crowd=1.68,
)
UNTOLD = 0.1
"""By how much of the iteration time MLTCP's gain over Reno is off, at most, on networks that its
rule wasn't fitted on, rounded up to whole per cent (tests/bench/bench_flow_rules.py). Smaller
effects can't be told from no effect."""


@dataclass(frozen=True)
class Treatment:
    """A treatment of jobs that contend.

    rule: how links are shared. time_shifts: bursts begin at shifts that planning gives (Cassini).
    """

    name: str
    rule: Rule
    time_shifts: bool = False


TREATMENTS = {
    each.name: each
    for each in (
        *(Treatment(rule.name, rule) for rule in (FAIR, RENO, MLTCP)),
        Treatment("time_shifts", RENO, time_shifts=True),
        Treatment("mltcp+time_shifts", MLTCP, time_shifts=True),
    )
}


def treatment(name: str) -> Treatment:
    """The treatment of that name, or a UsageError that lists them."""
    if name not in TREATMENTS:
        raise UsageError(f"there is no treatment {name!r}; there are {', '.join(TREATMENTS)}.")
    return TREATMENTS[name]
