# SPDX-License-Identifier: BSD-2-Clause
"""Connections that wait for each other, on both backends."""

from __future__ import annotations

import pytest
from netns.backends_here import BPF_IN_GUEST, backend_fixture, fresh_and_loaded
from netns.test_waiting import *  # noqa: F403

pytestmark = pytest.mark.VM(icount=True)

backend = backend_fixture(fresh_and_loaded, [BPF_IN_GUEST, "kmod"])
