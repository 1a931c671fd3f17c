"""The table of jobs that share links: what counts, and what gains would be if they multiplied."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from mltcp_tools.lab.analysis import summarise
from mltcp_tools.lab.collectives.together import (
    Together,
    burst_of,
    describe,
    name_of,
    render,
    table,
)
from mltcp_tools.lab.runs.described import view_experiment
from mltcp_tools.lab.runs.folder import write_tables
from mltcp_tools.lab.runs.run import load_run
from mltcp_tools.live.observe.environment import Environment

SETTING = Together(
    jobs=2,
    rates=(100_000_000,) * 3,
    queue=100_000,
    bytes=1_000_000,
    density=0.25,
    compute_s=0.1,
    jitter=0.05,
    iterations=6,
    repetitions=1,
    seed=1,
    collectives=("gloo", "aggregated"),
    congestion_controls=("cubic", "mltcp"),
)
ITERATION_S = {
    ("gloo", "cubic"): 0.4,
    ("gloo", "mltcp"): 0.32,
    ("aggregated", "cubic"): 0.2,
    ("aggregated", "mltcp"): 0.2,
}


def iterations() -> list[dict[str, Any]]:
    """Each arm's, all alike, but the first three, and those of job2 when job1 is done."""
    rows = []
    for (collective, cc), seconds in ITERATION_S.items():
        for job, count in (("job1", 6), ("job2", 8)):
            for number in range(1, count + 1):
                odd = number <= 3 or number > 6
                rows.append(
                    {"arm": f"{collective}-{cc}", "repetition": 1, "job": job, "iteration": number}
                    | {"start_s": (number - 1) * seconds, "comm_s": 9.0 if odd else seconds - 0.1}
                    | {"end_s": number * seconds}
                )
    return rows


def test_gains_over_the_baseline_beside_what_they_would_be_multiplied() -> None:
    rows = {
        (row["collective"], row["congestion_control"]): row for row in table(SETTING, iterations())
    }
    for arm, seconds in ITERATION_S.items():
        assert rows[arm]["iteration_s"] == pytest.approx(seconds)
        assert rows[arm]["communication_s"] == pytest.approx(seconds - 0.1)
        assert rows[arm]["gain"] == pytest.approx(0.4 / seconds)
    assert rows["aggregated", "mltcp"]["expected"] == pytest.approx(2 * 1.25)
    assert "| aggregated | mltcp | 200 ms | 100 ms | 2.00 | 2.50 |" in render(list(rows.values()))


def test_a_gain_has_its_least_and_most_of_several_repetitions() -> None:
    second = [
        row | {"repetition": 2, "start_s": row["start_s"] * 2, "end_s": row["end_s"] * 2}
        if row["arm"] == "gloo-cubic"
        else row | {"repetition": 2}
        for row in iterations()
    ]
    rows = table(SETTING, [*iterations(), *second])
    assert rows[2]["gain"] == pytest.approx(3)
    assert rows[2]["gains"] == pytest.approx([2, 4])
    assert "| 3.00 (2.00 to 4.00) |" in render(rows)
    # Both: 2.00 where they would be 2.00 * 1.25, then 4.00 where they would be 4.00 * 2.50.
    assert rows[3]["of_expected"] == pytest.approx([0.8, 0.4])
    assert render(rows).rstrip().endswith("| 0.40 to 0.80 |")


def test_a_report_compares_no_arm_with_what_the_links_carry_of_dense_bytes(tmp_path: Path) -> None:
    """An iteration of 120 ms has 20 ms for reductions; the tensor alone would take a link 80 ms."""
    rows = [
        row
        | {"bytes": SETTING.bytes, "compute_s": 0.1, "comm_s": 0.02}
        | {"start_s": row["end_s"] - 0.12}
        for row in iterations()
    ]
    write_tables(tmp_path, {"iterations": rows, "bursts": [burst_of(row) for row in rows]})
    (tmp_path / "experiment.yaml").write_text(yaml.safe_dump(describe(SETTING), sort_keys=False))
    Environment(tmp_path).finish("finished")
    result = summarise(load_run(tmp_path))
    assert list(result.arms) == [name_of(*arm) for arm in SETTING.arms()]
    assert not result.failures
    assert not result.problems
    assert not result.schedules
    # Both arms with MLTCP are in what is said in short.
    assert result.headline[0] == (
        "Under gloo-mltcp the two jobs finished an iteration in 120 ms on average, 1.00 times as"
        " fast as under gloo-cubic (120 ms); under aggregated-mltcp in 120 ms."
    )


def test_the_run_folder_describes_its_arms_and_jobs() -> None:
    problems: list[str] = []
    view = view_experiment(describe(SETTING), problems)
    assert not problems
    assert list(view.arms) == ["gloo-cubic", "gloo-mltcp", "aggregated-cubic", "aggregated-mltcp"]
    assert list(view.jobs) == ["job1", "job2"]
    assert view.baseline == "gloo-cubic"
