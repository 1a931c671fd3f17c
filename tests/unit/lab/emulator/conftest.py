# SPDX-License-Identifier: BSD-2-Clause
"""A server for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.emulator_processes import Emulator


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[Emulator, int]]:
    with Emulator("server", "--port", "0", "--timeout", "1s") as process:
        yield process, process.port()


@pytest.fixture
def server(running: tuple[Emulator, int]) -> Emulator:
    """The server, having said nothing yet."""
    running[0].said = ""
    return running[0]


@pytest.fixture
def port(running: tuple[Emulator, int]) -> int:
    return running[1]
