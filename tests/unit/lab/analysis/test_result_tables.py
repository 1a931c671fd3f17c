# SPDX-License-Identifier: BSD-2-Clause
"""The published tables: made from matrices' folders, between the marks of a page."""

from __future__ import annotations

from pathlib import Path

from support.result_tables import (
    between,
    fallen,
    summary,
)


def test_readme_sums_up_the_published_tables() -> None:
    readme = (Path(__file__).parents[4] / "README.md").read_text()
    assert between(readme, "summary") == f"{summary()}\n", "run: python -m support.result_tables"


def test_gain_below_the_replaced_interval_has_fallen() -> None:
    row = (
        "| `four-jobs` | 514 (507 to 521) / 723 | 469 (465 to 473) / 636 | 455 / 483 | {} [{},"
        " {}] |"
    )
    old = row.format("0.90", "0.83", "0.95")
    assert fallen(old, row.format("0.84", "0.70", "0.90")) == []
    (said,) = fallen(old, row.format("0.80", "0.70", "0.90"))
    assert said.startswith("`four-jobs`: a captured gain of 0.80, which was 0.90 [0.83, 0.95]")
    assert fallen("", row.format("0.10", "0.00", "0.20")) == []
