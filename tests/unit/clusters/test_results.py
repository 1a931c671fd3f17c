# SPDX-License-Identifier: BSD-2-Clause
"""Published tables of clusters: each section is there, with the command that made it."""

from __future__ import annotations

import re
from pathlib import Path

from support.cluster_results import DOCUMENT, put, section


def test_section_takes_the_place_of_its_name() -> None:
    text = put("# Head\n", "one", section("one", ["run", "/tmp/x/w.yaml"], "a  b\n"))
    command = ["fapes", "a/c.yaml", "--workload", "sia:/t/e.csv,sia:/t/f.csv"]
    text = put(text, "two", section("two", command, "x"))
    text = put(text, "one", section("one", ["run", "w.yaml"], "c  d\n"))
    assert text.index("## one") < text.index("## two")
    assert "a  b" not in text
    assert "`mltcp cluster run w.yaml`" in text
    assert "`mltcp cluster fapes c.yaml --workload sia:e.csv,sia:f.csv`" in text


def test_every_section_that_the_script_makes_is_there() -> None:
    script = (Path(__file__).parents[3] / "scripts" / "results").read_text()
    made = re.findall(r"^\ttable ([a-z-]+) ", script, re.MULTILINE)
    assert len(made) > 3
    there = re.findall(r"^## (\S+)$", DOCUMENT.read_text(), re.MULTILINE)
    assert sorted(there) == sorted(made)
