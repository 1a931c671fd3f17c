# SPDX-License-Identifier: BSD-2-Clause
"""Published tables of clusters: each section is there, with the command that made it."""

from __future__ import annotations

import re
from pathlib import Path

from support.cluster_results import DOCUMENT


def test_every_section_that_the_script_makes_is_there() -> None:
    script = (Path(__file__).parents[3] / "scripts" / "results").read_text()
    made = re.findall(r"^\ttable ([a-z-]+) ", script, re.MULTILINE)
    assert len(made) > 3
    there = re.findall(r"^## (\S+)$", DOCUMENT.read_text(), re.MULTILINE)
    assert sorted(there) == sorted(made)
