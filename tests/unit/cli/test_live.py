# SPDX-License-Identifier: BSD-2-Clause
"""Commands that look at live jobs, without any."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
from typing import Any

import pytest
from support.watched_backend import Told, WatchedBackend, event

from mltcp_tools.cli import connections, flows, watch
from mltcp_tools.cli.main import main
from mltcp_tools.kernel.backends.base import Flow, IterationEvent, Job
from mltcp_tools.live.attach.selection import Target


class Interrupted(Told):
    """Somebody presses Ctrl-C at the third look."""

    looks = 0

    def poll(self, timeout_s: float) -> list[IterationEvent]:
        self.looks += 1
        if self.looks == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return super().poll(timeout_s)


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> WatchedBackend:
    backend = WatchedBackend([Job(1, "a")], [], [event(1, 1, n, n, n + 0.1) for n in range(9)])
    monkeypatch.setattr(watch, "get_backend", lambda name: backend)
    # An agent that runs here knows other jobs by the same ids.
    monkeypatch.setattr("mltcp_tools.live.observe.watch.read_follower_states", dict)
    monkeypatch.setattr(backend, "iterations", lambda: Interrupted([]))
    return backend


def test_ctrl_c_is_the_end_of_watching(
    backend: WatchedBackend, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["watch", "--wait", "1ms"]) == 0
    out, err = capsys.readouterr()
    assert out.count("JOB") >= 1
    assert err == ""


def test_every_look_is_a_line_for_programs(
    backend: WatchedBackend, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["watch", "--wait", "1ms", "--json"]) == 0
    looks = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(looks) >= 1
    assert [view["name"] for view in looks[0]] == ["a"]


@pytest.mark.parametrize("unread", [[], ["Not inspected: 1 (init): it takes root."]])
def test_ps_with_nothing_to_show_says_so(
    unread: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(connections, "look_for_training", lambda jobs: ([], unread))
    assert Target.parse(()) == Target()
    assert main(["connections"]) == 0
    err = capsys.readouterr().err
    assert "has a training library loaded; name others" in err


def flow(cookie: int, queue_us: int, bidirectional: bool = False) -> Flow:
    """A flow of job 1."""
    kinds = {field.name: field.type for field in dataclasses.fields(Flow)}
    values: dict[str, Any] = {name: "" if kind == "str" else 0 for name, kind in kinds.items()}
    return Flow(
        **values
        | {"cookie": cookie, "job_id": 1, "queue_us": queue_us, "full_queue_us": 1200}
        | {"active": True, "bidirectional": bidirectional}
    )


def test_the_queue_and_who_does_not_yield_are_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    several = WatchedBackend([Job(1, "a")], [flow(1, 590), flow(2, 40, bidirectional=True)], [])
    monkeypatch.setattr(watch, "get_backend", lambda name: several)
    monkeypatch.setattr(flows, "get_backend", lambda name: several)
    assert main(["watch", "--once", "--wait", "1ms"]) == 0
    assert "0.59/1.20" in capsys.readouterr().out
    assert main(["status", "flows"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "RTT" in next(each for each in lines if "0.59/1.20" in each)
    assert "bidirectional" in next(each for each in lines if "0.04/1.20" in each)
    assert main(["status", "flows", "--json"]) == 0
    documents = json.loads(capsys.readouterr().out)
    assert [each["bidirectional"] for each in documents] == [False, True]
