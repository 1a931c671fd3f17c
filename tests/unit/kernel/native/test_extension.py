# SPDX-License-Identifier: BSD-2-Clause
"""Compiling and loading C: once, whoever asks, and whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mltcp_tools.kernel.native import extension as extensions

DECLARATIONS = "struct pair { int a; int b; }; int sum(struct pair *pair);"
PREAMBLE = """
struct pair { int a; int b; };
static int sum(struct pair *pair) { return pair->a + pair->b; }
"""
ASKING = """
import pathlib
import sys
from mltcp_tools.kernel.native import extension as extensions
folder, declarations, preamble = sys.argv[1:]
compile_once, compiled = extensions.FFI.compile, []
extensions.FFI.compile = lambda *a, **b: compiled.append(1) or compile_once(*a, **b)
extensions.cache_dir = lambda: pathlib.Path(folder)
sys.stdin.read()  # all begin at one instant
lib, ffi = extensions.extension("sum", declarations, preamble)
print(lib.sum(ffi.new("struct pair *", (3, 4))), len(compiled))
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, in this process and in its children's."""
    monkeypatch.setattr(extensions, "cache_dir", lambda: tmp_path)
    monkeypatch.setattr(extensions, "_loaded", {})
    return tmp_path


def test_concurrent_requests_compile_once_and_leave_no_scratch(cache: Path) -> None:
    command = [sys.executable, "-c", ASKING, str(cache), DECLARATIONS, PREAMBLE]
    asking = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for each in asking:
        assert each.stdin is not None
        each.stdin.close()
        each.stdin = None
    said = [each.communicate(timeout=120)[0].split() for each in asking]
    assert sorted(said) == [["7", "0"], ["7", "0"], ["7", "1"]]
    kept = sorted(path.name for path in cache.iterdir())
    assert [name.split(".")[0][:10] for name in kept] == ["_mltcp_sum", "sum"], kept
