# SPDX-License-Identifier: BSD-2-Clause
"""Loading run folders: whole, damaged, truncated, and not run folders at all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import yaml
from support.run_folders import experiment, make_run
from support.shown import fits

from mltcp_tools.base.errors import UsageError
from mltcp_tools.lab.analysis import load_run, render_text, summarise, write_report
from mltcp_tools.lab.analysis.html import render_html


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "run", experiment(jobs=2, iterations=30))


@pytest.fixture
def folder(whole_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole_run, tmp_path / "run"))


def test_a_whole_run_has_no_problems(folder: Path) -> None:
    run = load_run(folder)
    assert run.problems == []
    assert run.variant_names == ["cubic", "mltcp"]
    assert run.job_names == ["job-1", "job-2"]
    assert run.baseline == "cubic"
    assert len(run.iterations) == 2 * 2 * 2 * 30 + 20
    assert run.experiment.rate_bps == 200_000_000
    assert run.experiment.jobs["job-2"].bytes == 2_500_000
    assert run.experiment.jobs["job-2"].compute == pytest.approx(0.34)


def test_an_unreadable_experiment_leaves_the_tables(folder: Path) -> None:
    document = experiment(jobs=2, iterations=30)
    document["jobs"][0]["colour"] = "red"
    (folder / "experiment.yaml").write_text(yaml.safe_dump(document))
    run = load_run(folder)
    assert (run.experiment.jobs, run.experiment.rate_bps) == ({}, None)
    assert any("jobs[1].colour: no such field" in each for each in run.problems)
    assert run.job_names == ["job-1", "job-2"]


@pytest.mark.parametrize("content", [None, {"notes.txt": "hello"}, {"result.json": "{}"}])
def test_what_is_no_run_folder(tmp_path: Path, content: dict[str, str] | None) -> None:
    path = tmp_path / "other"
    if content is not None:
        path.mkdir()
        for name, text in content.items():
            (path / name).write_text(text)
    with pytest.raises(UsageError, match="mltcp testbed run"):
        load_run(path)


def test_a_file_is_no_run_folder(folder: Path) -> None:
    with pytest.raises(UsageError, match="is not a folder"):
        load_run(folder / "experiment.yaml")


def _remove(*names: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return damage


def _write(name: str, content: str | bytes) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    return damage


def _cut(name: str, size: int) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[:size])

    return damage


def _strange_lines(folder: Path) -> None:
    lines = (folder / "bursts.csv").read_text().splitlines()
    lines[5] += ",1,2,3"
    lines[9] = lines[9].replace(".", "x")
    lines.append(lines[20])
    (folder / "bursts.csv").write_text("\n".join(lines) + "\n")


def _without_a_column(folder: Path) -> None:
    table = pd.read_csv(folder / "bursts.csv")
    table.drop(columns="end_s").to_csv(folder / "bursts.csv", index=False)


def _empty(name: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = folder / f"{name}.csv"
        pd.read_csv(path).iloc[:0].to_csv(path, index=False)

    return damage


def _with(name: str, column: str, value: float | str) -> Callable[[Path], None]:
    """One value of a table replaced."""

    def damage(folder: Path) -> None:
        path = folder / f"{name}.csv"
        kind = "str" if isinstance(value, str) else "float64"
        table = pd.read_csv(path).astype({column: kind}).reset_index(drop=True)
        table.loc[60, column] = value
        table.to_csv(path, index=False)

    return damage


def _only(keep: Callable[[pd.DataFrame], pd.Series]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        table = pd.read_csv(folder / "iterations.csv")
        table[keep(table)].to_csv(folder / "iterations.csv", index=False)

    return damage


def _an_experiment(**changes: object) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        document = experiment(jobs=2, iterations=30, **changes)
        (folder / "experiment.yaml").write_text(yaml.safe_dump(document))

    return damage


DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "no bursts": (_remove("bursts.csv"), "The table bursts is missing."),
    "no iterations": (_remove("iterations.csv"), "iterations is missing"),
    "no variants": (_remove("variants.csv"), "The table variants is missing."),
    "no samples": (_remove("samples.csv"), "The table samples is missing."),
    "no events": (_remove("flow_events.csv"), "flow_events is missing"),
    "no experiment": (_remove("experiment.yaml"), "experiment.yaml is missing"),
    "no environment": (_remove("environment.json"), "environment.json is missing"),
    "half a table": (_cut("iterations.csv", 4321), "ends in the middle of a line"),
    "empty table": (_cut("bursts.csv", 0), "bursts.csv can't be read (the file is empty)."),
    "no table": (_write("variants.csv", "garbage\n"), "variants.csv lacks the columns"),
    "strange lines": (_strange_lines, "1 line with too many fields"),
    "unusable line": (_strange_lines, "1 line without usable values"),
    "line twice": (_strange_lines, "1 line twice"),
    "missing column": (_without_a_column, "bursts.csv lacks the columns end_s."),
    "no rows": (_empty("bursts"), "The table bursts holds no rows."),
    "cut yaml": (_write("experiment.yaml", "name: [unclosed"), "not readable YAML"),
    "strange yaml": (_write("experiment.yaml", "- 1\n"), "describes no experiment"),
    "yaml of no month": (_write("experiment.yaml", "seed: 2001-13-01"), "not readable YAML"),
    "endless yaml": (_write("experiment.yaml", 2000 * "["), "not readable YAML"),
    "a number cut in two": (
        _with("iterations", "iteration", 2.5),
        "iterations.csv has 1 line without usable values.",
    ),
    "a number far out": (
        _with("iterations", "iteration", 1e11),
        "iterations.csv has 1 line without usable values.",
    ),
    "a time far out": (
        _with("iterations", "end_s", 1e300),
        "iterations.csv has 1 line without usable values.",
    ),
    "a time before": (
        _with("iterations", "compute_s", -1.0),
        "iterations.csv has 1 line without usable values.",
    ),
    "a burst far out": (
        _with("bursts", "end_s", 1e300),
        "bursts.csv has 1 line without usable values.",
    ),
    "binary yaml": (_write("experiment.yaml", b"\xff\xfe\x00"), "experiment.yaml"),
    "cut json": (_write("environment.json", '{"schema": "mltcp'), "not readable JSON"),
    "strange json": (_write("environment.json", "[]"), "describes no environment"),
    "later schema": (
        _write("environment.json", json.dumps({"schema": "mltcp-environment/9"})),
        "has the schema 'mltcp-environment/9'",
    ),
    "strange rate": (_an_experiment(link={"rate": "fast"}), "link.rate: 'fast' is not a rate"),
    "other baseline": (_an_experiment(baseline="bbr"), "cubic stands in for the baseline"),
    "no alone": (_only(lambda t: t["variant"] != "alone"), "The variant alone is missing"),
    "alone only": (
        _only(lambda t: t["variant"] == "alone"),
        "The variant cubic has no iterations.",
    ),
    "a variant less": (
        _only(lambda t: t["variant"] != "mltcp"),
        "The variant mltcp has no iterations.",
    ),
    "no baseline": (_only(lambda t: t["variant"] != "cubic"), "mltcp stands in for the baseline"),
    "a repetition less": (
        _only(lambda t: (t["variant"] != "mltcp") | (t["repetition"] != 2)),
        "Variant mltcp lacks repetition 2.",
    ),
    "stopped": (
        _only(lambda t: (t["variant"] != "mltcp") | (t["repetition"] != 2) | (t["iteration"] < 8)),
        "Variant mltcp, repetition 2 stops at iteration 7 of 30 (job-1).",
    ),
    "a job less": (
        _only(lambda t: (t["variant"] != "mltcp") | (t["repetition"] != 2) | (t["job"] != "job-2")),
        "Variant mltcp, repetition 2 lacks job-2.",
    ),
    "holes": (
        _only(lambda t: (t["variant"] != "cubic") | (t["iteration"] != 5)),
        "Variant cubic, repetition 1 lacks 2 iterations in between.",
    ),
}


def test_a_run_without_a_trace_has_no_problems(folder: Path) -> None:
    _empty("samples")(folder)
    assert load_run(folder).problems == []


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_said_and_the_rest_reported(folder: Path, kind: str) -> None:
    damage, sentence = DAMAGE[kind]
    damage(folder)
    result = summarise(load_run(folder)).document()
    assert any(sentence in problem for problem in result["problems"]), result["problems"]
    text = render_text(result)
    assert sentence.split()[0] in text
    fits(text)
    assert "</html>" in render_html(result, [])
    json.dumps(result, allow_nan=False)
    if kind not in ("no iterations", "alone only"):
        for entry in result["variants"].values():
            assert entry["iteration_s"]["mean"] > 0.3


@pytest.mark.parametrize(
    "kind", ["no bursts", "no samples", "alone only", "stopped", "a strange job"]
)
def test_a_damaged_run_gets_the_plots_it_allows(folder: Path, kind: str) -> None:
    damage = _with("samples", "job", "nobody") if kind == "a strange job" else DAMAGE[kind][0]
    damage(folder)
    result = write_report(folder)
    images = {path.stem for path in (folder / "plots").iterdir()}
    left_out = {
        "no bursts": {"timeline"},
        "no samples": {"windows"},
        "alone only": {"iterations", "timeline", "cdf", "windows"},
    }.get(kind, set())
    assert images == {"iterations", "timeline", "cdf", "windows"} - left_out
    assert len([each for each in result["problems"] if "No plot" in each]) == len(left_out)
    written = json.loads((folder / "result.json").read_text())
    assert written == result


def test_an_experiment_alone_is_still_reported(folder: Path) -> None:
    for path in folder.iterdir():
        if path.name != "experiment.yaml":
            path.unlink()
    result = write_report(folder)
    assert result["variants"] == {}
    assert "No iterations were recorded." in render_text(result)
    assert not list((folder / "plots").iterdir())


def test_an_aborted_variant_is_compared_on_what_both_have(folder: Path) -> None:
    whole = summarise(load_run(folder)).document()
    path = folder / "iterations.csv"
    table = pd.read_csv(path)
    table[(table["variant"] != "mltcp") | (table["iteration"] <= 12)].to_csv(path, index=False)
    cut = summarise(load_run(folder)).document()
    # mltcp follows the bound, so it captures everything however long it ran.
    for result in (whole, cut):
        assert result["variants"]["mltcp"]["captured_gain"]["value"] == pytest.approx(1.0)
        assert result["variants"]["mltcp"]["ratio_to_bound"] == pytest.approx(1.0)
    early = table[(table["iteration"] <= 12) & (table["variant"] != "alone")]
    means = (early["end_s"] - early["start_s"]).groupby(early["variant"]).mean()
    assert cut["speedup"]["mltcp"]["cubic"]["mean"]["value"] == pytest.approx(
        means["cubic"] / means["mltcp"]
    )
