"""JSON Schema of a result, from the dataclasses in result.py.

`python -m mltcp_tools.lab.analysis.schema` prints it.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import json
import types
import typing
from typing import Any, Literal

from mltcp_tools.lab.analysis.result import SCHEMA, Result

Schema = dict[str, Any]
_SIMPLE = {str: "string", int: "integer", float: "number", bool: "boolean", types.NoneType: "null"}


def result_schema() -> Schema:
    """The schema of result.json, JSON Schema 2020-12."""
    definitions: dict[str, Schema] = {}
    top = _object(Result, definitions)
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": dialect, "title": SCHEMA, **top, "$defs": dict(sorted(definitions.items()))}


def _object(cls: type[Any], definitions: dict[str, Schema]) -> Schema:
    """The schema of a dataclass; those that it refers to are added to `definitions`."""
    hints, texts = typing.get_type_hints(cls), _texts(cls)
    properties = {}
    for field in dataclasses.fields(cls):
        properties[field.name] = _type(hints[field.name], definitions)
        if text := texts.get(field.name):
            properties[field.name]["description"] = text
    return {
        "description": inspect.cleandoc(cls.__doc__ or "").split("\n\n")[0].replace("\n", " "),
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _type(hint: Any, definitions: dict[str, Schema]) -> Schema:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in _SIMPLE:
        return {"type": _SIMPLE[hint]}
    if hint is Any or hint is object:
        return {}
    if dataclasses.is_dataclass(hint):
        assert isinstance(hint, type)
        if hint.__name__ not in definitions:
            definitions[hint.__name__] = {}  # may be met again within itself
            definitions[hint.__name__] = _object(hint, definitions)
        return {"$ref": f"#/$defs/{hint.__name__}"}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (types.UnionType, typing.Union):
        if all(each in _SIMPLE for each in arguments):
            return {"type": [_SIMPLE[each] for each in arguments]}
        return {"anyOf": [_type(each, definitions) for each in arguments]}
    if origin is dict:
        return {"type": "object", "additionalProperties": _type(arguments[1], definitions)}
    if origin is not None and issubclass(origin, typing.Sequence):
        return {"type": "array", "items": _type(arguments[0], definitions)}
    raise TypeError(f"{hint} has no JSON Schema here")


def _texts(cls: type[Any]) -> dict[str, str]:
    """Field -> the text that stands below it, of a dataclass and those it builds on."""
    found: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        if dataclasses.is_dataclass(each):
            found |= _own_texts(each)
    return found


@functools.cache
def _own_texts(cls: type[Any]) -> dict[str, str]:
    (definition,) = ast.parse(inspect.cleandoc(inspect.getsource(cls))).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for field, text in zip(definition.body, definition.body[1:], strict=False):
        match field, text:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(written))),
            ):
                found[name] = " ".join(written.split())
    return found


if __name__ == "__main__":
    print(json.dumps(result_schema(), indent=1))
