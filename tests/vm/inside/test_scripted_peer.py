# SPDX-License-Identifier: BSD-2-Clause
"""The answers of flows to a scripted peer's ACKs, on both backends."""

from __future__ import annotations

from netns.backends_here import BPF_IN_GUEST, backend_fixture, fresh_and_loaded
from netns.test_scripted_peer import *  # noqa: F403
from vm.machines import VIRTUAL_TIME

pytestmark = VIRTUAL_TIME

backend = backend_fixture(fresh_and_loaded, [BPF_IN_GUEST, "kmod"])
