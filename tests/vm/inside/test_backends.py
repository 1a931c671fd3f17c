"""The tests of the backend interface, on both backends: on the host only eBPF may have them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from netns.backends_here import fresh
from netns.test_backends import *  # noqa: F403

from mltcp_tools.backends.base import Backend


@pytest.fixture(params=[pytest.param("bpf", marks=pytest.mark.bpf), "kmod"])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    with fresh(request.param) as found:
        yield found
