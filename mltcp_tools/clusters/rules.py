# SPDX-License-Identifier: BSD-2-Clause
"""The rules by which jobs share links under each treatment, as the flow simulator has it.

The rules of reno, mltcp and mltcp_reno are fitted to the packet simulator
(tests/bench/bench_flow_rules.py says how well they do). MLTCP's weight is its own F(progress) =
slope x progress + intercept (MLTCP, section 3), with the published 1.75 and 0.25: next to it
yielding changes little that a weight could say. What was fitted is `luck`, how unequal windows of
equals are, and what a link loses when more flows fill it than its queue has room for. mltcp_reno
only increases by F, which says less of its share: that is F to a power below 1, and its luck lasts,
as a window that a job won stays larger for many bursts where nobody yields.

`rates` shares in proportion to F, as its additive increase is, without losses, and leaves the
headroom of its law. `priorities` are strict: who has least left to send goes first, which on one
link is Sincronia's order. `fair` is what ideal fairness gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from mltcp_tools.base.errors import UsageError
from mltcp_tools.clusters.engine.library import Rule
from mltcp_tools.lab.experiments.treatments import TREATMENTS as REGISTRY
from mltcp_tools.lab.experiments.treatments import (
    PrioritiesSettings,
    RatesSettings,
    Settings,
    TimeShiftSettings,
)

FAIR = Rule("fair")
RENO = Rule("reno", luck=0.81, loss=0.76, crowd=1.52)
MLTCP = Rule("mltcp", intercept=0.25, slope=1.75, levels=16, luck=0.17, loss=1.93, crowd=1.68)
MLTCP_RENO = replace(
    MLTCP, name="mltcp_reno", power=0.384, luck=2.57, lasting=16, loss=1.41, crowd=2.19
)
RATES = replace(MLTCP, name=RatesSettings.name, luck=0.05, loss=0.0, use=0.99)
PRIORITIES = Rule(PrioritiesSettings.name, order=True)

MEASURED = {"reno": RENO, "mltcp": MLTCP, "mltcp_reno": MLTCP_RENO}
"""The rules that stand for a congestion control of the packet simulator."""

TWO_WAY = {
    "reno": RENO,
    "mltcp": replace(MLTCP, name="mltcp, two ways", power=0.2, luck=0.81, lasting=16),
}
"""The same where hosts send and receive at once, as in all collectives between servers: there
MLTCP hardly yields, as a round trip holds the queue of the way back, and gains less. Shares follow
its F to a power of 0.2, and windows are as unequal as reno's and stay so for 16 bursts. Fitted to
the packet simulator on rings, leaf-spine, pipeline and two-way."""
UNTOLD = 0.1
"""By how much of the iteration time that rule's gain over reno is off, at most, on networks that it
wasn't fitted on, rounded up to whole per cent (tests/bench/bench_flow_rules.py). Smaller effects
can't be told from no effect."""


@dataclass(frozen=True)
class Treatment:
    """A treatment of jobs that contend.

    rule: how links are shared. time_shifts: bursts begin at shifts that planning gives (Cassini).
    aggregated: the network adds up gradients, so that a link carries each once.
    """

    name: str
    rule: Rule
    time_shifts: bool = False
    aggregated: bool = False


_RENO, _MLTCP = Treatment("reno", RENO), Treatment("mltcp", TWO_WAY["mltcp"])
_APPLIED: dict[type[Settings], Callable[[Treatment], Treatment]] = {
    TimeShiftSettings: lambda base: replace(base, time_shifts=True),
    RatesSettings: lambda base: replace(base, rule=RATES),
    PrioritiesSettings: lambda base: replace(base, rule=PRIORITIES),
}
"""The effect of each treatment of a variant on jobs over a congestion control."""


def _registered() -> Iterator[Treatment]:
    """All treatments of variants that have a rule, over reno, and over mltcp where that still
    decides who gets what."""
    for name, settings in REGISTRY.items():
        for base in (_RENO, _MLTCP) if settings in _APPLIED else ():
            found = _APPLIED[settings](base)
            if base is _RENO or found.rule is base.rule:
                yield replace(found, name=name if base is _RENO else f"{base.name}+{name}")


TREATMENTS = {
    each.name: each
    for each in (
        Treatment("fair", FAIR),
        _RENO,
        _MLTCP,
        *_registered(),
        Treatment("aggregation", RENO, aggregated=True),
        replace(_MLTCP, name="mltcp+aggregation", aggregated=True),
    )
}


def treatment(name: str) -> Treatment:
    """The treatment of that name, or a UsageError that lists them."""
    if name not in TREATMENTS:
        raise UsageError(f"there is no treatment {name!r}; there are {', '.join(TREATMENTS)}.")
    return TREATMENTS[name]
