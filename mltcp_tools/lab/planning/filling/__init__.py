"""Max-min shares of links, in C, for whatever simulates flows."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).resolve().parent
"""The folder of filling.h and filling.c, for `native.extension`."""
