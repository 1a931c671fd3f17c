# SPDX-License-Identifier: BSD-2-Clause
"""All tests of attaching and following on both backends, where the kernel module can be loaded."""

from __future__ import annotations

import pytest
from netns.backends_here import backend_fixture, fresh_and_loaded
from netns.test_agent import *  # noqa: F403
from netns.test_attach import *  # noqa: F403
from netns.test_attach_failures import *  # noqa: F403
from netns.test_follow import *  # noqa: F403
from netns.test_observing import *  # noqa: F403

pytestmark = pytest.mark.full


backend = backend_fixture(fresh_and_loaded, [pytest.param("bpf", marks=pytest.mark.bpf), "kmod"])
