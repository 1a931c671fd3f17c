"""The winner of a mix: the shortest mean iteration, but for ties with what needs less."""

from __future__ import annotations

from typing import Any

import pytest

from mltcp_tools.lab.analysis.contenders import (
    contenders_table,
    needs_of,
    queues_table,
    settled_gain,
    winner,
    wins,
)
from mltcp_tools.lab.experiments.treatments import NEEDS

NOTHING, MARKS, STAMPS, PLAN, CONTROLLER = NEEDS
ARMS: dict[str, dict[str, Any]] = {
    "reno": {"cc": "reno"},
    "dctcp": {"cc": "dctcp"},
    "mltcp": {"cc": "mltcp"},
    "rates": {"cc": "mltcp_int", "treatment": {"rates": {"source": "network"}}},
    "rates-host": {"cc": "mltcp_int", "treatment": {"rates": {"source": "host"}}},
    "planned": {"cc": "cubic", "treatment": {"turns": {}}},
    "order": {"cc": "mltcp", "treatment": {"priorities": {"weight": "none"}}},
}


def mix(**means: float) -> dict[str, Any]:
    """Of arms with these mean iterations, whole; the bound is 0.4."""
    return {
        "arms": {
            arm: {
                "mean_s": mean,
                "needs": needs_of(ARMS[arm]),
                "captured_gain": {"value": (means["reno"] - mean) / (means["reno"] - 0.4)},
                "settled_gain": 0.25,
            }
            for arm, mean in means.items()
        }
    }


@pytest.mark.parametrize(
    ("arm", "needs"),
    [
        ("reno", NOTHING),
        ("mltcp", NOTHING),
        ("rates-host", NOTHING),
        ("dctcp", MARKS),
        ("rates", STAMPS),
        ("planned", PLAN),
        ("order", CONTROLLER),
    ],
)
def test_what_an_arm_needs(arm: str, needs: str) -> None:
    assert needs_of(ARMS[arm]) == needs


def test_the_shortest_mean_wins() -> None:
    assert winner(mix(reno=0.5, mltcp=0.45, rates=0.43, order=0.41)["arms"]) == "order"


def test_of_equals_the_one_that_needs_less_wins() -> None:
    assert winner(mix(reno=0.5, mltcp=0.451, rates=0.4495, order=0.45)["arms"]) == "mltcp"
    assert winner(mix(reno=0.5, mltcp=0.46, rates=0.451, order=0.45)["arms"]) == "rates"


def test_a_table_has_a_column_for_each_need() -> None:
    mixes = {
        "one": mix(reno=0.5, mltcp=0.45, rates=0.43),
        "two": mix(reno=0.5, mltcp=0.42, rates=0.43),
        "none": {"arms": {}},
    }
    document = {"mixes": mixes}
    head, _, *rows = contenders_table(document).splitlines()
    assert head == f"|  | wins | less than mltcp | needs | {NOTHING} | {STAMPS} |"
    assert rows == [
        f"| `one` | rates | 4.4 % | {STAMPS} | mltcp 0.50 / 0.25 | rates 0.70 / 0.25 |",
        f"| `two` | mltcp | 0.0 % | {NOTHING} | mltcp 0.80 / 0.25 | rates 0.70 / 0.25 |",
    ]
    assert wins(document) == f"Situations won, of 2: by {NOTHING}: 1, by {STAMPS}: 1."


def test_without_different_needs_there_is_no_table() -> None:
    assert contenders_table({"mixes": {"one": mix(reno=0.5, mltcp=0.45)}}) == ""


def test_the_settled_gain_is_that_of_settled_iterations() -> None:
    arms = {
        arm: {"settled_mean_s": mean, "captured_gain": gain}
        for arm, mean, gain in (("reno", 0.5, None), ("mltcp", 0.42, {"value": 0.1}))
    }
    bound = {"bound": {"settled_mean_s": 0.4}}
    result = {"baseline": "reno", "arms": arms, "schedules": bound}
    assert settled_gain("mltcp", result) == pytest.approx(0.8)
    assert settled_gain("reno", result) is None
    assert settled_gain("mltcp", result | {"schedules": {}}) is None


def test_documents_of_earlier_versions_have_no_table() -> None:
    document = {"mixes": {"two": mix(reno=0.5, rates=0.45)}}
    assert contenders_table(document)
    for arm in document["mixes"]["two"]["arms"].values():
        del arm["needs"]
    assert contenders_table(document) == ""


def test_queues_are_compared_where_they_only_drop() -> None:
    def arm(mean_s: float, mean: float, p99: float, marks: float = 0.0) -> dict[str, Any]:
        queue = {"mean_bytes": mean, "p99_bytes": p99}
        return {"mean_s": mean_s, "needs": NEEDS[0], "queue": queue, "marks": marks}

    mixes = {
        "one": {"arms": {"reno": arm(1.0, 20e3, 30e3), "rates": arm(0.8, 4e3, 15e3)}},
        "other": {"arms": {"reno": arm(2.0, 10e3, 30e3), "rates": arm(2.0, 4e3, 9e3)}},
        "marked": {"arms": {"reno": arm(1.0, 1e3, 1e3, 5.0), "rates": arm(0.5, 9e3, 9e3)}},
        "unseen": {"arms": {"reno": arm(1.0, 1.0, 1.0) | {"queue": None}}},
    }
    table = queues_table({"mixes": mixes})
    row = next(line for line in table.splitlines() if line.startswith("| rates"))
    assert row == (
        "| rates | 2 | 0.30 (0.20 to 0.40) | 0.40 (0.30 to 0.50) | 0.90 (0.80 to 1.00) |"
    )
    assert "reno |" not in table
    assert queues_table({"mixes": {"unseen": mixes["unseen"]}}) == ""
