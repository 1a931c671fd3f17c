# SPDX-License-Identifier: BSD-2-Clause
"""Programs in force and their replacement, with the kernel module; tests/netns' tests."""

from __future__ import annotations

from netns.backends_here import BPF_IN_GUEST, backend_fixture, fresh_and_loaded
from netns.test_replace import *  # noqa: F403

backend = backend_fixture(fresh_and_loaded, [BPF_IN_GUEST, "kmod"])
