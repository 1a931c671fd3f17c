"""Published pages say which of their tables another version made than the present one."""

from __future__ import annotations

from pathlib import Path

import pytest

from mltcp_tools.cli.main import main
from mltcp_tools.cli.results import present_version
from mltcp_tools.errors import UsageError
from mltcp_tools.lab.analysis.published import STALE, marked, put_between, put_section, stale

CHECKOUT = Path(__file__).parents[4]
PACKAGE = CHECKOUT / "mltcp_tools"
PAGES = (
    CHECKOUT / "README.md",
    CHECKOUT / "tests" / "bench" / "RESULTS.md",
    CHECKOUT / "tests" / "unit" / "data" / "traces" / "README.md",
    *PACKAGE.rglob("RESULTS.md"),
)
PAGE = """\
# Results

### one

## one

<!-- one algorithm a -->

A table.

## two

<!-- two clusters/run b -->

A table.

## one: kernel and simulator

Far apart.

<!-- results: three, 4 ranks -->
| |
| --- |

Measured by `bench`, today; mltcp-tools 0.1.0, algorithm a, c. 2 CPUs.
<!-- end -->
"""


def version(**known: str) -> dict[str, str]:
    return {"algorithm": "a", "clusters/run": "b"} | {
        name.replace("_", "/"): version for name, version in known.items()
    }


def test_every_part_has_a_version_of_its_own() -> None:
    assert stale(PAGE, version().__getitem__) == ["three, 4 ranks"]
    assert stale(PAGE, version(clusters_run="c").__getitem__) == ["two", "three, 4 ranks"]
    assert stale(PAGE, version(algorithm="a, c").__getitem__) == ["one"]


def test_the_page_says_it_once_where_it_is_so() -> None:
    old = version(algorithm="c").__getitem__
    said = marked(PAGE, old)
    assert f"## one\n\n{STALE}\n\n<!-- one" in said
    assert f"## one: kernel and simulator\n\n{STALE}\n\nFar" in said
    assert f"<!-- results: three, 4 ranks -->\n{STALE}\n\n| |" in said
    assert said.count(STALE) == 3
    assert marked(said, old) == said
    assert marked(said, version(algorithm="a, c").__getitem__).count(STALE) == 2
    assert stale(said, old) == stale(PAGE, old)


def test_a_section_takes_the_place_of_the_one_of_its_name() -> None:
    text = put_section(PAGE, "two", "## two\n\nAnother.\n")
    assert text == PAGE.replace("<!-- two clusters/run b -->\n\nA table.", "Another.")
    assert put_section(PAGE, "four", "## four\n\nNew.\n") == f"{PAGE}\n## four\n\nNew.\n"


def test_what_is_between_the_marks_is_replaced() -> None:
    assert "-->\nnew\n<!-- end -->" in put_between(PAGE, "three, 4 ranks", "new")
    with pytest.raises(UsageError, match="no place for a table"):
        put_between(PAGE, "three", "new")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_no_published_page_hides_that_a_table_is_stale(page: Path) -> None:
    text = page.read_text()
    assert text == marked(text, present_version), "run: scripts/results --mark"


def test_the_command_marks_and_names_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    assert main(["results", "--mark", str(page)]) == 0
    assert page.read_text() == marked(PAGE, present_version)
    assert page.read_text().count(STALE) == 4
    assert main(["results", "--check", str(page)]) == 1
    assert f"{page}: two was made by another version." in capsys.readouterr().out
