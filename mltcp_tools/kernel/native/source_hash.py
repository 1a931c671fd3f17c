# SPDX-License-Identifier: BSD-2-Clause
"""Sources without what changes nothing: comments, docstrings, empty lines, spaces at ends of lines.

A figure that was measured or computed by them is still theirs when only their words have changed.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path

# What is quoted is matched first, so that no comment begins in it.
_IN_C = re.compile(r"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|//[^\n]*|/\*.*?\*/""", re.DOTALL)
_BEFORE_A_STATEMENT = {tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING}
_IN_BETWEEN = {tokenize.COMMENT, tokenize.NL}
_Span = tuple[tuple[int, int], tuple[int, int]]


def version_of(files: Iterable[Path], *more: str) -> str:
    """A short name for what files of C and Python do, and for other strings that decide with them.

    Files are known by their own names, without folders.
    """
    state = sha256()
    for file in sorted(files):
        bare = bare_python if file.suffix == ".py" else bare_c
        state.update(f"{file.name}\0{bare(file.read_text(encoding='utf-8'))}\0".encode())
    for text in more:
        state.update(text.encode() + b"\0")
    return state.hexdigest()[:8]


def bare_c(text: str) -> str:
    return _tidy(_IN_C.sub(lambda found: found[1] or " ", text))


def bare_python(text: str) -> str:
    lines = text.splitlines()
    for (first, start), (last, end) in reversed(list(_words(text))):
        rest = lines[last - 1][end:]
        lines[first - 1 : last] = [lines[first - 1][:start] + rest]
    return _tidy("\n".join(lines))


def _words(text: str) -> Iterator[_Span]:
    """Yield where comments and docstrings are, those after assignments too, in their order."""
    before = tokenize.ENCODING
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    for token, after in zip(tokens, [*tokens[1:], None], strict=True):
        ends = after is None or after.type in (tokenize.NEWLINE, *_IN_BETWEEN)
        if token.type == tokenize.COMMENT or (
            token.type == tokenize.STRING and before in _BEFORE_A_STATEMENT and ends
        ):
            yield token.start, token.end
        if token.type not in _IN_BETWEEN:
            before = token.type


def _tidy(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip())
