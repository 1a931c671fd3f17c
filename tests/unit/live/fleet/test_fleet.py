"""`mltcp fleet` asks what agents publish, and ends as a gate of deployments needs it."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.watched_backend import WatchedBackend

from mltcp_tools.cli.main import main
from mltcp_tools.errors import MltcpError
from mltcp_tools.kernel.backends.base import Job, Status
from mltcp_tools.live.agent.metrics import Metrics
from mltcp_tools.live.fleet.published import fetch, read
from mltcp_tools.live.observe.view import Gain, JobView


class Loaded(WatchedBackend):
    def __init__(self, build: str, own: str) -> None:
        super().__init__([Job(1, "gpt2")], [], [])
        self._build, self._own = build, own

    def status(self) -> Status:
        names = ("mltcp",) if self._build else ()
        return Status("told", names, {}, (), {}, build=self._build)

    def build_here(self) -> str:
        return self._own


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return f"127.0.0.1:{found.getsockname()[1]}"


@contextlib.contextmanager
def agent(build: str = "1+a", own: str = "1+a", **of_job: Any) -> Iterator[str]:
    """The address of an agent that publishes a job."""
    address = free_address()
    with Metrics(address, Loaded(build, own)) as metrics:
        job = {"flows": 4, "iterations": 9, "iteration_s": 0.5, "first_s": 0.5, "best_s": 0.5}
        metrics.show(
            [JobView(1, "gpt2", **job | {"overlap": 0.1, "metadata": None} | of_job)], [], 1.0
        )
        yield address


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[dict[str, Any]], str]:
    capsys.readouterr()
    code = main(["fleet", *words, "--json"])
    out, err = capsys.readouterr()
    return code, json.loads(out), err


def test_a_fleet_that_is_well_opens_the_gate(capsys: pytest.CaptureFixture[str]) -> None:
    with agent(gain=Gain(0.05, 0.02, 0.08, 0.01, 9)) as one, agent() as two:
        code, seen, err = shown(capsys, one, two, one)
        assert main(["fleet", one, two]) == 0
    assert (code, err) == (0, "")
    assert [(each["host"], each["build"], each["alarms"]) for each in seen] == [
        (one, "1+a", []),
        (two, "1+a", []),
    ]
    assert seen[0]["jobs"][0]["gain"] == 0.05
    table = capsys.readouterr().out
    assert "gpt2      4     -  +5.0% [2.0, 8.0]" in table


@pytest.mark.parametrize(
    ("how", "alarm"),
    [
        ({"build": "1+b", "own": "1+a"}, "stale: 1+b is loaded, and the agent has 1+a"),
        ({"build": ""}, "stale: nothing is loaded, and the agent has 1+a"),
        ({"build": "1+b", "own": "1+b"}, "differs: most hosts (2 of 4) run told 1+a"),
        ({"overlap": 0.7}, "collides: the bursts of gpt2 meet others'"),
        ({"gain": Gain(-0.05, -0.08, -0.02, 0.01, 8)}, "slower: gpt2 is slower with mltcp"),
    ],
)
def test_each_alarm_closes_it(
    capsys: pytest.CaptureFixture[str], how: dict[str, Any], alarm: str
) -> None:
    with agent() as one, agent() as two, agent(**how) as odd, agent(build="") as unloaded:
        code, seen, err = shown(capsys, one, two, odd, *([unloaded] if "differs" in alarm else []))
    assert code == 1
    assert seen[0]["alarms"] == seen[1]["alarms"] == []
    assert seen[2]["alarms"][0].startswith(alarm)
    assert odd in err


def test_too_few_rounds_are_no_alarm(capsys: pytest.CaptureFixture[str]) -> None:
    with agent(gain=Gain(-0.05, -0.08, -0.02, 0.01, 7)) as one:
        assert shown(capsys, one)[0] == 0


def test_lost_events_are_an_alarm_for_five_minutes(capsys: pytest.CaptureFixture[str]) -> None:
    alarm = "lost: {} iterations in 5 minutes came faster than they were read"
    address = free_address()
    with Metrics(address, Loaded("1", "1")) as metrics:

        def alarms(now_s: float) -> tuple[int, list[str]]:
            metrics.show([], [], now_s)
            code, seen, _ = shown(capsys, address)
            return code, seen[0]["alarms"]

        metrics.lost(3)
        assert alarms(1000.0) == (1, [alarm.format(3)])
        metrics.lost(2)
        assert alarms(1200.0) == (1, [alarm.format(5)])
        assert alarms(1301.0) == (1, [alarm.format(2)])
        assert alarms(1501.0) == (0, [])
        assert "mltcp_agent_events_lost_total 5.0" in fetch(address)


def test_a_host_that_does_not_answer_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    nobody = free_address()
    with agent() as one:
        code, seen, err = shown(capsys, one, nobody)
    assert code == 1
    assert seen[1]["alarms"] == ["unreachable: Connection refused"]
    assert f"1 of 2 hosts not well: {nobody}" in err


@pytest.mark.parametrize("text", ["", "<html>", "up 1\n", "a{b} c d\n"])
def test_what_is_no_agent_is_told(text: str) -> None:
    with pytest.raises(MltcpError, match="what answers"):
        read("one", text)


@pytest.mark.parametrize(
    "text",
    [
        "mltcp_backend_info 1\n",
        'mltcp_backend_info{build="1"} 1\nmltcp_backend_stale 1\n',
        'mltcp_backend_info{build="1",backend="bpf"} 1\nmltcp_job_flows 2\n',
        'mltcp_backend_info{build="1",backend="bpf"} 1\nmltcp_job_flows{training_job="a"} NaN\n',
        'mltcp_backend_info{build="1",backend="bpf"} 1\nmltcp_job_flows{training_job="a"} +Inf\n',
    ],
)
def test_metrics_that_lie_are_no_agents(text: str) -> None:
    with pytest.raises(MltcpError, match="other metrics than agents"):
        read("one", text)


def test_over_ssh_failures_are_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text(
        '#!/bin/sh\ncase $1 in\ndown) echo "no route" >&2; exit 255;;\n'
        'old) echo "mltcp: error: No such command" >&2; exit 2;;\n*) echo nonsense;; esac\n'
    )
    ssh.chmod(0o755)
    code, seen, _ = shown(capsys, "--over-ssh", f"--ssh={ssh}", "down", "old", "odd")
    assert code == 1
    assert [each["alarms"][0].removeprefix("unreachable: ") for each in seen] == [
        "no route",
        "No such command",
        "what answers publishes no metrics",
    ]
    code, found, _ = shown(capsys, "unload", f"--ssh={ssh}", "down", "odd")
    assert code == 1
    assert "error" in found[0]
    assert "older" in found[1]["error"]
    assert main(["fleet", "--over-ssh", "--ssh=no-such-program", "one"]) == 3
