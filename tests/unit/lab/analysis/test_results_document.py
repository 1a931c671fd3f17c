"""The document of results: generated from matrices' folders, and it says when it is stale."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml
from support.run_folders import experiment, make_run

from mltcp_tools.cli.main import main
from mltcp_tools.errors import UsageError
from mltcp_tools.lab.analysis.published import sections, stale
from mltcp_tools.lab.analysis.results_document import (
    load_matrix_run,
    put_table,
    render_results,
    unexpected,
)
from mltcp_tools.lab.analysis.write import save_matrix


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    arms = {"cubic": "cubic", "mltcp": "mltcp"}
    for mix in ("first", "second"):
        folder = make_run(tmp_path / "matrix" / mix, experiment(arms=arms))
        (folder / "environment.json").write_text(
            json.dumps(
                {
                    "outcome": "finished",
                    "start": "2026-11-22T10:00:00+00:00",
                    "command": "/somewhere/mltcp testbed matrix small",
                    "cpus": 2,
                    "cpu_model": "a processor",
                    "kernel": {"release": "6.18"},
                    "versions": {"mltcp-tools": "1.2", "algorithm": "0123abcd"},
                    "warnings": [],
                }
            )
        )
    save_matrix(tmp_path / "matrix", "small", {"first": "one", "second": "two"}, {})
    return tmp_path / "matrix"


def test_a_section_says_what_made_it(matrix: Path) -> None:
    text = render_results([load_matrix_run(matrix)])
    assert "## small\n" in text
    assert "`mltcp testbed matrix small`, 2026-11-22; mltcp-tools 1.2, algorithm 0123abcd." in text
    assert "2 CPUs (a processor), kernel 6.18." in text
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert [row.split("|")[1].strip() for row in rows] == ["`first`", "`second`"]
    assert all(row.rstrip(" |").endswith("1.00 [1.00, 1.00]") for row in rows)


def test_a_section_of_runs_by_several_commands_says_each(matrix: Path) -> None:
    file = matrix / "second" / "environment.json"
    file.write_text(file.read_text().replace("matrix small", "matrix small --only second"))
    text = render_results([load_matrix_run(matrix)])
    assert "`mltcp testbed matrix small` and `mltcp testbed matrix small --only second`, " in text


def test_figures_are_those_of_the_matrix(matrix: Path) -> None:
    run = load_matrix_run(matrix)
    own = run.document["mixes"]["first"]["arms"]["mltcp"]
    (row,) = [line for line in render_results([run]).splitlines() if line.startswith("| `first`")]
    assert f"{own['mean_s'] * 1e3:.0f} (" in row.split("|")[3]
    assert row.split("|")[3].rstrip().endswith(f"/ {own['p99_s'] * 1e3:.0f}")


def test_what_is_not_made_anew_stays(matrix: Path) -> None:
    run = load_matrix_run(matrix)
    former = render_results([run]).replace("small", "other")
    former += "\n## other: kernel and simulator\n\nFar apart.\n"
    text = render_results([run], former)
    assert list(sections(text)) == ["", "other", "other: kernel and simulator", "small"]
    assert render_results([run], text) == text
    assert stale(text, lambda part: {"algorithm": "0123abcd"}[part]) == []


def test_check_names_what_is_stale(
    matrix: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "RESULTS.md"
    assert main(["results", str(matrix), "-o", str(file)]) == 0
    assert main(["results", "--check", str(file)]) == 1
    assert "small was made by another version" in capsys.readouterr().out
    assert main(["results", "--check", str(file), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)[0]["stale"] == ["small"]
    assert main(["results", str(matrix), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["name"] == "small"


def test_the_table_goes_between_the_marks(matrix: Path) -> None:
    run = load_matrix_run(matrix)
    text = put_table("a\n<!-- results: small -->\nold\n<!-- end -->\nb\n", run)
    assert text.startswith("a\n<!-- results: small -->\n| ")
    assert text.endswith("kernel 6.18.\n<!-- end -->\nb\n")
    assert "old" not in text
    with pytest.raises(UsageError, match="no place for a table"):
        put_table("nothing", run)


def test_a_table_between_marks_is_checked_too(matrix: Path) -> None:
    text = put_table("<!-- results: small -->\n<!-- end -->\n", load_matrix_run(matrix))
    assert stale(text, lambda part: "0123abcd") == []
    assert stale(text, lambda part: "fedcba98") == ["small"]


def test_what_is_not_as_expected_is_said_in_the_table_and_by_check(
    matrix: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for mix, gain in (("first", "50%"), ("second", ["0%", "90%"])):
        document = experiment() | {"expect": {"gain": {"mltcp": gain}, "order": ["mltcp", "cubic"]}}
        (matrix / mix / "experiment.yaml").write_text(yaml.safe_dump(document))
    save_matrix(matrix, "small", {"first": "one", "second": "two"}, {})
    text = render_results([load_matrix_run(matrix)])
    sentence = "The gain of mltcp is 100%, and at most 90% is expected."
    assert [line for line in text.splitlines() if line.startswith("- Not as")] == [
        f"- Not as expected in `second`: {sentence}"
    ]
    assert unexpected(text) == [f"second: {sentence}"]
    assert main(["results", "--check", str(matrix)]) == 1
    assert f"second: {sentence}" in capsys.readouterr().out
    assert main(["report", str(matrix / "second")]) == 0
    assert "Not as expected" in capsys.readouterr().out


def test_a_table_says_that_all_came_out(matrix: Path) -> None:
    document = experiment() | {"expect": {"order": ["mltcp", "cubic"]}}
    (matrix / "first" / "experiment.yaml").write_text(yaml.safe_dump(document))
    save_matrix(matrix, "small", {"first": "one", "second": "two"}, {})
    text = render_results([load_matrix_run(matrix)])
    assert "What is expected came out, in all mixes that say it: 1." in text
    assert unexpected(text) == []


def test_what_is_no_matrix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not the folder of a finished matrix"):
        load_matrix_run(tmp_path)


def simulated(folder: Path, factor: float) -> Path:
    """A copy of a matrix's folder as if simulated; one mean differs by a factor."""
    other = folder.with_name("simulated")
    shutil.copytree(folder, other)
    for path in other.glob("*/environment.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), "simulated": True}))
    document = json.loads((other / "matrix.json").read_text())
    document["mixes"]["second"]["arms"]["mltcp"]["mean_s"] *= factor
    (other / "matrix.json").write_text(json.dumps(document))
    return other


@pytest.mark.parametrize(("factor", "agreeing"), [(1.04, 2), (0.94, 1)])
def test_a_matrix_run_both_ways_says_how_far_the_simulator_is_off(
    matrix: Path, factor: float, agreeing: int
) -> None:
    runs = [load_matrix_run(each) for each in (matrix, simulated(matrix, factor))]
    text = render_results(runs)
    assert f"Every arm agrees within 5% in {agreeing} of 2 mixes." in text
    (row,) = [line for line in text.splitlines() if line.startswith("| `second`") and "%" in line]
    assert f"({factor - 1:+.1%})" in row
    assert "(+0.0%)" in row
    assert "kernel and simulator" not in render_results(runs[:1])
