"""Which of FaPES' goals a comparison reaches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mltcp_tools.clusters.fapes.compare import Result

SHORTER, MORE = 0.248, 1.8
"""By which share completion times are to be lower, and how many times the static goodput."""


@dataclass(frozen=True)
class Goal:
    """What was to be reached, and was.

    wanted, reached: shares or factors, as `what` says. possible: what `reached` could be at most,
    None where nothing says.
    """

    what: str
    wanted: float
    reached: float
    possible: float | None = None

    @property
    def holds(self) -> bool:
        """Whether at least as much as was wanted was reached."""
        return self.reached >= self.wanted

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return vars(self) | {"holds": self.holds}


def goals(results: Sequence[Result]) -> list[Goal]:
    """FaPES against the static split under Knative's autoscaler, and against Lyra.

    Goodput can't exceed the GPUs that inference left, as long as jobs are no faster per GPU than
    alone with what they asked for.
    """
    arms = {each.arm: each for each in results}
    mean_s = {
        arm: float(each.training.summary()["completion_mean_s"]) for arm, each in arms.items()
    }
    fapes, static = arms["fapes"], arms["static"]
    return [
        Goal("completion below static", SHORTER, 1 - mean_s["fapes"] / mean_s["static"]),
        Goal("completion below Lyra", SHORTER, 1 - mean_s["fapes"] / mean_s["lyra"]),
        Goal(
            "goodput over static",
            MORE,
            fapes.goodput / static.goodput,
            fapes.left_gpus / static.goodput,
        ),
        Goal("SLO met, static at least", static.served.slo_attainment, fapes.served.slo_attainment),
    ]
