# SPDX-License-Identifier: BSD-2-Clause
"""The published tables: made from matrices' folders, between the marks of a page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from support.result_tables import (
    between,
    fallen,
    load_matrix_run,
    main,
    put_table,
    summary,
)
from support.run_folders import experiment, make_run

from mltcp_tools.lab.analysis.write import save_matrix

ENVIRONMENT = {
    "outcome": "finished",
    "start": "2026-11-22T10:00:00+00:00",
    "command": "/somewhere/mltcp testbed run small",
    "kernel": {"release": "6.18"},
    "versions": {"mltcp-tools": "1.2", "algorithm": "0123abcd"},
    "cpus": 2,
    "cpu_model": "a CPU",
}


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    variants = {"cubic": "cubic", "mltcp": "mltcp"}
    for scenario in ("first", "second"):
        folder = make_run(tmp_path / "matrix" / scenario, experiment(variants=variants))
        (folder / "environment.json").write_text(json.dumps(ENVIRONMENT))
    save_matrix(tmp_path / "matrix", "small", {"first": "one", "second": "two"}, {})
    return tmp_path / "matrix"


def test_tables_go_between_their_marks_and_say_what_made_them(matrix: Path, tmp_path: Path) -> None:
    file = matrix / "second" / "environment.json"
    file.write_text(file.read_text().replace("run small", "run small --only second"))
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- results: small -->\nold\n<!-- end -->\nb\n")
    main(page, [matrix])
    text = page.read_text()
    assert text.startswith("a\n<!-- results: small -->\n| ")
    assert text.endswith("kernel 6.18.\n<!-- end -->\nb\n")
    assert "old" not in text
    assert "`mltcp testbed run small` and `mltcp testbed run small --only second`, " in text
    assert "2026-11-22; mltcp-tools 1.2, algorithm 0123abcd. 2 CPUs (a CPU)," in text
    own = load_matrix_run(matrix).document["scenarios"]["first"]["variants"]["mltcp"]
    (row,) = [line for line in text.splitlines() if line.startswith("| `first`")]
    assert f"{own['mean_s'] * 1e3:.0f} (" in row.split("|")[3]
    assert row.rstrip(" |").endswith("1.00 [1.00, 1.00]")


def test_what_is_not_as_expected_is_said_below_the_table(matrix: Path) -> None:
    document = experiment() | {"expect": {"gain": {"mltcp": "110%"}}}
    (matrix / "second" / "experiment.yaml").write_text(yaml.safe_dump(document))
    save_matrix(matrix, "small", {"first": "one", "second": "two"}, {})
    text = put_table("<!-- results: small -->\n<!-- end -->\n", load_matrix_run(matrix))
    sentence = "The gain of mltcp is 100%, and 110% is expected."
    assert f"- Not as expected in `second`: {sentence}\n" in text


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
