# SPDX-License-Identifier: BSD-2-Clause
"""The data of the live page; tests/web shows it in a browser."""

from __future__ import annotations

import json
import urllib.request
from collections import deque
from typing import Any

import pytest

from mltcp_tools.live.observe.page import SHOWN, Page, bound_s

JOB = {"id": 1, "name": "gpt2", "flows": 2, "iterations": 9, "iteration_s": 0.5, "first_s": 0.6}
JOB |= {"overlap": None, "gain": None}


def look(*ended: list[float], **other: Any) -> dict[str, Any]:
    return {"blind": "", "jobs": [JOB | {"ended": list(ended)} | other]}


def jobs(page: Page) -> list[dict[str, Any]]:
    with urllib.request.urlopen(page.url.replace("/?", "/data?"), timeout=10) as answer:
        found: list[dict[str, Any]] = json.load(answer)["jobs"]
    return found


def test_bound_is_median_compute_plus_fastest_communication() -> None:
    assert bound_s(deque()) is None
    slow, quick = [10.0, 10.3, 10.8], [20.0, 20.3, 20.5]
    assert bound_s(deque([slow] * 10 + [quick] * 2)) == pytest.approx(0.3 + 0.2)


def test_what_is_kept_does_not_grow_and_goes_with_its_job() -> None:
    with Page(("127.0.0.1", 0)) as page:
        for number in range(3 * SHOWN):
            page.show(look([number, number + 0.3, number + 0.5]))
        (job,) = jobs(page)
        assert len(job["ended"]) == SHOWN
        assert job["ended"][-1][0] == 3 * SHOWN - 1
        page.show(look(id=2))
        page.show(look(id=1))
        assert [each["ended"] for each in jobs(page)] == [[]]


def test_pages_are_served_over_ipv6_too() -> None:
    with Page(("::1", 0)) as page:
        assert "http://[::1]:" in page.url
        assert jobs(page) == []
