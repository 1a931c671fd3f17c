"""Commands that look at live jobs, without any."""

from __future__ import annotations

import json
import os
import signal

import pytest
from support.watched_backend import Told, WatchedBackend, event

from mltcp_tools.attach.processes import Target
from mltcp_tools.backends.base import IterationEvent, Job
from mltcp_tools.cli import ps, watch
from mltcp_tools.cli.main import main
from mltcp_tools.units import counted


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
    monkeypatch.setattr(ps, "look_for_training", lambda jobs: ([], unread))
    assert Target.parse(()) == Target()
    assert main(["ps"]) == 0
    err = capsys.readouterr().err
    assert "has NCCL, Gloo or torch loaded; name others" in err


def test_one_is_not_several() -> None:
    assert counted(1, "connection") == "1 connection"
    assert [counted(number, "job") for number in (0, 2)] == ["0 jobs", "2 jobs"]
