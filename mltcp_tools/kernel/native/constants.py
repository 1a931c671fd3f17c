# SPDX-License-Identifier: BSD-2-Clause
"""Numbers that stand in the headers of kmod/ alone, read from there: no compiler is needed."""

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
}


@functools.cache
def _defines() -> Mapping[str, str]:
    headers = (source_root() / "kmod" / name for name in ("mltcp_uapi.h", "mltcp_rate.h"))
    return dict(pair for header in headers for pair in _DEFINE.findall(header.read_text("utf-8")))


@functools.cache
def constant(name: str) -> int:
    """The value of `#define MLTCP_NAME`, a whole number. KeyError if there is none."""
    text = re.sub(r"(?<=[0-9a-fA-F])U?L{0,2}\b", "", _defines()[name])
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
