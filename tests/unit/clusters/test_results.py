"""Published tables say which version made them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mltcp_tools.base.errors import UsageError
from mltcp_tools.clusters.results import DOCUMENT, put, section
from mltcp_tools.clusters.version import version


def test_a_section_is_put_in_the_place_of_its_name() -> None:
    text = put("", "one", section("one", ["run", "/tmp/x/w.yaml"], "a  b\n"))
    text = put(
        text, "two", section("two", ["fapes", "--trace", "sia:/t/e.csv,sia:/t/f.csv"], "| a |\n")
    )
    text = put(text, "one", section("one", ["run", "w.yaml"], "c  d\n"))
    assert text.index("## one") < text.index("## two")
    assert "a  b" not in text
    assert "`mltcp cluster run w.yaml`" in text
    assert "`mltcp cluster fapes --trace sia:e.csv,sia:f.csv`" in text
    assert text.count(f"clusters {version('run')}, ") == 1


def test_names_of_sections_are_plain() -> None:
    with pytest.raises(UsageError, match="section's name"):
        section("Some thing", ["run"], "")


def test_every_section_that_the_script_makes_is_there() -> None:
    script = (Path(__file__).parents[3] / "scripts" / "results").read_text()
    made = re.findall(r"^\ttable ([a-z-]+) ", script, re.MULTILINE)
    assert len(made) > 3
    there = re.findall(r"^## (\S+)$", DOCUMENT.read_text(), re.MULTILINE)
    assert sorted(there) == sorted(made)
