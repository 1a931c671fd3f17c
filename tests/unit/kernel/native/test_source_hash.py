# SPDX-License-Identifier: BSD-2-Clause
"""Words of a source don't change its version; what it does changes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mltcp_tools.kernel.native.source_hash import bare_c, bare_python, version_of

C = """\
/* One
 * and more. */
#define A "/* none */" // said
int b = '"'; /* said */ int c;

"""
PYTHON = '''\
"""Said."""

# said
NAMES = ("a", "#b")  # said
"""Names, of
which there are two."""


class A:
    """Said."""

    text = """kept # too"""

    def b(self) -> str:
        """Said."""
        return "kept"
'''


def test_c_keeps_what_is_compiled() -> None:
    assert bare_c(C) == '#define A "/* none */"\nint b = \'"\';   int c;'


def test_python_keeps_what_is_run() -> None:
    assert bare_python(PYTHON).splitlines() == [
        'NAMES = ("a", "#b")',
        "class A:",
        '    text = """kept # too"""',
        "    def b(self) -> str:",
        '        return "kept"',
    ]


@pytest.mark.parametrize(
    ("name", "text", "words", "does"),
    [
        ("a.h", "int a; /* one */\n", "int a; /* two */\n", "int b; /* one */\n"),
        ("a.py", "a = 1  # one\n", '"""Two."""\n\na = 1\n', "a = 2  # one\n"),
    ],
)
def test_words_are_no_other_version(
    tmp_path: Path, name: str, text: str, words: str, does: str
) -> None:
    def version(content: str, *more: str) -> str:
        (tmp_path / name).write_text(content)
        return version_of([tmp_path / name], *more)

    assert version(words) == version(text)
    assert version(does) != version(text)
    assert version(text, "more") != version(text)
