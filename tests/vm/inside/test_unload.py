# SPDX-License-Identifier: BSD-2-Clause
"""Taking MLTCP off a host, with the kernel module; tests/netns' tests."""

from __future__ import annotations

from netns.backends_here import BPF_IN_GUEST, backend_fixture
from netns.test_unload import *  # noqa: F403

backend = backend_fixture(names=[BPF_IN_GUEST, "kmod"])
