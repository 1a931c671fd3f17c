# SPDX-License-Identifier: BSD-2-Clause
"""The needs of tests on real training, and their reports besides passing."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

_REPORTS = pytest.StashKey[list[str]]()


class Report:
    """Lines to print when the tests are over, such as measured times."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines

    def line(self, text: str) -> None:
        self._lines.append(text)


@pytest.fixture
def report(pytestconfig: pytest.Config) -> Report:
    return Report(pytestconfig.stash.setdefault(_REPORTS, []))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    lines = config.stash.get(_REPORTS, [])
    if lines:
        terminalreporter.section("measured")
        for line in lines:
            terminalreporter.line(line)


@pytest.fixture(scope="session")
def nccl_library() -> Path:
    """The libnccl.so.2 of the package nvidia-nccl-cu12."""
    found = importlib.util.find_spec("nvidia.nccl")
    if found is None or not found.submodule_search_locations:
        pytest.skip("nvidia-nccl-cu12 is not installed; run scripts/setup --train")
    return Path(next(iter(found.submodule_search_locations))) / "lib" / "libnccl.so.2"


@pytest.fixture(scope="session", autouse=True)
def _torch() -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed; run scripts/setup --train")
