# SPDX-License-Identifier: BSD-2-Clause
"""The module is built without a word from the compiler, with all its warnings, or from sparse."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from vm.bridge import QUICK, unavailable
from vms import kernels
from vms.common import CHECKOUT

(SUITE,) = QUICK


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The module's sources."""
    if reason := unavailable(SUITE):
        pytest.skip(reason)
    copy = shutil.copytree(CHECKOUT / "kmod", tmp_path / "kmod")
    (copy / "version").write_text("0\n")
    return copy


def make(copy: Path, *words: str) -> None:
    command = ["make", "-C", copy, f"KDIR={kernels.require(SUITE).build}", *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_compiler_and_sparse_find_nothing(copy: Path) -> None:
    if not shutil.which("sparse"):
        pytest.skip("sparse is not installed; run scripts/setup --dev")
    make(copy, "check")


def test_module_fits_kernels_with_the_patch_of_bbr3(copy: Path) -> None:
    """It gives congestion controls another operation in the place of min_tso_segs."""
    headers = kernels.require(SUITE).modules / kernels.require(SUITE).version / "source"
    was = "u32 (*min_tso_segs)(struct sock *sk);"
    becomes = "u32 (*tso_segs)(struct sock *sk, unsigned int mss_now);"
    text = (headers / "include/net/tcp.h").read_text()
    assert was in text
    patched = copy / "tcp.h"  # included first, so that the kernel's own is skipped
    patched.write_text(text.replace(was, becomes))
    flags = f"KCFLAGS=-Werror=incompatible-pointer-types -include {patched}"
    subprocess.run([copy / "probe", "--fits", kernels.require(SUITE).build, flags], check=True)
    make(copy, "module", flags)
