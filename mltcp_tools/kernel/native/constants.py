# SPDX-License-Identifier: BSD-2-Clause
"""Numbers, structs and enums of the headers of kmod/, read from there: no compiler is needed."""

from __future__ import annotations

import ast
import functools
import operator
import re
from collections.abc import Mapping

from mltcp_tools.kernel.native.csources import source_root

_DEFINE = re.compile(r"^#define MLTCP_(\w+) (\S.*?)(?: *//.*| */\*.*)?$", re.MULTILINE)
_OPERATIONS = {
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.LShift: operator.lshift,
    ast.BitOr: operator.or_,
}


def _text(header: str) -> str:
    return (source_root() / "kmod" / header).read_text("utf-8")


@functools.cache
def _defines() -> Mapping[str, str]:
    headers = map(_text, ("mltcp_uapi.h", "mltcp_rate.h"))
    return dict(pair for header in headers for pair in _DEFINE.findall(header))


def structs(header: str) -> str:
    """Return a header's structs as cffi takes them."""
    text = re.sub(r"/\*.*?\*/", "", _text(header), flags=re.DOTALL)
    found = "\n".join(re.findall(r"^struct mltcp_\w+ \{.*?^\};", text, re.DOTALL | re.MULTILINE))
    found = re.sub(r"\b__u(\d+)\b", r"uint\1_t", found)
    return re.sub(r"\[MLTCP_(\w+)\]", lambda size: f"[{constant(size[1])}]", found) + "\n"


def enumerators(name: str) -> list[str]:
    """Return the names that `enum NAME` of mltcp_uapi.h numbers from 1, without their prefix."""
    body = _text("mltcp_uapi.h").partition(f"enum {name} {{")[2].partition("};")[0]
    _unspecified, *names, _count = re.findall(r"^\tMLTCP_[A-Z]+_(\w+)", body, re.MULTILINE)
    return names


@functools.cache
def constant(name: str) -> int:
    """The value of `#define MLTCP_NAME`, a whole number. KeyError if there is none."""
    text = re.sub(r"\b(0x[0-9a-fA-F]+|[0-9]+)U?L{0,2}\b", r"\1", _defines()[name])
    return _value(ast.parse(text.strip(), mode="eval").body)


def _value(node: ast.expr) -> int:
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            return constant(name.removeprefix("MLTCP_"))
        case ast.BinOp(left=left, op=op, right=right):
            return int(_OPERATIONS[type(op)](_value(left), _value(right)))
    raise ValueError(f"{ast.dump(node)} is not a whole-number expression")


def share(name: str) -> float:
    """The value of a fixed-point constant."""
    return constant(name) / constant("ONE")
