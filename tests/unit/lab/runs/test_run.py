# SPDX-License-Identifier: BSD-2-Clause
"""Loading run folders: whole, incomplete, unreadable, and not run folders at all."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from support.run_folders import experiment, make_run
from support.shown import fits

from mltcp_tools.base.errors import UsageError
from mltcp_tools.lab.analysis import load_run, render_text, summarise, write_report
from mltcp_tools.lab.analysis.html import render_html

Damage = Callable[[Path], object]


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "run", experiment(jobs=2, iterations=30))


@pytest.fixture
def folder(whole_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole_run, tmp_path / "run"))


def test_whole_run_has_no_problems(folder: Path) -> None:
    pd.read_csv(folder / "samples.csv").iloc[:0].to_csv(folder / "samples.csv", index=False)
    run = load_run(folder)
    assert run.problems == []  # nor one without a trace
    assert (run.variant_names, run.job_names) == (["cubic", "mltcp"], ["job-1", "job-2"])
    assert run.baseline == "cubic"
    assert len(run.iterations) == 2 * 2 * 2 * 30 + 20
    assert run.experiment.rate_bps == 200_000_000
    assert run.experiment.jobs["job-2"].compute == pytest.approx(0.34)


def test_other_folders_and_files_are_refused(folder: Path) -> None:
    (other := folder.parent / "other").mkdir()
    (other / "result.json").write_text("{}")
    for path in (other, folder.parent / "none", folder / "experiment.yaml"):
        with pytest.raises(UsageError, match="name a folder written by"):
            load_run(path)


def remove(name: str) -> Damage:
    return lambda folder: (folder / name).unlink()


def table(name: str, change: Callable[[pd.DataFrame], pd.DataFrame]) -> Damage:
    """A table replaced by what `change` makes of it."""

    def damage(folder: Path) -> None:
        path = folder / f"{name}.csv"
        change(pd.read_csv(path)).to_csv(path, index=False)

    return damage


def without(condition: str) -> Damage:
    """The table iterations without some of its rows."""
    return table("iterations", lambda t: t.query(f"not ({condition})"))


def cut(folder: Path) -> None:
    (folder / "iterations.csv").write_bytes((folder / "iterations.csv").read_bytes()[:4321])


LAST = "variant == 'mltcp' and repetition == 2"
INCOMPLETE: dict[str, tuple[Damage, str]] = {
    "cut line": (cut, "Variant cubic, repetition 1 stops at iteration 18 of 30 (job-1)."),
    "no alone": (without("variant == 'alone'"), "The variant alone is missing"),
    "alone only": (without("variant != 'alone'"), "The variant cubic has no iterations."),
    "no baseline": (without("variant == 'cubic'"), "mltcp stands in for the baseline"),
    "a repetition less": (without(LAST), "Variant mltcp lacks repetition 2."),
    "stopped": (
        without(f"{LAST} and iteration > 7"),
        "Variant mltcp, repetition 2 stops at iteration 7 of 30 (job-1).",
    ),
    "a job less": (
        without(f"{LAST} and job == 'job-2'"),
        "Variant mltcp, repetition 2 lacks job-2.",
    ),
}


@pytest.mark.parametrize("kind", INCOMPLETE)
def test_missing_parts_are_named_and_the_rest_reported(folder: Path, kind: str) -> None:
    damage, sentence = INCOMPLETE[kind]
    damage(folder)
    result = summarise(load_run(folder)).document()
    assert any(sentence in problem for problem in result["problems"]), result["problems"]
    assert sentence.split()[0] in fits(render_text(result))
    assert "</html>" in render_html(result, [])
    json.dumps(result, allow_nan=False)
    for entry in result["variants"].values():
        assert entry["iteration_s"]["mean"] > 0.3


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("experiment.yaml", "name: [unclosed", "experiment.yaml:1: not valid YAML"),
        ("experiment.yaml", b"\xff\xfe\x00", "experiment.yaml: can't be read"),
        ("experiment.yaml", "name: 2001-13-01", "experiment.yaml: can't be read (month must be"),
        ("environment.json", '{"schema": "mltcp', "environment.json can't be read"),
        ("environment.json", '{"schema": "mltcp-environment/9"}', "another version wrote it"),
        ("bursts.csv", "", "bursts.csv can't be read (No columns"),
        ("bursts.csv", "variant\ncubic,1,2\n\0", "bursts.csv has rows without values in some of"),
        ("iterations.csv", "variant,repetition\nmltcp,x\n", "iterations.csv can't be read (could"),
        ("iterations.csv", "variant,repetition\nmltcp,1\n", "rows without values in some of"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(
    folder: Path, name: str, content: str | bytes, complaint: str
) -> None:
    data = content if isinstance(content, bytes) else content.encode()
    (folder / name).write_bytes(data)
    with pytest.raises(UsageError, match=re.escape(complaint)):
        load_run(folder)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"link": {"rate": "fast"}}, "link.rate: 'fast' is not a rate"),
        ({"baseline": "bbr"}, "baseline: 'bbr' is not one of cubic, mltcp"),
        ({"variants": {"cubic": {"cc": "cubic"}}}, "doesn't have mltcp"),
        ({"jobs": [{"bytes": "1MB", "compute": "1s"}]}, "doesn't have job-1, job-2"),
    ],
)
def test_an_experiment_that_is_not_the_runs_is_refused(
    folder: Path, changes: dict[str, Any], complaint: str
) -> None:
    document = experiment(jobs=2, iterations=30) | changes
    (folder / "experiment.yaml").write_text(yaml.safe_dump(document))
    with pytest.raises(UsageError, match=re.escape(complaint)):
        load_run(folder)


@pytest.mark.parametrize(
    ("damage", "left_out"),
    [
        (remove("bursts.csv"), {"timeline"}),
        (INCOMPLETE["alone only"][0], {"iterations", "timeline", "cdf", "windows"}),
        (INCOMPLETE["stopped"][0], set()),
        (table("samples", lambda t: t.assign(job=t["job"].where(t.index > 9, "nobody"))), set()),
    ],
    ids=["no bursts", "alone only", "stopped", "unknown job"],
)
def test_damaged_run_gets_the_plots_it_allows(
    folder: Path, damage: Damage, left_out: set[str]
) -> None:
    damage(folder)
    result = write_report(folder)
    images = {path.stem for path in (folder / "plots").iterdir()}
    assert images == {"iterations", "timeline", "cdf", "windows"} - left_out
    assert len([each for each in result["problems"] if "No plot" in each]) == len(left_out)


def test_a_run_without_tables_is_still_reported(folder: Path) -> None:
    for path in folder.glob("*.csv"):
        path.unlink()
    result = write_report(folder)
    assert result["variants"] == {}
    assert "No iterations were recorded." in render_text(result)


def test_aborted_variant_is_compared_on_shared_iterations(folder: Path) -> None:
    table("iterations", lambda t: t.query("variant != 'mltcp' or iteration <= 12"))(folder)
    cut = summarise(load_run(folder)).document()
    # mltcp follows the bound, so it captures everything however long it ran.
    assert cut["variants"]["mltcp"]["captured_gain"]["value"] == pytest.approx(1.0)
    assert cut["variants"]["mltcp"]["ratio_to_bound"] == pytest.approx(1.0)
    early = pd.read_csv(folder / "iterations.csv").query("iteration <= 12 and variant != 'alone'")
    means = (early["end_s"] - early["start_s"]).groupby(early["variant"]).mean()
    assert cut["speedup"]["mltcp"]["cubic"]["mean"]["value"] == pytest.approx(
        means["cubic"] / means["mltcp"]
    )
