# SPDX-License-Identifier: BSD-2-Clause
"""Attaching, following and detaching with the kernel module; a handful of tests/netns' tests.

All of them, with both backends and both ways of noticing connections, are in test_attach_all.py.
"""

from __future__ import annotations

from netns.backends_here import backend_fixture, fresh_and_loaded
from netns.test_attach import (  # noqa: F401
    test_a_container_with_its_own_namespaces,
    test_attach_and_detach,
    test_sockets_move_to_another_job,
)
from netns.test_attach_failures import (  # noqa: F401
    test_a_tag_that_fails_puts_the_congestion_control_back,
    test_detach_after_a_forced_unload,
)
from netns.test_follow import follow_to_the_end

from mltcp_tools.kernel.backends.base import Backend

backend = backend_fixture(fresh_and_loaded, ["kmod"])


def test_connections_are_attached_as_they_come(backend: Backend, mark: str) -> None:
    follow_to_the_end(backend, mark, "tracepoint")
