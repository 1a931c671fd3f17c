"""All tests of attaching and following on both backends, where the kernel module can be loaded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from netns.backends_here import fresh_and_loaded
from netns.test_attach import *  # noqa: F403
from netns.test_follow import *  # noqa: F403

from mltcp_tools.backends.base import Backend

pytestmark = [pytest.mark.guest(timeout=3600), pytest.mark.full]


@pytest.fixture(params=[pytest.param("bpf", marks=pytest.mark.bpf), "kmod"])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    with fresh_and_loaded(request.param) as found:
        yield found
