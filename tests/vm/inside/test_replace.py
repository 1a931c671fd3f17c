"""What is in force and replacing it, with the kernel module; tests/netns' tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from netns.backends_here import fresh_and_loaded
from netns.test_replace import *  # noqa: F403

from mltcp_tools.backends.base import Backend

BPF = (pytest.mark.bpf, pytest.mark.full)


@pytest.fixture(params=[pytest.param("bpf", marks=BPF), "kmod"])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    with fresh_and_loaded(request.param) as found:
        yield found
