# SPDX-License-Identifier: BSD-2-Clause
"""Users who lack a package are told the extra that brings it, as metadata says it."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import click
import pytest
from support.extras import optional

from mltcp_tools.base import installation
from mltcp_tools.base.errors import HostError
from mltcp_tools.cli.main import main

EXTRAS = optional()
EXTRAS.pop("train")  # for tests
BROUGHT = sorted(set().union(*EXTRAS.values()))
IMPORTING = """
import sys
from mltcp_tools.base import installation
from mltcp_tools.cli.main import main
installation.ROOT = installation.PACKAGED
class Lacking:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == sys.argv[1]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Lacking())
sys.exit(main(sys.argv[2:]))
"""


@pytest.fixture
def lacking(monkeypatch):
    """Make `mltcp report` of a package of a distribution lack a package of Python's."""
    monkeypatch.setattr(installation, "ROOT", installation.PACKAGED)

    def install(package: str) -> None:
        @click.command()
        def command():
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)

        module = ModuleType("mltcp_tools.cli.report")
        module.command = command
        monkeypatch.setitem(sys.modules, "mltcp_tools.cli.report", module)

    return install


@pytest.mark.parametrize("distribution", BROUGHT)
def test_an_extra_that_brings_it_is_named(lacking, capsys, distribution):
    package = distribution.replace("-", "_")
    lacking(f"{package}.inner")
    assert main(["report"]) == HostError.exit_code
    said = capsys.readouterr().err
    assert f"`mltcp report` needs the Python package {package}, which is not installed" in said
    assert any(
        f"`EXTRAS={extra} scripts/build-tools-" in said or "python3-prometheus-client" in said
        for extra, names in EXTRAS.items()
        if distribution in names and extra != "all"
    )


@pytest.mark.parametrize("package", ["yaml", "cffi", "pyroute2"])
def test_what_every_installation_has_calls_for_another(lacking, capsys, package):
    lacking(package)
    assert main(["report"]) == HostError.exit_code
    assert "; install the package mltcp-tools anew." in capsys.readouterr().err


@pytest.mark.parametrize("package", ["bcc", "mltcp_tools.nothing", "nobody_has_this"])
def test_another_package_is_our_mistake(lacking, capsys, package):
    lacking(package)
    assert main(["report"]) == 1
    assert "please report it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("package", "extra", "arguments"),
    [
        ("numpy", "report", ["report", "nowhere"]),
        ("torch", "collectives", ["collectives", "bench"]),
        ("torch", "marl", ["cluster", "marl", "nowhere.yaml"]),
    ],
)
def test_a_command_that_lacks_it_says_so(package, extra, arguments):
    command = [sys.executable, "-c", IMPORTING, package, *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert f"`EXTRAS={extra} scripts/build-tools-" in done.stderr, done.stderr
    assert done.returncode == HostError.exit_code
