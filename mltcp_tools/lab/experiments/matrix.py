# SPDX-License-Identifier: BSD-2-Clause
"""Matrices: several experiments that differ in little, the scenarios, run one after another.

    name: hard-scenarios
    description: one line
    defaults:
      jobs: [{count: 4, bytes: 2.5MB, compute: 340ms, jitter: 5%, start: random}]
      variants: {reno: {cc: reno}, mltcp: {cc: mltcp}}
      iterations: 40
    scenarios:
      as-they-are: {}
      lockstep: {jobs: [{count: 4, bytes: 2.5MB, compute: 340ms}]}
      rates: {each: {link.rate: [50mbit, 100mbit], link.queue: [10kB, 30kB]}}
      delay: {experiment: delay, iterations: 30}

Every scenario is an experiment (experiment.py) made of the defaults, then of the file or shipped
experiment it names, then of its own fields; the defaults may name an experiment, too. What the
defaults say of how much is run (`iterations`, `repetitions`, `seed`, `alone`) also holds where a
scenario names an experiment. `link`, `sysctls` and `alone` are overlaid field by field, everything
else as a whole. With `each` a scenario stands for several (each.py).

Each scenario has its run folder, called as itself, in the matrix's folder. A scenario that is
finished there isn't run again, so a matrix that was interrupted goes on where it was.
"""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import yaml

from mltcp_tools.base import values
from mltcp_tools.base.document import Section, read_section
from mltcp_tools.base.errors import MltcpError, UsageError
from mltcp_tools.kernel.host.lifetime import die_with_parent
from mltcp_tools.lab.experiments.each import EACH, expand, put
from mltcp_tools.lab.experiments.experiment import Experiment
from mltcp_tools.lab.experiments.reading import (
    FIELDS,
    find_experiment,
    load_experiment,
    named_or_path,
    read_experiment,
    read_file,
    shipped_matrices,
)

_NETWORKS = {"link", "links", "fabric"}
_OVERLAID = ("link", "sysctls", "alone")
_EXTENT = ("iterations", "repetitions", "seed", "alone")
_FIELDS = ["name", "description", "defaults", "scenarios"]
_MIX_FIELDS = [*(name for name in FIELDS if name != "name"), "experiment", EACH]


@dataclass(frozen=True)
class Matrix:
    """The scenarios by name, in the file's order."""

    name: str
    description: str
    scenarios: dict[str, Experiment]


def find_matrix(name_or_path: str) -> Path:
    """The file of a shipped matrix's name or of a path; a UsageError if there is neither."""
    return named_or_path(name_or_path, shipped_matrices(), "matrix")


def is_matrix(name_or_path: str) -> bool:
    """Return whether `name_or_path` is a shipped matrix, or a file that has scenarios."""
    if name_or_path in shipped_matrices():
        return True
    try:
        document = yaml.safe_load(Path(name_or_path).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return False  # which is said by who reads it as an experiment
    return isinstance(document, dict) and "scenarios" in document


def load_matrix(path: Path | str) -> Matrix:
    """Read and validate the matrix in `path`; a UsageError names file, line and field."""
    return parse_matrix(read_file(path), str(path))


def parse_matrix(text: str, file: str) -> Matrix:
    """A matrix from YAML `text`; `file` is its name for messages."""
    top = read_section(text, file, _FIELDS)
    name = top.get("name", values.name)
    defaults = top.section("defaults", _MIX_FIELDS[:-1])
    return Matrix(name, top.get("description", str, ""), _read_scenarios(top, defaults))


def _read_scenarios(top: Section, defaults: Section | None) -> dict[str, Experiment]:
    """The scenarios, each laid over the defaults."""
    entries = top.section("scenarios", None)
    if entries is None or not list(entries):
        raise top.error(
            "missing; name at least one, for example `scenarios: {one: {}}`.", "scenarios"
        )
    scenarios: dict[str, Experiment] = {}
    for entry in entries:
        own = entries.section(entry, _MIX_FIELDS)
        assert own is not None
        merged = top.of(_overlaid(own, defaults, own), own.path, [*FIELDS, EACH])
        for scenario, node in expand(entry, merged):
            if not values.NAME.fullmatch(scenario) or scenario in scenarios:
                raise entries.error(
                    f"{scenario!r} is taken already, or no name of {values.NAME_IS}.",
                    entry,
                )
            title = yaml.ScalarNode("tag:yaml.org,2002:str", scenario, node.start_mark)
            scenarios[scenario] = read_experiment(
                top.of(put(node, ["name"], title), own.path, FIELDS)
            )
    return scenarios


def _overlaid(own: Section, *sections: Section | None) -> yaml.MappingNode:
    """Return the sections and the experiments they name, overlaid, in the place of
    `own`.
    """
    layers: list[dict[str, yaml.Node]] = []
    extent: dict[str, yaml.Node] = {}  # what sections, not the experiments they name, say of it
    for section in sections:
        if section is None:
            continue
        if "experiment" in section:
            path = find_experiment(section.get("experiment", str))
            load_experiment(path)  # whose mistakes are to be named with its own lines
            named = read_section(path.read_text(encoding="utf-8"), str(path), FIELDS).nodes
            layers += [named, extent]
        layers.append(section.nodes)
        extent = extent | {field: section.nodes[field] for field in _EXTENT if field in section}
    node: yaml.MappingNode = yaml.MappingNode(
        "tag:yaml.org,2002:map", [], own.node.start_mark, own.node.end_mark
    )
    for layer in layers:
        for field, value in layer.items():
            if field in _NETWORKS:
                # A scenario with several links has no single one, whatever the defaults say.
                others = _NETWORKS - {field}
                pairs = [(key, each) for key, each in node.value if key.value not in others]
                node = yaml.MappingNode(node.tag, pairs, node.start_mark, node.end_mark)
            if field == "experiment":
                continue
            if field in _OVERLAID and isinstance(value, yaml.MappingNode):
                for key, each in value.value:
                    node = put(node, [field, str(key.value)], each)
            else:
                node = put(node, [field], value)
    return node


def chosen(
    matrix: Matrix, only: Collection[str], variants: Collection[str]
) -> list[tuple[str, Experiment, list[str]]]:
    """The scenarios called for, each with those of its variants that are called for; empty: all.

    Raises UsageError where there is no such scenario or variant, or a scenario has none of these.
    """
    called = {name: one for name, one in matrix.scenarios.items() if not only or name in only}
    offered = sorted({each.name for one in called.values() for each in one.variants})
    known = {"scenario": list(matrix.scenarios), "variant": offered}
    for kind, asked in (("scenario", only), ("variant", variants)):
        for name in asked:
            if name not in known[kind]:
                place = f" in {', '.join(only)}" if only and kind == "variant" else ""
                there = f"{kind} {name!r}{place}; there are {', '.join(known[kind])}."
                raise UsageError(f"matrix {matrix.name} has no {there}")
    found = []
    for name, experiment in called.items():
        own = [variant.name for variant in experiment.variants if variant.name in variants]
        if variants and not own:
            raise UsageError(
                f"scenario {name} has none of the variants {', '.join(variants)}; leave it out with"
                f" --only."
            )
        found.append((name, experiment, own))
    return found


def finished(folder: Path, experiment: Experiment, simulated: bool = False) -> bool:
    """Return whether `folder` has the whole run of `experiment`; UsageError if it has something
    else.

    simulated: whether it is to be simulated, else measured.
    """
    if not folder.exists():
        return False
    try:
        written = (folder / "experiment.yaml").read_text(encoding="utf-8")
    except OSError:
        written = ""
    if written != experiment.to_yaml():
        raise UsageError(
            f"{folder} isn't a run of this scenario as it is now; name another folder with -o, or"
            f" remove"
            " that one."
        )
    try:
        environment = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    if not isinstance(environment, dict) or environment.get("outcome") != "finished":
        return False
    if environment.get("simulated", False) != simulated:
        raise UsageError(
            f"{folder} was {'measured' if simulated else 'simulated'}; name another folder with -o."
        )
    return True


def run_matrix(
    scenarios: Mapping[str, Experiment],
    folder: Path,
    run: Callable[[Experiment, Path], None],
    say: Callable[[str], None],
    problems: dict[str, str],
    *,
    simulated: bool = False,
) -> None:
    """Run those `scenarios` that `folder` doesn't have yet; `problems` gets why one has no result.

    `run` runs an experiment into a run folder. What an interrupted run of a scenario left is
    removed. simulated: `run` only simulates it, so that one scenario per CPU may run at a time, in
    processes of their own: `run` must be one that pickle takes. Raises UsageError, before anything
    is run, where a scenario's folder holds something else.
    """
    done = {name for name, each in scenarios.items() if finished(folder / name, each, simulated)}
    titles = {
        name: f"scenario {number}/{len(scenarios)} {name}"
        for number, name in enumerate(scenarios, 1)
    }
    for name in done:
        say(f"{titles[name]}: finished before")
    due = {name: experiment for name, experiment in scenarios.items() if name not in done}
    for name in due:
        if (folder / name).exists():
            shutil.rmtree(folder / name)

    def ended(name: str, result: Callable[[], None]) -> None:
        try:
            result()
        except MltcpError as error:
            problems[name] = str(error)
            say(f"{titles[name]}: {error}")

    if not simulated:
        for name, experiment in due.items():
            say(f"{titles[name]}: {experiment.description}")
            ended(name, functools.partial(run, experiment, folder / name))
        return
    pool = ProcessPoolExecutor(
        len(os.sched_getaffinity(0)), multiprocessing.get_context("spawn"), initializer=_end_with_us
    )
    try:
        runs = {
            pool.submit(run, experiment, folder / name): name for name, experiment in due.items()
        }
        for future in as_completed(runs):
            say(f"{titles[runs[future]]}: {due[runs[future]].description}")
            ended(runs[future], future.result)
    except KeyboardInterrupt:
        for process in multiprocessing.active_children():
            process.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _end_with_us() -> None:
    """A process of the pool: it dies with the one that made it, and leaves Ctrl-C to that one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent()
