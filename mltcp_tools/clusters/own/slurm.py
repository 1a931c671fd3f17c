# SPDX-License-Identifier: BSD-2-Clause
"""Slurm's lists of hosts, and the network that its topology.conf describes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from mltcp_tools.base.errors import UsageError
from mltcp_tools.lab.planning.reading import read_text

_MOST_HOSTS = 100_000
_BRACKET = re.compile(r"\[([0-9,-]+)\]")


def hosts(text: str) -> list[str]:
    """The hosts of a list such as `gpu[01-03,07],login`."""
    found: list[str] = []
    if text.count("[") != text.count("]"):
        raise UsageError(f"{text[:40]!r} is no list of hosts: a bracket is open.")
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        found += _expanded(part.strip())
        if len(found) > _MOST_HOSTS:
            raise UsageError(f"{text[:40]!r} names more than {_MOST_HOSTS} hosts.")
    return found


def _expanded(part: str) -> list[str]:
    match = _BRACKET.search(part)
    if match is None:
        if not re.fullmatch(r"[\w.-]+", part):
            raise UsageError(f"{part!r} is no host.")
        return [part]
    names: list[str] = []
    for each in match[1].split(","):
        first, _, last = each.partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            raise UsageError(f"{part!r} has a range that is none: {each!r}.")
        if int(last or first) - int(first) >= _MOST_HOSTS:
            raise UsageError(f"{part!r} names more than {_MOST_HOSTS} hosts.")
        for number in range(int(first), int(last or first) + 1):
            middle = f"{number:0{len(first)}}"
            names += _expanded(part[: match.start()] + middle + part[match.end() :])
    return names


def read_conf(
    path: Path, rate: str, uplink: str | None, gpus: Mapping[str, int]
) -> dict[str, object]:
    """The section `cluster` of a workload, from a topology.conf: a tree of switches.

    rate, uplink: of a server's link, and of one between switches (default: what all servers below
    may ask, so that nothing is oversubscribed). gpus: of each server.
    """
    below, switches = _read(path)
    _require_tree(path, below, switches)
    links: list[dict[str, object]] = []
    servers: list[dict[str, object]] = []
    for switch, names in below.items():
        for name in names:
            links.append({"name": name, "ends": [name, switch], "rate": rate})
            if name in gpus:
                servers.append({"name": name, "gpus": gpus[name]})
    counts = {
        switch: len(_servers_below(switch, below, switches)) for switch in {*below, *switches}
    }
    for above, lower in switches.items():
        for switch in lower:
            between = uplink or _times(rate, counts[switch])
            links.append({"name": f"{switch}-{above}", "ends": [switch, above], "rate": between})
    if missing := sorted(set(gpus) - {str(each["name"]) for each in servers}):
        raise UsageError(f"{path}: no switch has {', '.join(missing[:5])}, where jobs ran.")
    return {"links": links, "servers": servers}


def _times(rate: str, count: int) -> str:
    match = re.fullmatch(r"([0-9.]+)([a-z]+)", rate.lower())
    if match is None:
        raise UsageError(f"{rate!r} is no rate, like 100gbit.")
    return f"{float(match[1]) * count:g}{match[2]}"


def _read(path: Path) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Servers below each switch, and switches below each."""
    below: dict[str, list[str]] = {}
    switches: dict[str, list[str]] = {}
    # A backslash goes on on the next line, and words may have quotes.
    text = read_text(path).replace("\\\n", " ").replace('"', "")
    for number, line in enumerate(text.splitlines(), 1):
        line = line.partition("#")[0].strip()
        if not line:
            continue
        # Slurm doesn't care for the case of keys.
        fields = {key.lower(): value for key, value in re.findall(r"(\w+)=(\S+)", line)}
        name = fields.get("switchname")
        if name is None or not ({"nodes", "switches"} & set(fields)):
            raise UsageError(
                f"{path}:{number}: needs SwitchName, and Nodes or Switches, as topology/tree has"
                " them."
            )
        for key, table in (("nodes", below), ("switches", switches)):
            if key in fields:
                try:
                    table.setdefault(name, []).extend(hosts(fields[key]))
                except UsageError as error:
                    raise UsageError(f"{path}:{number}: {error}") from None
    if not below:
        raise UsageError(f"{path} has no switch with Nodes.")
    return below, switches


def _require_tree(
    path: Path, below: Mapping[str, list[str]], switches: Mapping[str, list[str]]
) -> None:
    """Raise UsageError where a name is below two switches, or no switch has it, or all of them are
    below others, so that nothing is a tree."""
    for kind in (below, switches):
        above: dict[str, str] = {}
        for switch, names in kind.items():
            for name in names:
                if name in above:
                    raise UsageError(f"{path}: {name} is below {above[name]} and {switch}.")
                above[name] = switch
    for switch, names in switches.items():
        for name in names:
            if name not in below and name not in switches:
                raise UsageError(f"{path}: {switch} has the switch {name}, which has no line.")
            if switch in _below(name, switches):
                raise UsageError(f"{path}: {switch} and {name} are below each other.")


def _below(switch: str, switches: Mapping[str, Iterable[str]]) -> set[str]:
    """All switches below one."""
    found: set[str] = set()
    waiting = list(switches.get(switch, ()))
    while waiting:
        each = waiting.pop()
        if each not in found:
            found.add(each)
            waiting += switches.get(each, ())
    return found


def _servers_below(
    switch: str, below: Mapping[str, Iterable[str]], switches: Mapping[str, Iterable[str]]
) -> set[str]:
    own = {switch, *_below(switch, switches)}
    return {server for each in own for server in below.get(each, ())}
