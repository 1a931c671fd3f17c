# SPDX-License-Identifier: BSD-2-Clause
"""The table of what backends do alike, where the kernel module loads."""

from __future__ import annotations

from netns.test_conformance import test_backends_do_the_same  # noqa: F401
from vm.inside.test_backends import backend  # noqa: F401
