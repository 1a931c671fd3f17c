# SPDX-License-Identifier: BSD-2-Clause
"""The data of the live page, and the hosts that feed it; tests/web shows it in a browser."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections import deque
from typing import Any

import pytest

from mltcp_tools.live.observe import feeds
from mltcp_tools.live.observe.feeds import show_all
from mltcp_tools.live.observe.page import SHOWN, Page, bound_s

JOB = {"id": 1, "name": "gpt2", "flows": 2, "iterations": 9, "iteration_s": 0.5, "first_s": 0.6}
JOB |= {"overlap": None, "gain": None}


def look(*ended: list[float], **other: Any) -> dict[str, Any]:
    return {"blind": "", "jobs": [JOB | {"ended": list(ended)} | other]}


def hosts(page: Page) -> list[dict[str, Any]]:
    with urllib.request.urlopen(page.url.replace("/?", "/data?"), timeout=10) as answer:
        found: list[dict[str, Any]] = json.load(answer)["hosts"]
    return found


def test_bound_is_median_compute_plus_fastest_communication() -> None:
    assert bound_s(deque()) is None
    slow, quick = [10.0, 10.3, 10.8], [20.0, 20.3, 20.5]
    assert bound_s(deque([slow] * 10 + [quick] * 2)) == pytest.approx(0.3 + 0.2)


def test_what_is_kept_does_not_grow_and_goes_with_its_job() -> None:
    with Page(("127.0.0.1", 0), ["one"]) as page:
        for number in range(3 * SHOWN):
            page.show("one", look([number, number + 0.3, number + 0.5]))
        (job,) = hosts(page)[0]["jobs"]
        assert len(job["ended"]) == SHOWN
        assert job["ended"][-1][0] == 3 * SHOWN - 1
        page.show("one", look(id=2))
        page.show("one", look(id=1))
        assert [each["ended"] for each in hosts(page)[0]["jobs"]] == [[]]


def test_pages_are_served_over_ipv6_too() -> None:
    with Page(("::1", 0), ["one"]) as page:
        assert "http://[::1]:" in page.url
        assert len(hosts(page)) == 1


class Enough(Page):
    """Ends the watching once each host has been seen or has failed."""

    def __init__(self, names: list[str], looks: int) -> None:
        self.left = dict.fromkeys(names, looks)
        super().__init__(("127.0.0.1", 0), names)

    def _seen(self, host: str) -> None:
        self.left[host] -= 1
        if all(count <= 0 for count in self.left.values()):
            raise KeyboardInterrupt

    def show(self, host: str, look: dict[str, Any]) -> None:
        super().show(host, look)
        self._seen(host)

    def fail(self, host: str, why: str) -> None:
        super().fail(host, why)
        self._seen(host)


def said(program: str) -> list[str]:
    return [sys.executable, "-c", f"import sys, time\n{program}"]


def test_hosts_that_fail_are_named_with_the_reason() -> None:
    text = json.dumps(look([1.0, 1.3, 1.5]))
    commands = {
        "well": said(f"print('''{text}''', flush=True); time.sleep(60)"),
        "away": said("sys.exit('no route to host')"),
        "old": said("sys.exit('mltcp: error: No such command')"),
        "odd": said("print('[1]', flush=True); time.sleep(60)"),
    }
    with Enough(list(commands), 1) as page:
        with pytest.raises(KeyboardInterrupt):
            show_all(page, commands)
        well, away, old, odd = hosts(page)
    assert (well["error"], len(well["jobs"])) == ("", 1)
    assert away["error"] == "no route to host"
    assert old["error"] == "No such command"
    assert "can't be read" in odd["error"]


def test_a_host_that_fails_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "_AGAIN_S", 0.0)
    with Enough(["away"], 3) as page, pytest.raises(KeyboardInterrupt):
        show_all(page, {"away": said("sys.exit('no route to host')")})
