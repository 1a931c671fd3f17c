# SPDX-License-Identifier: BSD-2-Clause
"""Microsecond timestamps on this host's routes: set on request, recorded before, and taken back.

What is recorded is which routes of which network namespace had none before, in RUN_DIR/routes.
Taking back leaves the rest of a route as it is by then, and routes that are gone alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mltcp_tools.base.errors import HostError
from mltcp_tools.kernel.host.locks import RUN_DIR, exclusive
from mltcp_tools.kernel.host.namespaces import entered, net_namespaces
from mltcp_tools.kernel.host.routes import Route, leading_to, routes, set_fine
from mltcp_tools.kernel.host.state_dir import TrustedFolder, boot_id, distrust
from mltcp_tools.live.attach import privileges

ROUTES_DIR = RUN_DIR / "routes"
LOCK = "routes"
"""Name of the lock (mltcp_tools.kernel.host.locks) of whoever changes routes or their record."""

VERSION = 1
"""Of the record; one of another version is refused."""

_FILE = "fine-stamps.json"
_HERE = Path("/proc/thread-self/ns/net")


@dataclass(frozen=True)
class FineRoute:
    """A route that was given microsecond timestamps. netns: inode of its network namespace; see
    Route."""

    netns: int
    family: int
    destination: str
    table: int
    tos: int
    priority: int

    @classmethod
    def of(cls, route: Route) -> FineRoute:
        """The route of the calling thread's network namespace."""
        return cls(
            os.stat(_HERE).st_ino,
            *(int(route.family), route.destination, route.table, route.tos, route.priority),
        )

    def is_of(self, route: Route) -> bool:
        """Return whether it is that route of the calling thread's network namespace."""
        return self == FineRoute.of(route)


def recorded(directory: Path = ROUTES_DIR) -> list[FineRoute]:
    """The routes with microsecond timestamps of ours, since this boot.

    Raises HostError for a record that isn't trusted or valid, with what to do.
    """
    data = TrustedFolder(directory).read(_FILE)
    if data is None:
        return []
    try:
        document = json.loads(data)
        if document["version"] != VERSION:
            raise ValueError(f"it has another version, not {VERSION}")
        found = [FineRoute(**each) for each in document["routes"]]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise distrust(directory / _FILE, f"it is no record of routes ({error})") from None
    return found if document.get("boot_id") == boot_id() else []


@contextlib.contextmanager
def given(destinations: Iterable[str], directory: Path = ROUTES_DIR) -> Iterator[list[str]]:
    """Give the routes to these destinations microsecond timestamps, unless the block within fails.

    destinations: addresses, networks or `default`, looked up in this network namespace. Yields the
    routes that had none, as text. Raises HostError or UsageError, and then no route is changed.
    """
    privileges.require_capabilities()
    with exclusive(LOCK):
        chosen = {route for each in destinations for route in leading_to(each) if not route.fine}
        before = recorded(directory)
        ours = [FineRoute.of(each) for each in chosen]
        _record([*before, *(each for each in ours if each not in before)], directory)
        try:
            for route in chosen:
                set_fine(route, True)
            yield sorted(each.destination for each in chosen)
        except BaseException:
            _take_back(ours)
            _record(before, directory)
            raise


@contextlib.contextmanager
def lent(destinations: Iterable[str], directory: Path = ROUTES_DIR) -> Iterator[list[str]]:
    """As `given`, until the block ends, however it does. What was recorded before stays."""
    before = recorded(directory)
    with given(destinations, directory) as names:
        ours = [each for each in recorded(directory) if each not in before]
    try:
        yield names
    finally:
        take_back(directory, ours)


def take_back(directory: Path = ROUTES_DIR, only: Collection[FineRoute] | None = None) -> list[str]:
    """Take the microsecond timestamps off recorded routes, all or `only` some; those, as text.

    Raises HostError where a route stays, which then stays recorded.
    """
    if not (directory / _FILE).exists():
        return []
    with exclusive(LOCK):
        left = recorded(directory)
        done = []
        try:
            for each in [each for each in left if only is None or each in only]:
                done += _take_back([each])
                left.remove(each)
        finally:
            _record(left, directory)
        return done


def _take_back(fine: Iterable[FineRoute]) -> list[str]:
    done = []
    for each in fine:
        with _inside(each.netns) as there:
            for route in routes() if there else ():
                if each.is_of(route) and route.fine:
                    set_fine(route, False)
                    done.append(route.destination)
    return done


@contextlib.contextmanager
def _inside(netns: int) -> Iterator[bool]:
    """Work in that network namespace; False where it is gone, and its routes with it."""
    if netns == os.stat(_HERE).st_ino:
        yield True
        return
    found = next((each for each in net_namespaces() if each.inode == netns), None)
    if found is None:
        yield False
        return
    try:
        with entered(found.path):
            yield True
    except PermissionError:
        raise HostError(
            f"Routes of {found.name} still have microsecond timestamps; run it as root (sudo) of"
            f" the"
            " host."
        ) from None


def _record(fine: list[FineRoute], directory: Path) -> None:
    folder = TrustedFolder(directory)
    if not fine:
        folder.remove(_FILE)
        return
    head = {"version": VERSION, "boot_id": boot_id()}
    folder.write(_FILE, json.dumps(head | {"routes": [dataclasses.asdict(each) for each in fine]}))
