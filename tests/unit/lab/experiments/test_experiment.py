# SPDX-License-Identifier: BSD-2-Clause
"""Experiment files: what they mean, what is refused and how, and the draws that follow."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from support.mistakes import mistakes, refusal

from mltcp_tools.base.errors import UsageError
from mltcp_tools.lab import experiments
from mltcp_tools.lab.emulator.compression import Compression
from mltcp_tools.lab.emulator.job import compute_times
from mltcp_tools.lab.experiments.experiment import Experiment
from mltcp_tools.lab.experiments.jobs import JOB_FIELDS, ExperimentJob, Straggler
from mltcp_tools.lab.experiments.links import Link
from mltcp_tools.lab.experiments.neighbours import Neighbour
from mltcp_tools.lab.experiments.reading import (
    load_experiment,
    parse_experiment,
    shipped_experiments,
)
from mltcp_tools.lab.experiments.tasks import (
    neighbour_tasks,
    schedule,
    total_iterations,
)
from mltcp_tools.lab.experiments.variants import ALONE

FULL = """\
name: full
description: every field
link: {rate: 200mbit, queue: 30kB, delay: 2ms, aqm: red}
sysctls: {net.ipv4.tcp_slow_start_after_idle: 1}
jobs:
  - {name: job, count: 2, bytes: 2.5MB, compute: 340ms, jitter: 5%, flows: 2, bursts: 5,
     start: random, direction: both, straggler: {every: 20, factor: 2}, compress: {cost: 2ms}}
  - {name: other, bytes: 64KiB, compute: 100ms, start: 10ms, iterations: 300}
neighbours:
  - {name: bulk, cc: bbr, count: 2}
  - {name: rpc, cc: variant, size: 20kB, think: 30ms, jitter: 20%}
variants:
  cubic: {cc: cubic}
  steep: {cc: mltcp, slope: 2, intercept: 0.5, mechanisms: [increase, yield]}
baseline: steep
iterations: 60
repetitions: 2
seed: 7
alone: {iterations: 10}
"""
SMALL = """\
name: small
jobs:
  - {bytes: 1MB, compute: 100ms}
variants:
  reno: {cc: reno}
"""


def full() -> Experiment:
    return parse_experiment(FULL, "full.yaml")


def test_every_field_is_read() -> None:
    experiment = full()
    first, second, other = experiment.jobs
    assert experiment.link == Link(200_000_000, 30_000, 0.002, "red")
    assert experiment.sysctls == {"net.ipv4.tcp_slow_start_after_idle": "1"}
    assert first == ExperimentJob(
        "job-1",
        2_500_000,
        0.34,
        0.05,
        2,
        5,
        None,
        "both",
        Straggler(20, 2.0),
        None,
        compress=Compression(0.25, 0.002),
    )
    assert second == dataclasses.replace(first, name="job-2")
    assert (other.bytes, other.start, other.iterations) == (65536, 0.01, 300)
    assert experiment.variants[1].parameters == {
        "slope": 2.0,
        "intercept": 0.5,
        "mechanisms": ("increase", "yield"),
    }
    assert experiment.neighbours == (
        Neighbour("bulk-1", "bbr"),
        Neighbour("bulk-2", "bbr"),
        Neighbour("rpc", "variant", 20_000, 0.03, 0.2),
    )
    assert (experiment.baseline, experiment.iterations, experiment.repetitions) == ("steep", 60, 2)
    assert (experiment.seed, experiment.alone_iterations) == (7, 10)


@pytest.mark.parametrize("text", [FULL, SMALL])
def test_the_resolved_file_loads_again_and_is_equal(text: str) -> None:
    experiment = parse_experiment(text, "a.yaml")
    again = parse_experiment(experiment.to_yaml(), "b.yaml")
    assert again == experiment
    assert again.to_yaml() == experiment.to_yaml()


@pytest.mark.parametrize("path", shipped_experiments().values(), ids=lambda path: path.stem)
def test_shipped_experiments_are_valid_and_named_as_files(path: Path) -> None:
    experiment = load_experiment(path)
    assert experiment.name == path.stem
    assert experiment.description
    assert parse_experiment(experiment.to_yaml(), "again.yaml") == experiment


@mistakes(
    ("name: full", "", "f.yaml:2: name: missing"),
    ("name: full", "name: a b", "f.yaml:1: name: 'a b' is not a name"),
    ("200mbit", "200", "f.yaml:3: link.rate: 200 is not a rate, as it has no unit; write"),
    ("30kB", "3kB", "f.yaml:3: link.queue: '3kB' is outside 3028 to"),
    (
        "delay: 2ms",
        "loss: 1%, qdisc: fq",
        "f.yaml:3: link.qdisc: the hosts' `qdisc` is where `loss` is made; keep one of them.",
    ),
    ("delay: 2ms", "mtu: 15kB", "f.yaml:3: link.queue: must hold two packets of the link's `mtu`."),
    ("aqm: red", "aqn: red", "f.yaml:3: link.aqn: no such field; did you mean aqm? Allowed"),
    ("{rate: 200mbit, queue: 30kB, delay: 2ms, aqm: red}", "[1]", "f.yaml:3: link: must be a"),
    ("net.ipv4.tcp_slow_start_after_idle", "vm.swappiness", "f.yaml:4: sysctls.vm.swappiness"),
    (
        "net.ipv4.tcp_slow_start_after_idle: 1",
        "net.ipv4.tcp_congestion_control: reno",
        "f.yaml:4: sysctls.net.ipv4.tcp_congestion_control: a namespace's default is never",
    ),
    ("bytes: 2.5MB, ", "", "f.yaml:6: jobs[1].bytes: missing"),
    ("bytes: 2.5MB", "bytes: 100B", "f.yaml:6: jobs[1]: Not a possible job: bytes per iter"),
    ("count: 2", "count: 500", "f.yaml:6: jobs[1]: makes more than 200 jobs"),
    ("name: other", "name: job-2", "f.yaml:8: jobs[2].name: another one is called 'job-2'"),
    ("size: 20kB, ", "", "f.yaml:11: neighbours[2].think: belongs to requests; give their"),
    ("flows: 2", "flows: 2, split: [1]", "f.yaml:6: jobs[1]: Not a possible job: the split"),
    ("{cc: cubic}", "{cc: mltcp_}", "f.yaml:13: variants.cubic.cc: 'mltcp_' is not one of mltcp,"),
    ("{cc: cubic}", "{cc: cubic, slope: 1}", "f.yaml:13: variants.cubic.slope: cubic takes no par"),
    ("cubic: {cc", "alone: {cc", "f.yaml:13: variants.alone: 'alone' is kept for"),
    ("slope: 2", "slope: 9", "f.yaml:14: variants.steep.slope: slope is 9.0; it must be 0 to 8"),
    ("baseline: steep", "baseline: reno", "f.yaml:15: baseline: 'reno' is not one of cubic, s"),
    ("name: full", "name: \0", "f.yaml: not valid YAML"),
    ("name: full", "name: " + 2000 * "[", "f.yaml: not readable: lists"),
    ("seed: 7", "seed: 2001-13-01", "f.yaml:18: seed: '2001-13-01' can't be read as a value."),
    ("seed: 7", "seed: &a [*a]", "f.yaml:18: seed: a list can't be read as a value."),
)
def test_a_mistake_is_named_with_file_line_and_field(old: str, new: str, complaint: str) -> None:
    assert refusal(parse_experiment, FULL, old, new).startswith(complaint)


@pytest.mark.parametrize("text", ["", "[]", "just a word", "name: x", "name: x\njobs: []\n"])
def test_a_file_that_is_no_experiment_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"^f\.yaml:\d+: "):
        parse_experiment(text, "f.yaml")


def test_draws_depend_on_repetition_and_job_only() -> None:
    experiment = parse_experiment(FULL.replace("count: 2", "count: 3"), "f.yaml")
    job, twin = experiment.jobs[0], experiment.jobs[1]
    seeds = {experiment.job_seed(r, j) for r in (1, 2) for j in experiment.jobs}
    assert len(seeds) == 2 * len(experiment.jobs)
    delays = [experiment.start_delay(1, job), experiment.start_delay(1, twin)]
    assert delays[0] != delays[1]
    assert experiment.start_delay(1, job) == delays[0] != experiment.start_delay(2, job)
    lone = job.compute + job.bytes * 8 / experiment.link.rate
    assert all(0 <= delay < lone for delay in delays)
    assert experiment.override(seed=8).job_seed(1, job) != experiment.job_seed(1, job)
    spec = job.spec(iterations=5, seed=experiment.job_seed(1, job))
    assert list(compute_times(spec)) == list(compute_times(spec))


def test_neighbours_run_behind_the_jobs_but_not_in_alone() -> None:
    experiment = full()
    cubic, steep = experiment.variants
    tasks = neighbour_tasks(experiment, cubic, 1)
    assert [(task.name, task.sender, task.spec.cc) for task in tasks] == [
        ("bulk-1", 3, "bbr"),
        ("bulk-2", 4, "bbr"),
        ("rpc", 5, "cubic"),
    ]
    assert [task.spec.cc for task in neighbour_tasks(experiment, steep, 1)] == [
        "bbr",
        "bbr",
        "mltcp",
    ]
    assert neighbour_tasks(experiment, experiment.variant(ALONE), 1) == []
    assert len({task.spec.seed for task in tasks}) == 3
    assert list(experiment.congestion_controls()) == ["mltcp", "cubic", "bbr"]


def test_the_command_line_overrides() -> None:
    experiment = full().override(
        variants=("cubic",), iterations=6, repetitions=1, seed=3, alone=False
    )
    assert [variant.name for variant in experiment.variants] == ["cubic"]
    assert experiment.baseline == "cubic"  # the one the file names was left out
    assert (experiment.iterations, experiment.repetitions, experiment.seed) == (6, 1, 3)
    assert experiment.alone_iterations == 0
    assert [experiment.iterations_of(job) for job in experiment.jobs] == [6, 6, 30]
    assert parse_experiment(experiment.to_yaml(), "again.yaml") == experiment
    with pytest.raises(UsageError, match="no variant 'bbr'; it has cubic, steep"):
        full().override(variants=("bbr",))


def test_equal_jobs_are_measured_alone_once() -> None:
    assert [job.name for job in full().isolated_jobs()] == ["job-1", "other"]


def test_variants_run_in_alternating_order() -> None:
    experiment = full().override(repetitions=4)
    order = [names for _, names in schedule(experiment)]
    assert order == [
        [ALONE, "cubic", "steep"],
        ["steep", "cubic", ALONE],
        ["cubic", "steep", ALONE],
        [ALONE, "steep", "cubic"],
    ]
    assert next(names for _, names in schedule(experiment.override(alone=False))) == [
        "cubic",
        "steep",
    ]
    assert total_iterations(experiment) == 4 * (2 * (60 + 60 + 300) + 2 * 10)


def test_flows_that_are_not_attached_take_no_parameters() -> None:
    selected = "selected: {cc: mltcp, attached: false}"
    (variant,) = parse_experiment(SMALL.replace("reno: {cc: reno}", selected), "s").variants
    assert variant.document() == {"cc": "mltcp", "attached": False}
    with pytest.raises(UsageError, match="aren't attached have no job"):
        parse_experiment(SMALL.replace("reno: {cc: reno}", selected[:-1] + ", slope: 2}"), "s")


def test_readme_describes_each_field_of_a_job() -> None:
    readme = Path(experiments.__file__).with_name("README.md").read_text()
    assert [field for field in JOB_FIELDS if f"`{field}`" not in readme] == []
