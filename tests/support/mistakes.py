# SPDX-License-Identifier: BSD-2-Clause
"""Files with one mistake: a right text with one place of it changed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mltcp_tools.base.errors import UsageError
from mltcp_tools.cli.main import main


def mistakes(*rows: tuple[str, str, str]) -> pytest.MarkDecorator:
    """The test once for each mistake: what is replaced, by what, and the complaint about it."""
    return pytest.mark.parametrize(("old", "new", "complaint"), rows)


def refusal(
    read: Callable[[str, str], object], text: str, old: str, new: str, name: str = "f.yaml"
) -> str:
    """Return what `read`, given the text with `new` in the place of `old` and `name`, refuses it
    with.
    """
    assert old in text
    with pytest.raises(UsageError) as error:
        read(text.replace(old, new, 1), name)
    assert "\n" not in str(error.value)
    return str(error.value)


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one sentence with which `mltcp` refuses these words."""
    assert main(words) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said
