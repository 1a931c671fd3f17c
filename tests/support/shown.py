# SPDX-License-Identifier: BSD-2-Clause
"""Texts as a terminal shows them."""

from __future__ import annotations

WIDTH = 100


def fits(text: str) -> str:
    """The text, none of whose lines is wider than our reports are to be."""
    assert max(map(len, text.splitlines())) <= WIDTH
    return text
