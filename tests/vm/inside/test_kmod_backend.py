# SPDX-License-Identifier: BSD-2-Clause
"""The tests of the kernel module's backend, which take a kernel that loads modules."""

from __future__ import annotations

from netns.test_kmod_backend import *  # noqa: F403
