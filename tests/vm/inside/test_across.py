# SPDX-License-Identifier: BSD-2-Clause
"""A run across machines with the kernel module, whose jobs and events are each machine's own."""

from __future__ import annotations

import pytest
from netns.test_testbed_across import Bench, bench, run_with_mltcp

pytestmark = pytest.mark.full

__all__ = ["bench"]


def test_every_sender_loads_the_module_and_reports_its_events(bench: Bench) -> None:
    run_with_mltcp(bench, "kmod", senders=2)
