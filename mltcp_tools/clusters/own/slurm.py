# SPDX-License-Identifier: BSD-2-Clause
"""Slurm's lists of hosts, and the network that its topology.conf describes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import networkx as nx

from mltcp_tools.base.errors import UsageError
from mltcp_tools.base.units import parse_rate
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
            raise UsageError(f"{part!r} has an invalid range: {each!r}.")
        if int(last or first) - int(first) >= _MOST_HOSTS:
            raise UsageError(f"{part!r} names more than {_MOST_HOSTS} hosts.")
        for number in range(int(first), int(last or first) + 1):
            middle = f"{number:0{len(first)}}"
            names += _expanded(part[: match.start()] + middle + part[match.end() :])
    return names


def read_topology(
    path: Path, rate: str, uplink: str | None, gpus: Mapping[str, int]
) -> dict[str, object]:
    """The section `cluster` of a workload, from a topology.conf of Slurm with a tree of switches.

    rate, uplink: of a server's link, and of one between switches (default: as much as all servers
    below may send, so that nothing is oversubscribed). gpus: of each server.
    """
    below, switches = _read(path)
    tree = _require_tree(path, below, switches)
    links: list[dict[str, object]] = []
    servers: list[dict[str, object]] = []
    short = {name.partition(".")[0]: name for name in gpus}
    for switch, names in below.items():
        for each in names:
            # Either may have the domain's name, too.
            name = each if each in gpus else short.get(each.partition(".")[0], each)
            links.append({"name": name, "ends": [name, switch], "rate": rate})
            if name in gpus:
                servers.append({"name": name, "gpus": gpus[name]})
    for above, lower in switches.items():
        for switch in lower:
            count = sum(not tree.out_degree(each) for each in nx.descendants(tree, switch))
            between = uplink or f"{count * parse_rate(rate)}bit"
            links.append({"name": f"{switch}-{above}", "ends": [switch, above], "rate": between})
    if missing := sorted(set(gpus) - {str(each["name"]) for each in servers}):
        raise UsageError(f"{path}: no switch has {', '.join(missing[:5])}, where jobs ran.")
    return {"links": links, "servers": servers}


def _read(path: Path) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Servers below each switch, and switches below each."""
    below: dict[str, list[str]] = {}
    switches: dict[str, list[str]] = {}
    # A backslash continues a line, and words may have quotes.
    text = read_text(path).replace("\\\n", " ").replace('"', "")
    for number, line in enumerate(text.splitlines(), 1):
        if not (line := line.partition("#")[0].strip()):
            continue
        # Slurm ignores the case of its words.
        fields = {key.lower(): value for key, value in re.findall(r"(\w+)=(\S+)", line)}
        name, nodes, lower = (fields.get(key) for key in ("switchname", "nodes", "switches"))
        if not name or not (nodes or lower):
            raise UsageError(
                f"{path}:{number}: needs SwitchName with Nodes or Switches, as Slurm's"
                " topology/tree has them; write blocks as switches below one above all."
            )
        for words, table in ((nodes, below), (lower, switches)):
            if words:
                try:
                    table.setdefault(name, []).extend(hosts(words))
                except UsageError as error:
                    raise UsageError(f"{path}:{number}: {error}") from None
    if not below:
        raise UsageError(f"{path} has no switch with Nodes.")
    return below, switches


def _require_tree(
    path: Path, below: Mapping[str, list[str]], switches: Mapping[str, list[str]]
) -> nx.DiGraph:
    """The tree of switches and servers; a UsageError where a name is below two switches, a switch
    has no line, or switches are below each other."""
    edges = [(above, each) for own in (below, switches) for above in own for each in own[above]]
    tree = nx.DiGraph(edges)
    for above, name in edges:
        if tree.in_degree(name) > 1:
            raise UsageError(f"{path}: {name} is below {' and '.join(tree.predecessors(name))}.")
        if above in switches and name in switches[above] and not tree.out_degree(name):
            raise UsageError(f"{path}: {above} has the switch {name}, which has no line.")
    if not nx.is_directed_acyclic_graph(tree):
        first, second = sorted(nx.find_cycle(tree)[0])
        raise UsageError(f"{path}: {first} and {second} are below each other.")
    return tree
