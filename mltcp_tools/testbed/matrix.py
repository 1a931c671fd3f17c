"""Matrices: several experiments that differ in little, the mixes, run one after another.

    name: hard-mixes
    description: one line
    defaults:
      jobs: [{count: 4, bytes: 2.5MB, compute: 340ms, jitter: 5%, start: random}]
      arms: {reno: {cc: reno}, mltcp: {cc: mltcp}}
      iterations: 40
    mixes:
      as-they-are: {}
      lockstep: {jobs: [{count: 4, bytes: 2.5MB, compute: 340ms}]}
      rates: {each: {link.rate: [50mbit, 100mbit], link.queue: [10kB, 30kB]}}
      delay: {experiment: delay, iterations: 30}

Every mix is an experiment (experiment.py) made of the defaults, then of the file or shipped
experiment it names, then of its own fields; the defaults may name an experiment, too. `link`,
`sysctls` and `alone` are overlaid field by field, everything else as a whole. With `each` a mix
stands for several (each.py).

Each mix has its run folder, called as itself, in the matrix's folder. A mix that is finished there
isn't run again, so a matrix that was interrupted goes on where it was.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from mltcp_tools.document import Section, read_section
from mltcp_tools.errors import MltcpError, UsageError
from mltcp_tools.testbed import values
from mltcp_tools.testbed.each import EACH, expand, put
from mltcp_tools.testbed.experiment import Experiment
from mltcp_tools.testbed.reading import (
    FIELDS,
    find_experiment,
    load_experiment,
    named_or_path,
    read_experiment,
    shipped_matrices,
)

_OVERLAID = ("link", "sysctls", "alone")
_MIX_FIELDS = [*(name for name in FIELDS if name != "name"), "experiment", EACH]


@dataclass(frozen=True)
class Matrix:
    """The mixes by name, in the file's order."""

    name: str
    description: str
    mixes: dict[str, Experiment]


def find_matrix(name_or_path: str) -> Path:
    """The file of a shipped matrix's name or of a path; a UsageError if there is neither."""
    return named_or_path(name_or_path, shipped_matrices(), "matrix")


def load_matrix(path: Path | str) -> Matrix:
    """Read and validate the matrix in `path`; a UsageError names file, line and field."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: can't be read ({error}).") from None
    return parse_matrix(text, str(path))


def parse_matrix(text: str, file: str) -> Matrix:
    """A matrix from YAML `text`; `file` is its name for messages."""
    top = read_section(text, file, ["name", "description", "defaults", "mixes"])
    name = top.get("name", values.name)
    defaults = top.section("defaults", _MIX_FIELDS[:-1])
    entries = top.section("mixes", None)
    if entries is None or not list(entries):
        raise top.error("missing; name at least one, for example `mixes: {one: {}}`.", "mixes")
    mixes: dict[str, Experiment] = {}
    for entry in entries:
        own = entries.section(entry, _MIX_FIELDS)
        assert own is not None
        merged = own.of(_overlaid(defaults, own), own.path, [*FIELDS, EACH])
        for mix, node in expand(entry, merged):
            if not values.NAME.fullmatch(mix) or mix in mixes:
                raise entries.error(
                    f"{mix!r} is taken already, or no name of {values.NAME_IS}.",
                    entry,
                )
            title = yaml.ScalarNode("tag:yaml.org,2002:str", mix, node.start_mark)
            mixes[mix] = read_experiment(own.of(put(node, ["name"], title), own.path, FIELDS))
    return Matrix(name, top.get("description", str, ""), mixes)


def _overlaid(defaults: Section | None, own: Section) -> yaml.MappingNode:
    """What the defaults, the experiments named and a mix's own fields make together."""
    layers: list[dict[str, yaml.Node]] = []
    for section in (defaults, own):
        if section is None:
            continue
        if "experiment" in section:
            path = find_experiment(section.get("experiment", str))
            load_experiment(path)  # whose mistakes are to be named with its own lines
            layers.append(read_section(path.read_text(encoding="utf-8"), str(path), FIELDS).nodes)
        layers.append(section.nodes)
    node: yaml.MappingNode = yaml.MappingNode(
        "tag:yaml.org,2002:map", [], own.node.start_mark, own.node.end_mark
    )
    for layer in layers:
        for field, value in layer.items():
            if field in ("link", "links"):
                # A mix with several links has no single one, whatever the defaults say.
                other = "links" if field == "link" else "link"
                pairs = [(key, each) for key, each in node.value if key.value != other]
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
    matrix: Matrix, only: Collection[str], arms: Collection[str]
) -> list[tuple[str, Experiment, list[str]]]:
    """The mixes called for, each with those of its arms that are called for; empty: all.

    Raises UsageError where there is no such mix, or a mix has none of the arms.
    """
    for name in only:
        if name not in matrix.mixes:
            raise UsageError(
                f"matrix {matrix.name} has no mix {name!r}; it has {', '.join(matrix.mixes)}."
            )
    found = []
    for name, experiment in matrix.mixes.items():
        own = [arm.name for arm in experiment.arms if arm.name in arms]
        if only and name not in only:
            continue
        if arms and not own:
            raise UsageError(
                f"mix {name} has none of the arms {', '.join(arms)}; leave it out with --only."
            )
        found.append((name, experiment, own))
    return found


def finished(folder: Path, experiment: Experiment) -> bool:
    """Whether `folder` has the whole run of `experiment`; UsageError if it has something else."""
    if not folder.exists():
        return False
    try:
        written = (folder / "experiment.yaml").read_text(encoding="utf-8")
    except OSError:
        written = ""
    if written != experiment.to_yaml():
        raise UsageError(
            f"{folder} isn't a run of this mix as it is now; name another folder with -o, or remove"
            " that one."
        )
    try:
        environment = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(environment, dict) and environment.get("outcome") == "finished"


def run_matrix(
    mixes: Mapping[str, Experiment],
    folder: Path,
    run: Callable[[Experiment, Path], None],
    say: Callable[[str], None],
    problems: dict[str, str],
) -> None:
    """Run those `mixes` that `folder` doesn't have yet; `problems` gets why one has no result.

    `run` runs an experiment into a run folder. What an interrupted run of a mix left is removed.
    Raises UsageError, before anything is run, where a mix's folder holds something else.
    """
    done = {name for name, experiment in mixes.items() if finished(folder / name, experiment)}
    for number, (name, experiment) in enumerate(mixes.items(), 1):
        title = f"mix {number}/{len(mixes)} {name}"
        if name in done:
            say(f"{title}: finished before")
            continue
        say(f"{title}: {experiment.description}")
        if (folder / name).exists():
            shutil.rmtree(folder / name)
        try:
            run(experiment, folder / name)
        except MltcpError as error:
            problems[name] = str(error)
            say(f"{title}: {error}")
