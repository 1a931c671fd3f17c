# SPDX-License-Identifier: BSD-2-Clause
"""The published tables: made from matrices' folders, between the marks of a page."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.result_tables import between, fallen, summary, unexplained, with_agreement

from mltcp_tools.base.errors import UsageError


def test_readme_sums_up_the_published_tables() -> None:
    readme = (Path(__file__).parents[4] / "README.md").read_text()
    assert between(readme, "summary") == f"{summary()}\n", "run: python -m support.result_tables"


def test_kernel_and_simulator_are_compared_as_their_tables_say() -> None:
    page = Path(__file__).parents[4] / "mltcp_tools/lab/experiments/RESULTS.md"
    text = page.read_text()
    assert with_agreement(text) == text, "run: python -m support.result_tables"
    table = between(text, "contenders")
    other = text.replace(table, table.replace("| `lockstep` | ", "| `lockstep` | 1"))
    assert with_agreement(other) != other


ROW = "| `four-jobs` | 514 (507 to 521) / 723 | 469 (465 to 473) / 636 | 455 / 483 | {} [{}, {}] |"


def page(*cells: str) -> str:
    return f"<!-- results: headline -->\n{ROW.format(*cells)}\n<!-- end -->\n"


def test_gain_below_the_replaced_interval_has_fallen() -> None:
    old = page("0.90", "0.83", "0.95")
    assert fallen(old, page("0.84", "0.70", "0.90")) == []
    (said,) = fallen(old, worse := page("0.80", "0.70", "0.90"))
    assert said.startswith("headline/four-jobs: a captured gain of 0.80, which was 0.90 [0.83,")
    assert fallen("", page("0.10", "0.00", "0.20")) == []
    assert fallen(old, worse, "headline/four-jobs-and-more fell") == [said]
    assert fallen(old, worse, "Slower: headline/four-jobs\n") == []


def test_check_fails_until_the_commit_names_what_fell(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    def change(*cells: str) -> None:
        (tmp_path / "page").write_text(page(*cells))

    git("init")
    git("commit", "-m", "First", "--allow-empty")
    change("0.90", "0.83", "0.95")
    git("add", "page")
    git("commit", "-m", "Results")
    git("commit", "-m", "Other", "--allow-empty")
    assert unexplained(tmp_path, "page") == []
    change("0.80", "0.70", "0.90")
    assert len(unexplained(tmp_path, "page")) == 1
    git("commit", "-a", "-m", "Results again")
    git("commit", "-m", "Other", "--allow-empty")
    assert len(unexplained(tmp_path, "page")) == 1
    git("reset", "--soft", "HEAD~2")
    git("commit", "-m", "headline/four-jobs fell: a rule is gone")
    assert unexplained(tmp_path, "page") == []
    (tmp_path / ".git").rename(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="fetch the history"):
        unexplained(tmp_path, "page")
