"""Attaching, following and detaching with the kernel module; a handful of tests/netns' tests.

All of them, with both backends, are in test_attach_all.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from netns.backends_here import fresh_and_loaded
from netns.test_attach import (  # noqa: F401
    test_a_container_with_its_own_namespaces,
    test_a_tag_that_fails_puts_the_congestion_control_back,
    test_attach_and_detach,
    test_detach_after_a_forced_unload,
    test_sockets_move_to_another_job,
)
from netns.test_follow import (  # noqa: F401
    mark,
    test_connections_are_attached_as_they_come,
    test_on_sigterm_it_detaches_or_keeps,
)

from mltcp_tools.backends.base import Backend


@pytest.fixture(params=["kmod"])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    with fresh_and_loaded(request.param) as found:
        yield found
