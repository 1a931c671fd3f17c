"""The module is built without a word from the compiler, with all its warnings, or from sparse."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from guest import kernels
from guest.common import CHECKOUT
from vm.bridge import QUICK, unavailable

(SUITE,) = QUICK


def test_the_compiler_and_sparse_find_nothing(tmp_path: Path) -> None:
    if reason := unavailable(SUITE):
        pytest.skip(reason)
    if not shutil.which("sparse"):
        pytest.skip("sparse is not installed; run scripts/setup --dev")
    copy = shutil.copytree(CHECKOUT / "kmod", tmp_path / "kmod")
    (copy / "version").write_text("0\n")
    target = f"KDIR={kernels.require(SUITE).build}"
    done = subprocess.run(["make", "-C", copy, "check", target], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
