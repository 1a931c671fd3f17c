# SPDX-License-Identifier: BSD-2-Clause
"""The tests of the backend interface, of what backends do alike and of taking MLTCP off a host, on
both backends; the host's kernel may load no module.

eBPF's take minutes in a VM and run on the host too: here only with --full.
"""

from __future__ import annotations

from netns.backends_here import BPF_IN_GUEST, backend_fixture
from netns.test_backends import *  # noqa: F403
from netns.test_conformance import test_backends_do_the_same  # noqa: F401
from netns.test_unload import *  # noqa: F403

backend = backend_fixture(names=[BPF_IN_GUEST, "kmod"])
