"""Documents: what is generated is fresh, and what they point to is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mltcp_tools.doctor import troubleshooting

CHECKOUT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    path
    for path in CHECKOUT.rglob("*.md")
    if not {".venv", ".cache", "runs"} & set(path.relative_to(CHECKOUT).parts[:1])
)
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")


def anchors(document: Path) -> set[str]:
    """Those that GitHub gives to the document's headings."""
    titles = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in titles}


def test_troubleshooting_is_what_the_doctor_says_now() -> None:
    path = CHECKOUT / "mltcp_tools" / "doctor" / "TROUBLESHOOTING.md"
    hint = (
        "run: python -m mltcp_tools.doctor.troubleshooting >mltcp_tools/doctor/TROUBLESHOOTING.md"
    )
    assert path.read_text() == troubleshooting.render(), hint


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_links_lead_somewhere(document: Path) -> None:
    for target, anchor in LINK.findall(document.read_text()):
        path = document.parent / target if target else document
        assert path.exists(), f"{document} links to {target}, which isn't there"
        assert not anchor or anchor in anchors(path), f"{document}: no heading {anchor} in {path}"


def test_readme_takes_four_minutes() -> None:
    text = (CHECKOUT / "README.md").read_text()
    assert len(text.splitlines()) <= 150
    assert len(re.findall(r"\w+", text)) <= 1500
