# SPDX-License-Identifier: BSD-2-Clause
"""The tests of the backend interface, on both backends; the host's kernel may load no module.

eBPF's take minutes in a VM and run on the host too: here only with --full.
"""

from __future__ import annotations

from netns.backends_here import BPF_IN_GUEST, backend_fixture
from netns.test_backends import *  # noqa: F403

backend = backend_fixture(names=[BPF_IN_GUEST, "kmod"])
