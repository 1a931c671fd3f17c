"""The tests of the backend interface, on both backends; the host's kernel may load no module.

eBPF's take minutes in a guest and run on the host too: here only with --full.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from netns.backends_here import fresh
from netns.test_backends import *  # noqa: F403

from mltcp_tools.backends.base import Backend

BPF = (pytest.mark.bpf, pytest.mark.full)


@pytest.fixture(params=[pytest.param("bpf", marks=BPF), "kmod"])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    with fresh(request.param) as found:
        yield found
