# SPDX-License-Identifier: BSD-2-Clause
"""Comparisons where something disturbed a run, and the bound of a variant."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from support.run_folders import BYTES, LONE_COMM_S, experiment, make_run

from mltcp_tools.cli.main import main
from mltcp_tools.lab.analysis import compare_runs, load_run, render_text, summarise
from mltcp_tools.lab.analysis.isolated import payload_share

CALM = {"stolen": 0.0, "others": 0.0, "queued": 0.0, "late_s": 0.0, "latest_s": 0.0}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run")


def disturb(folder: Path, *keys: tuple[str, int], again: bool = False) -> None:
    """Write the table `disturbance`: of these (variant, repetition) half of the time was stolen;
    where they were run `again`, of the first run only."""
    rows = []
    for variant in ("alone", "cubic", "mltcp"):
        for repetition in (1, 2):
            bad = (variant, repetition) in keys
            for attempt in (1, 2) if bad and again else (1,):
                stolen = 0.5 if bad and attempt == 1 else 0.0
                key = {"variant": variant, "repetition": repetition, "attempt": attempt}
                rows += [key | CALM | {"time_s": n, "stolen": stolen} for n in range(10)]
    pd.DataFrame(rows).to_csv(folder / "disturbance.csv", index=False)


def change(folder: Path, name: str, variant: str, **factors: float) -> None:
    """Multiply columns of a variant's rows."""
    path = folder / f"{name}.csv"
    table = pd.read_csv(path)
    for column, factor in factors.items():
        table.loc[table["variant"] == variant, column] *= factor
    table.to_csv(path, index=False)


def gains(result: dict[str, Any]) -> dict[str, Any]:
    return {variant: entry["captured_gain"] for variant, entry in result["variants"].items()}


def test_calm_run_says_so_and_busy_cpus_are_doubtful(folder: Path) -> None:
    disturb(folder)
    result = summarise(load_run(folder)).document()
    assert gains(result)["mltcp"]["value"] == pytest.approx(1)
    assert result["headline"][3] == "The compared runs were not disturbed."
    assert result["warnings"] == []
    path = folder / "variants.csv"
    pd.read_csv(path).assign(cpu_busy=0.93).to_csv(path, index=False)
    headline = summarise(load_run(folder)).headline
    assert "doubtful, as CPUs were more than 85% busy: mltcp, cubic" in headline[3]


def test_full_cpu_is_named_where_link_is_not_full(folder: Path) -> None:
    disturb(folder)
    path = folder / "disturbance.csv"
    pd.read_csv(path).assign(busiest=0.97).to_csv(path, index=False)
    filled = summarise(load_run(folder)).document()
    for variant in ("cubic", "mltcp"):
        change(folder, "bursts", variant, bytes=0.7)
    result = summarise(load_run(folder)).document()
    assert [each for each in filled["warnings"] if "bottleneck" in each] == []
    named = [each for each in result["warnings"] if "bottleneck" in each]
    assert [each.split()[2] for each in named] == ["cubic", "mltcp"]
    assert all("a CPU was 97% busy" in each for each in named)
    assert "a CPU was full and the link wasn't" in result["headline"][3]


def test_a_disturbed_repetition_is_left_out(folder: Path) -> None:
    one = make_run(folder.parent / "one")
    for path in one.glob("*.csv"):
        table = pd.read_csv(path)
        table[(table["variant"] != "cubic") | (table["repetition"] != 2)].to_csv(path, index=False)
    disturb(folder, ("cubic", 2))
    result, expected = summarise(load_run(folder)).document(), summarise(load_run(one)).document()
    assert gains(result) == gains(expected)
    assert result["speedup"] == expected["speedup"]
    assert result["variants"]["cubic"]["disturbance"]["left_out"] == 1
    assert any("cubic, repetition 2, is left out" in each for each in result["warnings"])
    assert "left out: 1" in result["headline"][3]


def test_a_run_that_was_made_again_counts_by_its_last(folder: Path) -> None:
    disturb(folder, ("cubic", 1), ("mltcp", 2), again=True)
    result = summarise(load_run(folder)).document()
    assert gains(result)["mltcp"]["value"] == pytest.approx(1)
    assert result["variants"]["cubic"]["disturbance"]["again"] == 1
    assert result["headline"][3].endswith("disturbed runs repeated: 2.")


@pytest.mark.parametrize("variant", ["cubic", "mltcp"])
def test_variant_disturbed_throughout_is_not_compared(folder: Path, variant: str) -> None:
    disturb(folder, (variant, 1), (variant, 2))
    result = summarise(load_run(folder)).document()
    assert gains(result) == {"cubic": None, "mltcp": None}
    assert not result["speedup"].get("mltcp")
    assert result["variants"][variant]["iteration_s"]["count"] == 320  # to look at
    assert any(f"{variant} can't be compared" in each for each in result["warnings"])
    text = render_text(result)
    assert (
        f"No verdict is possible, because every repetition of {variant} was disturbed;"
        in text.replace("\n    ", " ")
    )
    assert "mltcp simulate" in text
    bound = next(line.split() for line in text.splitlines() if line.startswith("bound "))
    assert (bound[-2] == "-") == (variant == "cubic")
    calm = make_run(folder.parent / "calm")
    document = compare_runs(load_run(folder), load_run(calm))
    assert document["variants"][variant]["speedup"] is None
    assert document["variants"]["mltcp"]["gain_difference"] is None


def test_bound_follows_from_bytes_and_link_not_a_lossy_run(folder: Path) -> None:
    before = summarise(load_run(folder)).document()
    path = folder / "iterations.csv"
    table = pd.read_csv(path)
    slow = (table["variant"] == "alone") & (table["iteration"] > 4)
    table.loc[slow, "comm_s"] *= 3
    table.to_csv(path, index=False)
    change(folder, "variants", "alone", link_drops=50.0)
    result = summarise(load_run(folder)).document()
    assert result["schedules"] == before["schedules"]
    assert gains(result) == gains(before)
    isolated = result["isolated"]["job-1"]
    assert (isolated["how"], isolated["loss"]) == ("computed", pytest.approx(0.2 + 0.8 * 3))
    (finding,) = result["warnings"]
    assert finding.startswith("job-1 alone under cubic communicated 271.9 ms")
    assert "2.60 times the 104.6 ms that it needs, and the link dropped 1." in finding
    assert "alone (cubic)" in render_text(result)


def test_without_an_isolated_run_the_bound_is_the_same(folder: Path) -> None:
    before = summarise(load_run(folder)).document()
    path = folder / "iterations.csv"
    pd.read_csv(path).query("variant != 'alone'").to_csv(path, index=False)
    result = summarise(load_run(folder)).document()
    assert result["schedules"] == before["schedules"]
    assert (result["alone"], result["problems"]) == (None, ["The variant alone is missing."])


def test_lone_iterations_quicker_than_computed_are_the_bound(folder: Path) -> None:
    change(folder, "iterations", "alone", comm_s=0.98)
    isolated = summarise(load_run(folder)).document()["isolated"]["job-1"]
    assert (isolated["how"], isolated["needs_s"]) == ("measured", pytest.approx(0.98 * LONE_COMM_S))


def test_a_delay_comes_after_the_burst_has_left_the_link(tmp_path: Path) -> None:
    document = experiment(link={"rate": "200mbit", "queue": "30kB", "delay": "20ms"})
    folder = make_run(tmp_path, document)
    change(folder, "iterations", "alone", comm_s=1.3)
    isolated = summarise(load_run(folder)).document()["isolated"]["job-1"]
    assert isolated["needs_s"] == pytest.approx(LONE_COMM_S)
    assert isolated["alone_s"] == pytest.approx(LONE_COMM_S + 0.02)


def test_what_a_run_was_simulated_with_counts(folder: Path) -> None:
    document = {"schema": "mltcp-environment/1", "simulated": True, "mtu": 9000, "rtt_s": 0.001}
    (folder / "environment.json").write_text(json.dumps(document))
    isolated = summarise(load_run(folder)).document()["isolated"]["job-1"]
    assert isolated["needs_s"] == pytest.approx(BYTES * 8 / 200e6 * 9014 / 8948)
    assert isolated["latency_s"] == 0.001


def test_a_variant_faster_than_the_bound_is_a_failure(folder: Path) -> None:
    for name in ("iterations", "bursts"):
        change(folder, name, "mltcp", start_s=0.9, end_s=0.9)
    result = summarise(load_run(folder)).document()
    assert gains(result) == {"cubic": None, "mltcp": None}
    (failure,) = result["failures"]
    assert failure.startswith("The evaluation failed: variant mltcp took 0.9")
    assert failure in result["problems"]
    assert result["headline"][3].startswith("No verdict is possible: the evaluation failed")


def test_host_that_limits_an_isolated_job_gives_no_verdict(folder: Path) -> None:
    change(folder, "iterations", "alone", comm_s=1.5)
    result = summarise(load_run(folder)).document()
    (failure,) = result["failures"]
    assert failure.startswith(
        "The host, not the link, limits the jobs: job-1 alone filled 67% of the link at best"
    )
    assert gains(result) == {"cubic": None, "mltcp": None}
    assert result["headline"][3].startswith("No verdict is possible: the host, not the link")
    change(folder, "variants", "alone", cpu_busy=0.1)  # an idle host isn't to blame
    assert summarise(load_run(folder)).failures == []


def test_headline_has_conditions_interval_and_percentile(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(folder)]) == 0
    said = capsys.readouterr().out.rpartition("In short")[2]
    sentences = [each.replace("\n    ", " ").strip() for each in said.split("  - ")[1:]]
    assert sentences[0] == (
        "4 jobs over 200 Mbit/s with a queue of 30 kB: 2 repetitions of 40 iterations."
    )
    assert re.fullmatch(
        r"Under mltcp an iteration took \d+ ms on average, under cubic \d+ ms: 1\.\d\d times as"
        r" fast \(95 % CI 1\.\d\d to 1\.\d\d\)\."
        r" Its 99th percentile was \d+ ms, \d+ % below that of cubic\.",
        sentences[1],
    )
    assert re.search(r"mltcp captured 100 % of that gain \(95 % CI 100 % to 100 %\)", sentences[2])
    assert sentences[3:] == ["Disturbance by other programs was not recorded."]


def test_headline_calls_a_negative_gain_not_faster(tmp_path: Path) -> None:
    variants = {name: name for name in ("cubic", "reno", "mltcp")}
    folder = make_run(tmp_path, experiment(variants=variants))
    assert "reno" not in " ".join(summarise(load_run(folder)).headline)
    change(folder, "iterations", "mltcp", start_s=1.5, end_s=1.5)
    said = summarise(load_run(folder)).headline
    assert re.search(r"0\.\d\d times as fast \(95 % CI 0\.\d\d to 0\.\d\d\)\.", said[1])
    assert re.search(r"% above that of cubic\. Under reno it took \d+ ms\.", said[1])
    assert said[2].endswith("; mltcp was not faster than cubic.")


def test_headline_calls_an_interval_with_1_not_significant(tmp_path: Path) -> None:
    variants = {"cubic": "cubic", "reno": "reno"}
    delayed = {"rate": "1gbit", "queue": "1MB", "delay": "20ms"}
    document = experiment(variants=variants, link=delayed, repetitions=1)
    conditions, seen, *_ = summarise(load_run(make_run(tmp_path, document))).headline
    assert "1.00 times as fast (95 % CI 1.00 to 1.00, not significantly different)" in seen
    assert "1 Gbit/s with a queue of 1 MB and 20 ms of delay: 1 repetition of" in conditions


@pytest.mark.parametrize(
    ("changes", "share"),
    [
        ({}, 1448 / 1514),
        ({"sysctls": {"net.ipv4.tcp_timestamps": "0"}}, 1460 / 1514),
        ({"link": {"rate": "200mbit", "queue": "30kB", "mtu": "9kB"}}, 8948 / 9014),
    ],
    ids=["plain", "no-stamps", "jumbo"],
)
def test_the_bound_is_of_the_packets_that_hosts_send(
    tmp_path: Path, changes: dict[str, Any], share: float
) -> None:
    run = load_run(make_run(tmp_path / "run", experiment(**changes)))
    assert payload_share(run) == pytest.approx(share)


def test_a_variant_of_which_the_kernel_skipped_programs_says_so(folder: Path) -> None:
    disturb(folder)
    path = folder / "disturbance.csv"
    table = pd.read_csv(path)
    table.assign(skipped=(table["variant"] == "mltcp") * 2.0).to_csv(path, index=False)
    result = summarise(load_run(folder)).document()
    (named,) = [each for each in result["warnings"] if "skipped" in each]
    assert named.startswith("In variant mltcp this kernel skipped BPF programs at least 40 times:")
    assert result["variants"]["mltcp"]["disturbance"]["skipped"] == 40  # of both repetitions
    assert result["variants"]["cubic"]["disturbance"]["skipped"] == 0
