"""Imports run down: a room of the package imports from its own floor and those below only."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from pathlib import Path

import mltcp_tools

PACKAGE = Path(mltcp_tools.__file__).parent
FLOORS = (
    {"cli"},
    {"testbed", "clusters", "collectives", "agent", "doctor"},
    {"planning", "analysis", "simulator", "observe", "priorities"},
    {"profiling", "attach", "sources"},
    {"runs", "hooks"},
    {"experiments"},
    {"backends", "emulator"},
    {"native", "host"},
    {"errors", "units", "document", "columns", "cells", "figures", "__init__"},
)
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
STRANGERS = {("testbed", "simulator"), ("simulator", "testbed"), ("analysis", "backends")}
"""Pairs of rooms of which the first may not import the second, though it stands above."""
THEIR_ROOMS = {"torch": {"collectives", "clusters"}, "ray": {"clusters"}, "bcc": set[str]()}
"""Packages that most hosts lack, and the rooms that may import them at a module's top."""


def room_of(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(tree: ast.AST) -> Iterator[str]:
    """Full names of what is imported anywhere in the file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def edges() -> set[tuple[str, str, str]]:
    """(room, imported room, file), the file relative to the package."""
    found = set()
    for file in PACKAGE.rglob("*.py"):
        for name in imported(ast.parse(file.read_text())):
            head, _, rest = name.partition(".")
            room = rest.split(".")[0]
            if head == "mltcp_tools" and room not in ("", "__version__", room_of(file)):
                found.add((room_of(file), room, str(file.relative_to(PACKAGE))))
    return found


def test_every_room_has_a_floor() -> None:
    rooms = {
        room_of(path)
        for path in PACKAGE.iterdir()
        if path.suffix == ".py" or any(path.glob("*.py"))
    }
    assert rooms <= set(FLOOR)


def test_imports_run_down() -> None:
    assert not {edge for edge in edges() if FLOOR[edge[0]] > FLOOR[edge[1]]}


def test_strangers_do_not_import_each_other() -> None:
    assert not {edge for edge in edges() if edge[:2] in STRANGERS}


def test_no_circle_within_a_floor() -> None:
    pairs = {(a, b) for a, b, _ in edges() if FLOOR[a] == FLOOR[b] < len(FLOORS) - 1}
    for rooms in FLOORS:
        for order in itertools.permutations(sorted(rooms)):
            if not any(order.index(a) > order.index(b) for a, b in pairs if {a, b} <= rooms):
                break
        else:
            raise AssertionError(f"Rooms of one floor import each other in a circle: {pairs}")


def test_what_most_hosts_lack_is_imported_where_it_is_used() -> None:
    for file in PACKAGE.rglob("*.py"):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                lacking = {name.split(".")[0] for name in imported(node)} & set(THEIR_ROOMS)
                assert all(room_of(file) in THEIR_ROOMS[name] for name in lacking), file
