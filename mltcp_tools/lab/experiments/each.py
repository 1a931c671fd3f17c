# SPDX-License-Identifier: BSD-2-Clause
"""`each`: one entry of a YAML file that stands for all combinations of some values.

    links: {each: {link.rate: [50mbit, 1gbit], jobs.count: [1, 3]}}

is four entries, named after the first one and the values: `links-50mbit-1`, `links-50mbit-3`, …
A field of a mapping, or of every mapping in a list, is named with a dot: `link.rate`, `jobs.count`.
Nodes keep their place in the file, so that a complaint about a value still names its line.
"""

from __future__ import annotations

import itertools

import yaml

from mltcp_tools.base.document import Section

EACH = "each"
MAX_COMBINATIONS = 400


def expand(name: str, section: Section) -> list[tuple[str, yaml.MappingNode]]:
    """The entries that `section`, called `name`, stands for; itself where it has no `each`.

    Raises UsageError where `each` has no lists of values.
    """
    values = section.section(EACH, None)
    if values is None:
        return [(name, section.node)]
    rest = [(key, value) for key, value in section.node.value if key.value != EACH]
    fields = list(values)
    lists = [_list(values, field) for field in fields]
    entries = []
    for chosen in itertools.product(*lists):
        node = _mapping(rest, section.node)
        for field, value in zip(fields, chosen, strict=True):
            node = put(node, field.split("."), value)
        entries.append(("-".join([name, *map(_label, chosen)]), node))
    if not fields or len(entries) > MAX_COMBINATIONS:
        raise section.error(f"must make 1 to {MAX_COMBINATIONS} combinations.", EACH)
    return entries


def put(node: yaml.Node, path: list[str], value: yaml.Node) -> yaml.MappingNode:
    """A copy of the mapping `node` in which the field at `path` is `value`."""
    assert isinstance(node, yaml.MappingNode)
    present = {key.value: (key, each) for key, each in node.value}
    key, old = present.get(
        path[0], (yaml.ScalarNode("tag:yaml.org,2002:str", path[0], value.start_mark), None)
    )
    if len(path) == 1:
        new = value
    elif isinstance(old, yaml.SequenceNode):
        items = [put(item, path[1:], value) for item in old.value]
        new = yaml.SequenceNode(old.tag, items, old.start_mark, old.end_mark)
    elif isinstance(old, yaml.MappingNode):
        new = put(old, path[1:], value)
    else:
        new = put(_mapping([], value), path[1:], value)
    present[path[0]] = (key, new)
    return _mapping(list(present.values()), node)


def _mapping(pairs: list[tuple[yaml.Node, yaml.Node]], place: yaml.Node) -> yaml.MappingNode:
    return yaml.MappingNode("tag:yaml.org,2002:map", pairs, place.start_mark, place.end_mark)


def _list(values: Section, field: str) -> list[yaml.Node]:
    node = values.nodes[field]
    if not isinstance(node, yaml.SequenceNode) or not node.value:
        raise values.error("must be a list of values.", field)
    return list(node.value)


def _label(node: yaml.Node) -> str:
    """Return the text for a value in a name."""
    return str(node.value).replace("%", "") if isinstance(node, yaml.ScalarNode) else "x"
