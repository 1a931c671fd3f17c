# SPDX-License-Identifier: BSD-2-Clause
"""Lint counts the lines of each part of the project against its budget."""

from __future__ import annotations

import subprocess
from pathlib import Path

import budget
import pytest

FILES = {
    "kmod/main.c": 3,
    "kmod/README.md": 50,
    "mltcp_tools/base/errors.py": 2,
    "mltcp_tools/cli/main.py": 4,
    "mltcp_tools/hooks.py": 1,
    "mltcp_tools/lab/experiments/one.yaml": 50,
    "tests/unit/test_one.py": 7,
    "tests/unit/seen.json": 50,
    "README.md": 50,
}
HELD = {"kmod": 3, "front": 5, "base": 2, "product": 10, "tests": 7}


def checkout(root: Path, budgets: dict[str, int]) -> Path:
    for name, lines in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x\n" * lines)
    lines = "".join(f"{part} = {most}\n" for part, most in budgets.items())
    (root / "pyproject.toml").write_text(f"[tool.mltcp.budget]\n{lines}")
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    subprocess.run(["git", "add", "."], cwd=root, check=True)
    (root / "kmod/untracked.c").write_text("x\n" * 50)
    return root


def test_lines_within_each_budget_pass(tmp_path: Path) -> None:
    root = checkout(tmp_path, HELD)
    assert dict(budget.count(root)) == {
        part: lines for part, lines in HELD.items() if part != "product"
    }
    assert budget.main(root) == 0


@pytest.mark.parametrize("part", HELD)
def test_one_line_above_a_budget_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], part: str
) -> None:
    root = checkout(tmp_path, HELD | {part: HELD[part] - 1})
    assert budget.main(root) == 1
    (said,) = (line for line in capsys.readouterr().out.splitlines() if "too many" in line)
    assert said.startswith(part)


def test_a_part_without_a_budget_fails(tmp_path: Path) -> None:
    without = {part: most for part, most in HELD.items() if part != "base"}
    assert budget.main(checkout(tmp_path, without)) == 1
