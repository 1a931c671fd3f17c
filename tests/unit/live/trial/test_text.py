# SPDX-License-Identifier: BSD-2-Clause
"""Findings of a trial, for people and for programs."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest
from support.simulated_jobs import Simulated, SimulatedWorld

from mltcp_tools.base.errors import UsageError
from mltcp_tools.cli.main import main
from mltcp_tools.live.trial import conduct, html, text
from mltcp_tools.live.trial.conduct import Conducted
from mltcp_tools.live.trial.outcome import judge
from mltcp_tools.live.trial.trial import Plan, Trial


class Balanced(HTMLParser):
    """Fails where an element isn't closed, and keeps what a browser would load."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.words = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


@pytest.fixture(scope="module")
def found() -> Conducted:
    world = SimulatedWorld(2, {"a<b": Simulated(effect=-0.08), "c": Simulated(effect=0.05)})
    world.third_s = 1290.0
    course = Trial(Plan(8, 60.0, 0.2), world, 2, lambda _: None).run()
    return Conducted("cubic", "mltcp", course, judge(course))


def test_the_page_needs_nothing_and_says_all(found: Conducted) -> None:
    page = Balanced()
    page.feed(html.page(found))
    assert (page.open, page.loads) == ([], [])
    for part in (
        "a<b",
        text.in_short(found),
        "Discarded rounds",
        "Other traffic changed",
        "seed 2",
    ):
        assert part in page.words


def test_the_document_is_json_and_has_every_round(found: Conducted) -> None:
    document = json.loads(json.dumps(text.document(found)))
    assert document["schema"] == "mltcp-trial/1"
    assert [each["round"] for each in document["rounds"]] == list(range(1, 10))
    assert sum(bool(each["discarded"]) for each in document["rounds"]) == 1
    assert [each["job"] for each in document["jobs"]] == ["a<b", "c"]
    assert document["jobs"][0]["change"]["mean"] == pytest.approx(-0.08, abs=0.02)


def test_rows_pair_the_variants_of_each_job(found: Conducted) -> None:
    table = text.rows(found)
    assert [(str(row[0]), row[1]) for row in table] == [
        ("a<b", "cubic"),
        ("", "mltcp"),
        ("c", "cubic"),
        ("", "mltcp"),
    ]


def test_a_report_that_cannot_be_written_costs_no_trial(
    found: Conducted,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "reports"
    words = ["trial", "--job", "c", "-o", str(folder / "trial.html")]

    def conducted(*_: object) -> Conducted:
        folder.rmdir()  # after the first look at it
        return found

    monkeypatch.setattr(conduct, "conduct", conducted)
    assert main(words) == UsageError.exit_code
    out, err = capsys.readouterr()
    assert out == ""
    assert f"There is no folder {folder}; make it" in err
    folder.mkdir()
    assert main(words) == 1
    out, err = capsys.readouterr()
    assert "In short: " in out
    assert f"{folder}/trial.html: No such file" in err
    folder.mkdir()
    monkeypatch.setattr(conduct, "conduct", lambda *_: found)
    assert main(words) == 0
    assert (folder / "trial.html").read_text() == html.page(found)
