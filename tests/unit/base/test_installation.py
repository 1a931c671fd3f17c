# SPDX-License-Identifier: BSD-2-Clause
"""The advice of each installation; tests/netns/test_packages.py follows it where it installs."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from mltcp_tools.base import installation
from mltcp_tools.base.installation import how_to_bring, how_to_bring_bcc

CHECKOUT = Path(__file__).parents[3]


@pytest.fixture
def packaged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A package of a distribution; the file by which it is Debian's."""
    monkeypatch.setattr(installation, "ROOT", installation.PACKAGED)
    monkeypatch.setattr(installation, "_DPKG_FILES", tmp_path / "list")
    return tmp_path / "list"


def test_packages_name_what_builds_them_with_it(packaged: Path) -> None:
    assert "`EXTRAS=report scripts/build-tools-rpm`" in how_to_bring("report")
    assert "`EXTRAS=metrics scripts/build-tools-rpm`" in how_to_bring("metrics")
    packaged.touch()
    assert "`EXTRAS=report scripts/build-tools-deb`" in how_to_bring("report")
    assert how_to_bring("metrics") == "run: apt-get install python3-prometheus-client"
    assert how_to_bring("") == "install the package mltcp-tools anew"
    for extra in ("report", "metrics", ""):
        assert "pip" not in how_to_bring(extra)
    assert "environment" not in how_to_bring_bcc()


def test_a_checkout_names_its_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(CHECKOUT / ".venv"))
    assert how_to_bring("report") == f"run: {shlex.quote(str(CHECKOUT / 'scripts/setup'))}"
    assert how_to_bring("collectives").endswith("scripts/setup --train")
    assert how_to_bring_bcc().endswith("with scripts/setup")


def test_a_checkout_installed_elsewhere_names_that_places_pip(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "executable", f"{tmp_path}/bin/python")
    brought = f"{tmp_path}/bin/python -m pip install 'mltcp-tools[report]'"
    assert how_to_bring("report") == f"run: {brought}"
    assert "--system-site-packages" in how_to_bring_bcc()


def test_advice_leaves_the_compiler_alone() -> None:
    """Before Python 3.12, setuptools refuses to start in a process that asked it for pip."""
    code = (
        "import sys; sys.prefix = '/nowhere'\n"
        "from mltcp_tools.base.installation import how_to_bring\n"
        "assert 'pip' in how_to_bring('report')\n"
        "import setuptools"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
