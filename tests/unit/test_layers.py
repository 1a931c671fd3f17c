# SPDX-License-Identifier: BSD-2-Clause
"""Imports run down: front, clusters, lab, collectives, live, kernel, base; none in a circle."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from support.extras import optional

import mltcp_tools

PACKAGE = Path(mltcp_tools.__file__).parent
WINGS = (
    {"cli", "doctor"},
    {"clusters"},
    {"lab"},
    # Imported in training jobs, so it needs nothing of the lab, which compares its ways.
    {"collectives"},
    {"live"},
    {"kernel"},
    # hooks is what users import; it may be copied into any image, so it imports nothing of ours.
    {"base", "hooks", "__init__"},
)
FLOOR = {part: number for number, parts in enumerate(WINGS) for part in parts}
STARTERS = {"lab.collectives.bench_here"}
"""Modules that pass on a name which their own callers write out."""
STRANGERS = {
    ("lab.testbed", "lab.simulator"),
    ("lab.simulator", "lab.testbed"),
    ("lab.analysis", "kernel.backends"),
    ("clusters", "collectives"),
    ("collectives", "clusters"),
}
"""Pairs of rooms of which the first may not import the second."""
THEIR_ROOMS = {
    "torch": {"collectives", "lab.collectives", "clusters"},
    "ray": {"clusters"},
    "bcc": set[str](),
}
"""Packages that most hosts lack, and the rooms that may import them at a module's top."""


def module_of(file: Path) -> str:
    """The module's name below the package; a package's own file is the package."""
    parts = file.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and parts[1:] else parts)


@cache
def modules() -> dict[str, Path]:
    return {module_of(file): file for file in PACKAGE.rglob("*.py")}


def names_in(tree: ast.AST) -> Iterator[str]:
    """Full names of what is imported anywhere in the file, or named in a string of its own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value  # `python -m NAME` is an import, too


@cache
def edges() -> frozenset[tuple[str, str]]:
    """(module, module that it imports), each below the package."""
    found = set()
    for module, file in modules().items():
        for name in names_in(ast.parse(file.read_text())):
            head, _, rest = name.partition(".")
            while head == "mltcp_tools" and rest:
                if rest in modules():
                    found.add((module, rest))
                    break
                rest = rest.rpartition(".")[0]
    return frozenset((a, b) for a, b in found if a != b)


def room_of(module: str) -> str:
    """Return where a module stands: a wing's room, or what has no rooms."""
    wing, _, rest = module.partition(".")
    return f"{wing}.{rest.split('.')[0]}" if rest and wing in ("kernel", "live", "lab") else wing


def circle(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """One circle of these, or nothing."""
    graph: dict[str, set[str]] = {}
    for a, b in pairs:
        graph.setdefault(a, set()).add(b)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_everything_stands_in_a_wing() -> None:
    assert {module.split(".")[0] for module in modules()} == set(FLOOR)


def test_imports_run_down() -> None:
    floors = [(a, b, FLOOR[a.split(".")[0]], FLOOR[b.split(".")[0]]) for a, b in edges()]
    assert not [(a, b) for a, b, above, below in floors if above > below]


def test_programs_are_started_by_a_name_that_is_written_out() -> None:
    """`module_command("mltcp_tools.NAME", …)`: so the tests above see whom it starts."""
    known = modules()
    for module, file in known.items():
        for node in ast.walk(ast.parse(file.read_text())):
            assert not is_flag(node) or module == "kernel.host.programs", module
            if not (isinstance(node, ast.Call) and ast.unparse(node.func) == "module_command"):
                continue
            if module in STARTERS:
                continue
            started = node.args[0]
            assert isinstance(started, ast.Constant), module
            head, _, name = str(started.value).partition(".")
            if head == "mltcp_tools":
                assert f"{name}.__main__" in known or name in known, module


def is_flag(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value == "-m"


def test_strangers_do_not_import_each_other() -> None:
    assert not [(a, b) for a, b in edges() if (room_of(a), room_of(b)) in STRANGERS]


def test_no_circle_of_rooms() -> None:
    rooms = {(room_of(a), room_of(b)) for a, b in edges()}
    assert not circle((a, b) for a, b in rooms if a != b)


def test_no_circle_of_files() -> None:
    assert not circle(edges())


def test_what_most_hosts_lack_is_imported_where_it_is_used() -> None:
    for module, file in modules().items():
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                lacking = {name.split(".")[0] for name in names_in(node)} & set(THEIR_ROOMS)
                assert all(room_of(module) in THEIR_ROOMS[name] for name in lacking), file


BARE = """
import importlib, sys
refused = sys.argv[1].split(",")
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if any(name == each or name.startswith(each + ".") for each in refused):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Refuse())
for name in sys.argv[2:]:
    importlib.import_module(name)
"""
EXTRAS = tuple(sorted({name.replace("-", "_") for names in optional().values() for name in names}))
ABOVE = ("lab", "clusters", "collectives", "cli", "doctor")


def test_what_operators_run_needs_no_extra_and_nothing_above_it() -> None:
    refused = ",".join((*EXTRAS, *(f"mltcp_tools.{wing}" for wing in ABOVE)))
    wanted = [name for name in modules() if name.split(".")[0] in ("kernel", "live")]
    assert_imports(refused, wanted)


def test_operators_commands_need_no_extra() -> None:
    commands = ("agent", "attach", "detach", "doctor", "flows", "jobs", "load", "priorities")
    commands += ("connections", "lab", "record", "serve", "status", "trial", "unload", "watch")
    assert_imports(",".join(EXTRAS), ["cli.main", "doctor", *(f"cli.{each}" for each in commands)])


def assert_imports(refused: str, wanted: list[str]) -> None:
    names = [f"mltcp_tools.{name}" for name in wanted]
    run = subprocess.run(
        [sys.executable, "-c", BARE, refused, *names], capture_output=True, text=True
    )
    assert (run.returncode, run.stderr) == (0, "")
