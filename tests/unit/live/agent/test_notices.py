# SPDX-License-Identifier: BSD-2-Clause
"""Notices of a follower, and their repetition."""

from __future__ import annotations

import pytest

from mltcp_tools.live.agent import notices
from mltcp_tools.live.agent.notices import Notices


def test_what_happens_all_the_time_is_said_to_and_then_not(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    now = [1000.0]
    monkeypatch.setattr(notices.time, "monotonic", lambda: now[0])
    spoken = Notices(said.append)
    for number in range(73):  # connections in 20 s
        spoken.tell("attaching a", f"connection {number}", "and so on")
        now[0] += 0.3
    assert said == [*(f"connection {number}" for number in range(5)), "and so on"]
    spoken.tell("attaching b", "another job", "and so on")
    assert said[-1] == "another job"
    now[0] += 61
    spoken.tell("attaching a", "again", "and so on")
    assert said[-1] == "again"
