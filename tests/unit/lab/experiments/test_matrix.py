# SPDX-License-Identifier: BSD-2-Clause
"""Matrices: how scenarios are made, what is refused, what is run again, and the table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.mistakes import mistakes, refusal
from support.run_folders import experiment as run_document
from support.run_folders import make_run
from support.shown import fits

from mltcp_tools.base.errors import HostError, UsageError
from mltcp_tools.lab.analysis.matrix import render_matrix_text
from mltcp_tools.lab.analysis.write import save_matrix
from mltcp_tools.lab.experiments.experiment import Experiment
from mltcp_tools.lab.experiments.matrix import (
    Matrix,
    chosen,
    find_matrix,
    load_matrix,
    parse_matrix,
    run_matrix,
)
from mltcp_tools.lab.experiments.reading import (
    find_experiment,
    load_experiment,
    parse_experiment,
    shipped_matrices,
)

TEXT = """\
name: few
description: a few
defaults:
  link: {rate: 100mbit, queue: 60kB}
  jobs: [{count: 2, bytes: 1MB, compute: 100ms}]
  variants: {reno: {cc: reno}, mltcp: {cc: mltcp}}
  iterations: 7
scenarios:
  same: {}
  other: {link: {queue: 30kB}, iterations: 9}
  many: {each: {link.rate: [50mbit, 1gbit], jobs.count: [1, 3]}}
  shipped: {experiment: delay, repetitions: 1}
  sweep: {each: {variants.mltcp.slope: [1, 2]}}
"""


def few() -> Matrix:
    return parse_matrix(TEXT, "few.yaml")


def test_a_scenario_is_the_defaults_then_what_it_says_itself() -> None:
    scenarios = few().scenarios
    assert scenarios["same"].name == "same"
    assert (scenarios["same"].link.rate, scenarios["same"].link.queue) == (100_000_000, 60_000)
    assert (scenarios["other"].link.rate, scenarios["other"].link.queue) == (100_000_000, 30_000)
    assert (scenarios["same"].iterations, scenarios["other"].iterations) == (7, 9)
    assert len(scenarios["other"].jobs) == 2


def test_each_stands_for_all_combinations() -> None:
    scenarios = few().scenarios
    named = ["many-50mbit-1", "many-50mbit-3", "many-1gbit-1", "many-1gbit-3"]
    assert [name for name in scenarios if name.startswith("many")] == named
    last = scenarios["many-1gbit-3"]
    assert (last.link.rate, last.link.queue, len(last.jobs)) == (1_000_000_000, 60_000, 3)
    assert scenarios["sweep-2"].variants[1].parameters == {"slope": 2.0}


def test_defaults_set_run_length_of_named_experiments() -> None:
    scenarios = few().scenarios
    assert scenarios["shipped"].iterations == 7
    text = "name: m\ndefaults: {experiment: two-jobs, repetitions: 2}\n"
    text += "scenarios: {one: {experiment: delay}}\n"
    one, delay = (
        parse_matrix(text, "m.yaml").scenarios["one"],
        load_experiment(find_experiment("delay")),
    )
    assert (one.repetitions, one.iterations) == (2, delay.iterations)


def test_several_links_take_the_place_of_the_one_of_the_defaults() -> None:
    scenario = (
        "round: {links: {one: {rate: 10mbit}}, jobs: [{bytes: 1MB, compute: 1s, links: [one]}]}"
    )
    experiment = parse_matrix(TEXT.replace("same: {}", scenario), "few.yaml").scenarios["round"]
    assert experiment.links["one"].rate == experiment.link.rate == 10_000_000


@pytest.mark.parametrize("path", shipped_matrices().values(), ids=lambda path: path.stem)
def test_shipped_matrices_are_valid_and_named_like_their_files(path: Path) -> None:
    matrix = load_matrix(path)
    assert matrix.name == path.stem
    assert matrix.description
    for experiment in matrix.scenarios.values():
        assert parse_experiment(experiment.to_yaml(), "again.yaml") == experiment


@mistakes(
    ("scenarios:", "scenario:", "f.yaml:8: scenario: no such field; did you mean scenarios?"),
    ("  same: {}", "  a b: {}", "f.yaml:9: scenarios.a b: 'a b' is taken already, or no name"),
    ("queue: 30kB", "queue: x", "f.yaml:10: scenarios.other.link.queue: 'x' is not a size"),
    ("[1, 3]", "3", "f.yaml:11: scenarios.many.each.jobs.count: must be a list of values."),
    ("[1, 3]", "[3, 3]", "f.yaml:11: scenarios.many: 'many-50mbit-3' is taken already"),
    ("experiment: delay", "experiment: none", "There is no experiment 'none'"),
    ("slope: [1, 2]", "slop: [1]", "f.yaml:13: scenarios.sweep.variants.mltcp.slop: no such field"),
)
def test_a_mistake_is_named_with_file_line_and_field(old: str, new: str, complaint: str) -> None:
    assert refusal(parse_matrix, TEXT, old, new).startswith(complaint)


def test_unknown_names_are_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError, match="'none', shipped or as a file; `mltcp testbed list`"):
        find_matrix("none")
    with pytest.raises(UsageError, match="hard-scenarios is a matrix of experiments"):
        find_experiment("hard-scenarios")
    with pytest.raises(UsageError, match="no scenario 'none'; there are same, other"):
        chosen(few(), ["none"], [])
    with pytest.raises(UsageError, match="no variant 'bbr'; there are cubic, mltcp, reno"):
        chosen(few(), [], ["reno", "bbr"])
    with pytest.raises(UsageError, match="no variant 'cubic' in same; there are mltcp, reno"):
        chosen(few(), ["same"], ["reno", "cubic"])
    with pytest.raises(UsageError, match="scenario same has none of the variants cubic"):
        chosen(few(), [], ["cubic"])
    assert [each[0] for each in chosen(few(), ["other"], [])] == ["other"]
    assert {tuple(variants) for _, _, variants in chosen(few(), [], ["reno"])} == {("reno",)}


def write_run(experiment: Experiment, folder: Path, outcome: str = "finished") -> None:
    """A run folder of an experiment, as far as a matrix looks into it."""
    make_run(folder, yaml.safe_load(experiment.to_yaml()) | {"jobs": run_document(2)["jobs"]})
    (folder / "experiment.yaml").write_text(experiment.to_yaml())
    environment = {"schema": "mltcp-environment/1", "outcome": outcome}
    (folder / "environment.json").write_text(json.dumps(environment))


def test_what_is_finished_is_not_run_again(tmp_path: Path) -> None:
    scenarios = {name: few().scenarios[name] for name in ("same", "other", "many-1gbit-3")}
    ran: list[str] = []

    def run(experiment: Experiment, folder: Path) -> None:
        assert not folder.exists()
        ran.append(experiment.name)
        if experiment.name == "other":
            raise HostError("It isn't available.")
        write_run(experiment, folder)

    said: list[str] = []
    problems: dict[str, str] = {}
    run_matrix(scenarios, tmp_path, run, said.append, problems)
    assert ran == ["same", "other", "many-1gbit-3"]
    assert problems == {"other": "It isn't available."}
    write_run(scenarios["same"], tmp_path / "same", outcome="interrupted")
    run_matrix(scenarios, tmp_path, run, said.append, problems)
    assert ran[3:] == ["same", "other"]
    assert said[-1] != said[-2]
    changed = scenarios | {"same": few().scenarios["same"].override(iterations=8)}
    with pytest.raises(UsageError, match="same isn't a run of this scenario as it is now"):
        run_matrix(changed, tmp_path, run, said.append, problems)
    assert len(ran) == 5


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A matrix of two scenarios that were run and one that couldn't be."""
    folder = tmp_path_factory.mktemp("runs")
    variants = {"cubic": "cubic", "reno": "reno", "mltcp": "mltcp"}
    for name, jobs in (("two", 2), ("four", 4)):
        make_run(folder / name, run_document(jobs, variants))
        environment = {"schema": "mltcp-environment/1", "outcome": "finished"}
        (folder / name / "environment.json").write_text(json.dumps(environment))
    descriptions = {"two": "", "four": "four of them", "none": ""}
    return folder, save_matrix(folder, "made-up", descriptions, {"none": "No netem here."})


def test_the_table_of_a_matrix(matrix: tuple[Path, dict[str, Any]]) -> None:
    _, document = matrix
    assert list(document["scenarios"]) == ["two", "four", "none"]
    assert document["scenarios"]["none"]["problem"] == "No netem here."
    entry = document["scenarios"]["four"]
    own, reno = entry["variants"]["mltcp"], entry["variants"]["reno"]
    assert own["mean_s"] == pytest.approx(entry["bound"]["mean_s"])
    assert own["captured_gain"]["value"] == pytest.approx(1.0)
    assert own["base"] == "reno"
    assert own["over_base"]["value"] == pytest.approx(own["mean_s"] / reno["mean_s"])
    assert own["over_base"]["low"] < own["over_base"]["value"] < own["over_base"]["high"]
    assert (own["slower"], own["best_mean"], own["best_p99"]) == (False, True, True)
    assert (reno["slower"], reno["best_mean"], reno["over_base"]) == (None, None, None)


def test_what_is_written(matrix: tuple[Path, dict[str, Any]]) -> None:
    folder, document = matrix
    assert json.loads((folder / "matrix.json").read_text()) == document
    text = (folder / "matrix.txt").read_text()
    assert text == render_matrix_text(document)
    fits(text)
    assert "mltcp: best mean in 2 and best p99 in 2 of 2 scenarios" in text
    assert "No netem here." in text
