# SPDX-License-Identifier: BSD-2-Clause
"""Whole runs of the testbed, small ones: their tables, their reports, and a matrix of them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pandas as pd
import pytest
from netns.backends_here import PARAMETERS, RUNNABLE, why_not
from netns.runs import CUBIC_RENO, command_line, table, write

from mltcp_tools.kernel.backends import get_backend
from mltcp_tools.lab.analysis import load_run, summarise
from mltcp_tools.lab.experiments.reading import load_experiment, parse_experiment
from mltcp_tools.lab.experiments.variants import ALONE
from mltcp_tools.lab.runs.recorder import TRACED
from mltcp_tools.lab.testbed.run_experiment import run_experiment


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    return write(tmp_path, CUBIC_RENO)


def test_tables_of_a_run(experiment: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run_experiment(load_experiment(experiment), folder)
    assert load_experiment(folder / "experiment.yaml") == load_experiment(experiment)

    iterations = table(folder, "iterations")
    counts = iterations.groupby(["variant", "repetition", "job"])["iteration"].agg(["min", "max"])
    jobs = ["job-1", "job-2", "other"]
    wanted = {
        (variant, r, job): (1, 9) for variant in ("cubic", "reno") for r in (1, 2) for job in jobs
    }
    wanted |= {(ALONE, r, job): (1, 3) for r in (1, 2) for job in ("job-1", "other")}
    assert {
        key: tuple(row) for key, row in zip(counts.index, counts.to_numpy(), strict=True)
    } == wanted
    assert (iterations["end_s"] > iterations["start_s"]).all()
    assert (iterations["rtt_us"].notna() == (iterations["repetition"] == 1)).all()
    assert (iterations["retransmits"].dropna() >= 0).all()
    spans = iterations["end_s"] - iterations["start_s"]
    assert (spans >= iterations["compute_s"] + iterations["comm_s"] - 1e-6).all()
    assert (
        iterations["bytes"]
        == iterations["job"].map({"job-1": 100_000, "job-2": 100_000, "other": 60_000})
    ).all()
    # One job at a time in `alone`; in the variants, job-1 and job-2 start at their random instants.
    alone = iterations[(iterations["variant"] == ALONE) & (iterations["repetition"] == 1)]
    last, first = alone.groupby("job")["end_s"].max(), alone.groupby("job")["start_s"].min()
    assert first["other"] > last["job-1"]

    paired = iterations.pivot_table(
        index=["repetition", "job", "iteration"], columns="variant", values="compute_s"
    )
    assert (paired["cubic"] == paired["reno"]).all()
    firsts = iterations[iterations["iteration"] == 1].set_index(["variant", "repetition", "job"])
    for key in ((1, "job-1"), (2, "job-2")):
        assert firsts.loc[("cubic", *key), "start_s"] == pytest.approx(
            firsts.loc[("reno", *key), "start_s"], abs=1e-6
        )

    bursts = table(folder, "bursts")
    sums = bursts.groupby(["variant", "repetition", "job", "iteration"])["bytes"].sum()
    assert set(sums) == {100_000, 60_000}
    assert set(bursts.query("job == 'other'")["burst"]) == {1, 2}

    samples = table(folder, "samples")
    assert set(samples["repetition"]) == {1}
    in_variant = samples[(samples["variant"] == "cubic") & (samples["job"] == "other")]
    assert set(in_variant["iteration"]) == {*range(1, TRACED + 1), *range(10 - TRACED, 10)}
    assert set(in_variant["flow"]) == {0, 1}
    assert set(in_variant["burst_bytes"]) == {15_000}
    assert (samples["cwnd"] > 0).all()

    variants = table(folder, "variants")
    ordered = variants.sort_values(["repetition", "order"])
    assert [list(rows["variant"]) for _, rows in ordered.groupby("repetition")] == [
        [ALONE, "cubic", "reno"],
        ["reno", "cubic", ALONE],
    ]
    assert (variants["link_bytes"] > 3 * 160_000).all()
    assert (variants["link_packets"] > 0).all()
    assert (variants["duration_s"] > 0).all()
    assert variants["cpu_busy"].between(0, 1).all()
    assert not (folder / "flow_events.csv").exists()

    assert pd.read_csv(folder / "disturbance.csv")["busiest"].between(0.01, 1).all()
    environment = json.loads((folder / "environment.json").read_text())
    assert environment["schema"] == "mltcp-environment/1"
    assert environment["outcome"] == "finished"
    assert environment["network"]["bottleneck"]["rate"] == 100_000_000
    assert environment["namespace_sysctls"]["net.ipv4.tcp_no_metrics_save"] == "1"


NEIGHBOURS = """neighbours:
  - {name: bulk, cc: mltcp, count: 2}
  - {name: rpc, cc: variant, size: 10kB, think: 10ms, jitter: 20%}
"""


@pytest.mark.skipif("bpf" not in RUNNABLE, reason=why_not("bpf"))
def test_neighbours_run_next_to_the_jobs_and_are_recorded(tmp_path: Path) -> None:
    """Each has something to show in 30 iterations, of 0.6 s at least, however busy the host is."""
    path = write(tmp_path, CUBIC_RENO)
    path.write_text(path.read_text().replace("variants:\n", NEIGHBOURS + "variants:\n"))
    folder = tmp_path / "run"
    experiment = load_experiment(path).override(repetitions=1, iterations=30)
    run_experiment(experiment, folder, backend="bpf")
    assert set(table(folder, "iterations")["job"]) == {"job-1", "job-2", "other"}
    bulk, requests = table(folder, "bulk"), table(folder, "requests")
    assert set(bulk["variant"]) == set(requests["variant"]) == {"cubic", "reno"}  # not alone
    for _, rows in bulk.groupby(["variant", "neighbour"]):
        assert rows["bytes"].is_monotonic_increasing
        assert rows["bytes"].iloc[-1] > 0
    for _, rows in requests.groupby("variant"):
        assert list(rows["request"]) == list(range(1, len(rows) + 1))
        assert (rows["end_s"] > rows["start_s"]).all()
        assert set(rows["bytes"]) == {10_000}
    result = summarise(load_run(folder)).document()
    for variant in ("cubic", "reno"):
        entry = result["variants"][variant]
        assert set(entry["neighbours"]) == {"bulk-1", "bulk-2", "rpc"}
        assert entry["neighbours"]["rpc"]["cc"] == variant
    environment = json.loads((folder / "environment.json").read_text())
    assert "mltcp" in environment["backend"]["loaded"]


LINKS = """\
name: links
links: {one: {rate: 100mbit, queue: 30kB}, two: {rate: 100mbit, queue: 30kB}}
jobs:
  - {name: a, bytes: 100kB, compute: 20ms, links: [one], flows: 3, split: [2, 1, 1]}
  - {name: b, bytes: 100kB, compute: 20ms, links: [two, one], direction: both, chunk: 10kB}
  - {name: c, bytes: 100kB, compute: 20ms, links: [two]}
variants: {reno: {cc: reno}}
iterations: 6
repetitions: 1
alone: {iterations: 2}
"""


def test_several_links_and_all_ways_of_a_burst(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run_experiment(parse_experiment(LINKS, "links.yaml"), folder)
    iterations, bursts = table(folder, "iterations"), table(folder, "bursts")
    counts = iterations.groupby(["variant", "job"]).size().to_dict()
    assert counts == {
        (variant, job): n for variant, n in ((ALONE, 2), ("reno", 6)) for job in "abc"
    }
    assert (bursts["first_end_s"] > bursts["start_s"]).all()
    assert (bursts["first_end_s"] <= bursts["end_s"]).all()
    samples = table(folder, "samples").query("variant == 'reno' and job == 'a'")
    assert samples.groupby("iteration")["flow"].nunique().to_dict() == dict.fromkeys(range(1, 7), 3)
    environment = json.loads((folder / "environment.json").read_text())
    assert set(environment["network"]["links"]) == {"one", "two"}


@pytest.mark.parametrize("direction", ["send", "both"])
@pytest.mark.parametrize("name", PARAMETERS)
def test_an_mltcp_variant_tags_its_flows_and_keeps_their_events(
    tmp_path: Path, name: str, direction: str
) -> None:
    backend = get_backend(name)
    before = backend.status()
    folder = tmp_path / "run"
    variants = "mltcp: {cc: mltcp, slope: 2}\n  selected: {cc: mltcp, attached: false}"
    experiment = load_experiment(write(tmp_path, variants, direction))
    run_experiment(experiment.override(repetitions=1, alone=False), folder, backend=name)
    assert backend.status().loaded == before.loaded
    assert backend.status().jobs == before.jobs

    assert set(table(folder, "iterations")["variant"]) == {"mltcp", "selected"}
    events = table(folder, "flow_events")
    assert set(events["variant"]) == {"mltcp"}  # those without a job tell their own namespace
    flows = 4 if direction == "both" else 2
    assert set(events.query("job == 'other'")["flow"]) == set(range(flows))
    assert set(events["job"]) == {"job-1", "job-2", "other"}
    # The last burst is followed by no gap, and on a busy machine a gap can go unseen.
    counts = events.query("job == 'job-1'")["iteration"]
    assert len(set(counts)) >= 5
    assert set(counts) <= set(range(1, 10))
    assert events["ratio"].between(0, 1).all()
    assert (events["first_ack_s"] <= events["last_ack_s"]).all()
    environment = json.loads((folder / "environment.json").read_text())
    assert environment["backend"]["backend"] == name
    assert "mltcp" in environment["backend"]["loaded"]


MATRIX = """\
name: few
defaults:
  link: {rate: 100mbit, queue: 30kB}
  jobs: [{count: 2, bytes: 100kB, compute: 20ms, jitter: 10%, start: random}]
  variants: {cubic: {cc: cubic}, reno: {cc: reno}}
  iterations: 5
  repetitions: 1
  alone: {iterations: 2}
scenarios:
  one: {}
  no_such: {variants: {none: {cc: no_such}}}
  two: {link: {queue: 60kB}}
"""


def test_a_matrix_goes_on_where_it_was(tmp_path: Path) -> None:
    path, folder = tmp_path / "few.yaml", tmp_path / "few"
    path.write_text(MATRIX)
    words = ("run", str(path), "-o", str(folder), "--trace", "0")

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        command = command_line(*words, *options)
        return subprocess.run(command, capture_output=True, text=True, check=False)

    first = run("--only", "one")
    assert first.returncode == 0, first.stderr
    taken = (folder / "one" / "iterations.csv").stat().st_mtime_ns
    every = run("--json")
    assert every.returncode == 1
    assert "1 of 3 scenarios have no result (no_such)" in every.stderr
    assert "scenario 1/3 one: finished before" in every.stderr
    assert (folder / "one" / "iterations.csv").stat().st_mtime_ns == taken
    scenarios = json.loads(every.stdout)["scenarios"]
    assert "no congestion control 'no_such'" in scenarios["no_such"]["problem"]
    assert set(scenarios["two"]["variants"]) == {"cubic", "reno"}
    assert (folder / "two" / "report.html").exists()
    assert run("--only", "two").returncode == 0
    # What was run before stays in the table.
    kept = json.loads((folder / "matrix.json").read_text())["scenarios"]
    assert set(kept["one"]["variants"]) == {"cubic", "reno"}
    other = run("--iterations", "6")
    assert other.returncode == 2
    assert "one isn't a run of this scenario as it is now" in other.stderr


def test_list_names_what_is_shipped() -> None:
    done = subprocess.run(
        command_line("list", "--json"), capture_output=True, text=True, check=True
    )
    experiments = {each["name"]: each for each in json.loads(done.stdout)}
    assert len(experiments["four-jobs"]["jobs"]) == 4
    assert experiments["four-jobs"]["variants"] == ["cubic", "reno", "bbr", "mltcp", "selected"]
    text = subprocess.run(command_line("list"), capture_output=True, text=True, check=True).stdout
    assert "four-jobs" in text
