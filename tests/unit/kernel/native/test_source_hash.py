# SPDX-License-Identifier: BSD-2-Clause
"""Words of a source don't change its version; what it does changes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mltcp_tools.kernel.native.source_hash import version_of


@pytest.mark.parametrize(
    ("name", "text", "words", "does"),
    [
        ("a.h", "int a; /* one */\n", "int a; /* two */\n", "int b; /* one */\n"),
        ("a.h", 'char *a = "/* one */";\n', 'char *a = "/* one */"; // two\n', 'char *a = "";\n'),
        ("a.py", "a = 1  # one\n", '"""Two."""\n\na = 1\n', "a = 2  # one\n"),
        ("a.py", 'a = "#b"\n', 'a = "#b"\n"""Said."""\n', 'a = ""\n'),
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
