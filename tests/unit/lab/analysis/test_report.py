# SPDX-License-Identifier: BSD-2-Clause
"""From a run folder to what people read: result, text, HTML, comparison and the command."""

from __future__ import annotations

import html
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from support.run_folders import BYTES, LONE_COMM_S, experiment, make_recording, make_run
from support.shown import fits

from mltcp_tools.cli.main import main
from mltcp_tools.lab.analysis import (
    compare_runs,
    load_run,
    make_report,
    render_comparison,
    render_text,
    summarise,
    write_report,
)
from mltcp_tools.lab.analysis.html import render_html
from mltcp_tools.lab.analysis.text import tables
from mltcp_tools.lab.runs.run import Run

GOLDEN = Path(__file__).parents[2] / "data" / "golden-run"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    variants = {"cubic": "cubic", "reno": "reno", "mltcp": "mltcp"}
    return make_run(tmp_path_factory.mktemp("runs") / "first", experiment(variants=variants))


@pytest.fixture(scope="module")
def result(folder: Path) -> dict[str, Any]:
    return summarise(load_run(folder)).document()


def test_variants_that_follow_the_schedules_score_like_them(result: dict[str, Any]) -> None:
    variants, schedules = result["variants"], result["schedules"]
    assert list(variants) == ["cubic", "reno", "mltcp"]
    assert variants["mltcp"]["iteration_s"] == pytest.approx(schedules["bound"]["iteration_s"])
    assert variants["cubic"]["iteration_s"] == pytest.approx(schedules["fair"]["iteration_s"])
    assert variants["mltcp"]["captured_gain"] == pytest.approx({"value": 1, "low": 1, "high": 1})
    assert variants["reno"]["captured_gain"] == pytest.approx({"value": 0, "low": 0, "high": 0})
    assert variants["cubic"]["captured_gain"] is None
    assert variants["mltcp"]["ratio_to_bound"] == pytest.approx(1)
    assert variants["mltcp"]["overlap"] == pytest.approx(schedules["bound"]["overlap"])
    assert variants["mltcp"]["interleaved_from"]["per_repetition"] == [1, 1]
    assert variants["cubic"]["interleaved_from"]["typical"] is None
    assert [each["alone_s"] for each in result["isolated"].values()] == pytest.approx(
        4 * [LONE_COMM_S]
    )
    assert result["problems"] == result["warnings"] == []


def test_values_follow_from_the_tables(folder: Path, result: dict[str, Any]) -> None:
    table = pd.read_csv(folder / "iterations.csv")
    times = (table["end_s"] - table["start_s"])[table["variant"] == "cubic"]
    entry = result["variants"]["cubic"]
    assert entry["iteration_s"]["count"] == 4 * 40 * 2 == len(times)
    assert entry["iteration_s"]["mean"] == pytest.approx(times.mean())
    assert entry["iteration_s"]["p99"] == pytest.approx(times.quantile(0.99))
    late = times[table["iteration"] >= 10]
    assert entry["settled_mean_s"] == pytest.approx(late.mean())
    fast = (table["end_s"] - table["start_s"])[table["variant"] == "mltcp"]
    speedup = result["speedup"]["mltcp"]["cubic"]
    assert speedup["mean"]["value"] == pytest.approx(times.mean() / fast.mean())
    assert speedup["p99"]["value"] == pytest.approx(times.quantile(0.99) / fast.quantile(0.99))
    assert speedup["mean"]["low"] < speedup["mean"]["value"] < speedup["mean"]["high"]
    means = times.groupby(table["repetition"]).mean()
    assert entry["means_s"] == pytest.approx({"1": means[1], "2": means[2]})
    ran = pd.read_csv(folder / "variants.csv")
    durations = ran[ran["variant"] == "cubic"]["duration_s"]
    used = sum(4 * 40 * BYTES * 8 / duration / 200e6 for duration in durations) / 2
    assert entry["link"]["utilisation"] == pytest.approx(used)
    assert result["variants"]["mltcp"]["events_per_burst"] == 1.0


def test_the_golden_run_still_reads_the_same() -> None:
    run = load_run(GOLDEN)
    assert run.problems == []
    result = summarise(run).document()
    assert summarise(load_run(GOLDEN)).document() == json.loads(json.dumps(result)) == result
    expected = json.loads((GOLDEN / "expected.json").read_text())
    for variant, values in expected["variants"].items():
        entry = result["variants"][variant]
        for key, value in values.items():
            assert entry[key] == (value and pytest.approx(value, rel=1e-6)), (variant, key)
    for name, value in expected["schedules"].items():
        assert result["schedules"][name]["iteration_s"]["mean"] == pytest.approx(value, rel=1e-6)
    assert set(expected["fields"]) == set(result["variants"]["mltcp"])


def test_runs_that_prove_little_are_warned_of(tmp_path: Path) -> None:
    make_run(tmp_path, experiment(jobs=2, iterations=12, repetitions=1), jitter=0.0)
    warnings = " ".join(summarise(load_run(tmp_path)).document()["warnings"])
    assert "The compute times don't vary" in warnings
    assert "Fewer than 40 iterations" in warnings


def test_a_baseline_without_room_is_warned_of(tmp_path: Path) -> None:
    make_run(tmp_path, experiment(jobs=2, variants={"mltcp": "mltcp"}, baseline="mltcp"))
    result = summarise(load_run(tmp_path)).document()
    assert any("almost nothing to gain" in each for each in result["warnings"])
    assert result["schedules"]["fair"]["captured_gain"] is None


def test_recorded_warnings_and_outcome_are_passed_on(tmp_path: Path) -> None:
    make_run(tmp_path)
    document = {"schema": "mltcp-environment/1", "outcome": "interrupted"}
    document["warnings"] = ["Odd clock."]
    (tmp_path / "environment.json").write_text(json.dumps(document))
    result = summarise(load_run(tmp_path))
    assert "Odd clock." in result.warnings
    assert "The run ended early: interrupted." in result.problems


def test_jobs_of_both_directions_have_no_bound(tmp_path: Path) -> None:
    document = experiment(jobs=2, iterations=20, repetitions=1)
    make_run(tmp_path, document)
    job = {"bytes": "2.5MB", "compute": "340ms"}
    jobs = [{"name": "job-1", **job}, {"name": "job-2", "direction": "both", **job}]
    (tmp_path / "experiment.yaml").write_text(yaml.safe_dump(document | {"jobs": jobs}))
    path = tmp_path / "iterations.csv"
    table = pd.read_csv(path)
    second = table[table["variant"] == "alone"].assign(job="job-2")
    pd.concat([table, second]).to_csv(path, index=False)
    result = summarise(load_run(tmp_path)).document()
    assert any("some in both, which the schedules don't" in each for each in result["problems"])
    assert set(result["schedules"]) == {"alone"}
    own = result["variants"]["mltcp"]
    assert (own["captured_gain"], own["ratio_to_bound"]) == (None, None)


def test_text_fits_and_has_the_figures(result: dict[str, Any]) -> None:
    text = fits(render_text(result))
    lines = {line.split()[0]: line for line in reversed(text.splitlines()) if line.strip()}
    mean_ms = result["variants"]["mltcp"]["iteration_s"]["mean"] * 1e3
    assert f"{mean_ms:.1f}" in lines["mltcp"]
    assert "1.00 [1.00, 1.00]" in lines["mltcp"]
    assert any(line.startswith("cubic ") and "never" in line for line in text.splitlines())
    assert {"bound", "fair", "alone"} <= set(lines)


def test_page_is_self_contained_and_escaped(tmp_path: Path) -> None:
    document = experiment(jobs=2, iterations=20, description="<b>bold</b> & 'quoted'")
    page = make_report(load_run(make_run(tmp_path, document))).html
    assert "<script" not in page
    assert "<b>bold" not in page
    assert "&lt;b&gt;bold" in page
    sources = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert len(sources) == 4
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    folded = [part.split("</details>")[0] for part in page.split("<details>")[1:]]
    assert ["bootstrap" in folded[0], "2.5MB" in folded[1], "6.18.0" in folded[2]] == 3 * [True]


def test_page_shows_the_cells_of_the_text(result: dict[str, Any]) -> None:
    page = render_html(result, [])
    for table in tables(result):
        assert f">{html.escape(table.title)}</h" in page
        for row in table.rows:
            assert row is None or "".join(f"<td>{cell}</td>" for cell in row) in page
    assert page.count('<tr class="apart">') == 2  # the measured jobs alone, and the schedules


def test_write_report_replaces_an_earlier_one(tmp_path: Path) -> None:
    make_run(tmp_path, experiment(jobs=2, iterations=20))
    write_report(tmp_path)
    assert (tmp_path / "plots" / "windows.png").read_bytes().startswith(b"\x89PNG")
    (tmp_path / "plots" / "mine.png").touch()
    (tmp_path / "samples.csv").unlink()
    result = write_report(tmp_path)
    assert not (tmp_path / "plots" / "windows.png").exists()
    assert (tmp_path / "plots" / "mine.png").exists()
    assert json.loads((tmp_path / "result.json").read_text()) == result
    assert not list(tmp_path.rglob("*.partial"))


def test_compare_says_what_changed(folder: Path, tmp_path: Path) -> None:
    other = experiment(variants={"cubic": "cubic", "reno": "mltcp"})
    other["link"]["queue"] = "100kB"
    make_run(tmp_path / "second", other)
    document = compare_runs(load_run(folder), load_run(tmp_path / "second"))
    assert document["schema"] == "mltcp-comparison/1"
    assert list(document["variants"]) == ["cubic", "reno"]
    assert document["only_in"] == [["mltcp"], []]
    same, better = document["variants"]["cubic"], document["variants"]["reno"]
    assert same["speedup"]["mean"]["value"] == pytest.approx(1)
    assert same["speedup"]["mean"]["low"] < 1 < same["speedup"]["mean"]["high"]
    assert better["speedup"]["mean"]["low"] > 1.05
    assert better["gain_difference"]["value"] == pytest.approx(1)
    keys = {each["key"]: each for each in document["differences"]["experiment"]}
    assert keys["link.queue"] == {"key": "link.queue", "first": "30kB", "second": "100kB"}
    assert document["differences"]["environment"] == []
    text = fits(render_comparison(document))
    assert "link.queue: 30kB → 100kB" in text
    assert "Only the first run has the variants mltcp." in text
    json.dumps(document, allow_nan=False)


def test_compare_says_nothing_of_jobs_that_only_one_run_has(folder: Path, tmp_path: Path) -> None:
    run = load_run(folder)
    other = Path(shutil.copytree(folder, tmp_path / "other"))
    for path in [other / "experiment.yaml", *other.glob("*.csv")]:
        path.write_text(path.read_text().replace(": job", ": one").replace("job-", "one-"))
    document = compare_runs(run, load_run(other))
    assert (document["variants"], document["jobs"]) == ({}, [])
    text = render_comparison(document)
    assert "The runs have no job in common, so nothing is compared." in text
    assert "faster" not in text
    bbr = experiment(variants={"bbr": "bbr"}, baseline="bbr")
    document = compare_runs(run, load_run(make_run(tmp_path / "bbr", bbr)))
    assert "The runs have no variant in common." in render_comparison(document)
    # One job less: compared is what both have.
    make_run(tmp_path / "fewer", experiment(jobs=3, variants={"cubic": "cubic"}))
    document = compare_runs(load_run(folder), load_run(tmp_path / "fewer"))
    assert document["jobs"] == ["job-1", "job-2", "job-3"]
    assert "Only jobs that both runs have are compared, not job-4." in document["warnings"]


def recordings(tmp_path: Path, **changed: Any) -> list[Run]:
    """Two, before and after. changed: in the conditions of the second."""
    same = {"length_s": 10.0, "links": {"eth0": 1e7}, "stolen": 0.0, "worked": 0.5, "own": 1e7}
    same |= {"again": 0.0, "jobs": ["job-1"], "came": [], "went": [], "others": []}
    runs = []
    for cc, told in (("cubic", same), ("mltcp", same | changed)):
        run = load_run(make_recording(tmp_path / cc, cc))
        runs.append(replace(run, environment=dict(run.environment) | {"conditions": told}))
    return runs


def test_verdict_names_jobs_that_differ_from_the_whole(tmp_path: Path) -> None:
    # Four per cent more of the jobs' own bytes, and the link with them, are no change.
    first, second = recordings(tmp_path, own=1.04e7, links={"eth0": 1.04e7})
    slow = second.iterations["job"] == "job-4"
    times = second.iterations.assign(
        **{
            name: second.iterations[name].where(~slow, 1.5 * second.iterations[name])
            for name in ("start_s", "end_s")
        }
    )
    for changed, said in ((second, ""), (replace(second, iterations=times), "; job-4 is slower")):
        document = compare_runs(first, changed)
        (entry,) = document["variants"].values()
        assert (list(entry["jobs"]), document["conditions"]) == (document["jobs"], [])
        (verdict,) = document["verdict"]
        assert verdict.startswith("cubic → mltcp: the second run is ")
        assert ("; " in verdict) == bool(said)
        assert said in verdict
        assert "In short\n  - cubic → mltcp" in fits(render_comparison(document))


def test_changed_conditions_leave_no_verdict(tmp_path: Path) -> None:
    document = compare_runs(*recordings(tmp_path, links={"eth0": 2e7}))
    said = "Other traffic on eth0 changed (80 Mbit/s and 160 Mbit/s"
    assert any(said in each for each in document["conditions"]), document["conditions"]
    assert document["verdict"] == ["The conditions changed, so there is no verdict."]
    assert "no verdict" in render_comparison(document)


def test_command_prints_text_or_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(folder.rglob("*"))
    assert main(["report", str(folder)]) == 0
    assert "captured gain" in capsys.readouterr().out
    assert main(["report", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "mltcp-result/1"
    assert main(["report", str(folder), str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "mltcp-comparison/1"
    assert main(["report", str(folder), str(folder)]) == 0
    assert "No differences in the experiment." in capsys.readouterr().out
    assert main(["report", str(folder), str(folder), "--html", "x"]) == 2
    assert "--html reports on one run" in capsys.readouterr().err
    assert sorted(folder.rglob("*")) == before


def test_command_writes_a_page_where_told(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert main(["report", str(folder), "--html", str(page)]) == 0
    assert page.read_text().endswith("</html>\n")


@pytest.mark.parametrize(
    "arguments",
    [["{}/none"], ["{}"], ["{}/none", "{}"], []],
)
def test_command_refuses_what_is_no_run(
    tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", *(each.format(tmp_path) for each in arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.strip().splitlines()) == 1


def test_command_says_where_it_can_not_write(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(folder), "--html", str(folder / "no" / "page.html")]) == 1
    assert "page.html can't be written" in capsys.readouterr().err
