# SPDX-License-Identifier: BSD-2-Clause
"""The hosts' words, as a trial takes them: names, times, notes, failures, silence."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from mltcp_tools import __version__
from mltcp_tools.base.errors import MltcpError
from mltcp_tools.cli.main import main
from mltcp_tools.live.trial import multihost
from mltcp_tools.live.trial.multihost import AcrossWorld, _Part
from mltcp_tools.live.trial.period import BASE

HOST = f'''
import json, sys, time
AHEAD_S = float(sys.argv[1])
def say(event, **more):
    print(json.dumps({{"event": event}} | more), flush=True)
def iterations(event, *ends):
    now = time.monotonic() + AHEAD_S
    told = [["gpt2", now - each - 0.5, now - each - 0.1, now - each, 1000, 1] for each in ends]
    say(event, now_s=now, iterations=told)
for line in sys.stdin:
    asked = json.loads(line)
    event = asked["event"]
    if event == "begin":
        assert asked["version"] == "{__version__}"
        say("begin", jobs=["gpt2"], base="reno")
    elif event == "learn":
        iterations("learn", 2.0, 1.5)
        say("alive")
        iterations("iterations", 0.25)
    elif event == "end":
        say("end", notes=["gpt2 opened connections."], retransmits={{"gpt2": int(AHEAD_S) + 7}})
    elif event == "unlike":
        say("unlike", notes=[f"periods {{asked['periods']}} differ."] if AHEAD_S else [])
    elif event != "alive":
        say(event)
'''


@pytest.fixture
def world(tmp_path: Path) -> Iterator[AcrossWorld]:
    """Hosts one and two, the second of which has a clock of its own."""
    script = tmp_path / "host.py"
    script.write_text(HOST)
    with ExitStack() as stack:
        parts = [_Part(name, [sys.executable, str(script), ahead]) for name, ahead in HOSTS.items()]
        yield AcrossWorld([stack.enter_context(each) for each in parts], lambda: False)


HOSTS = {"one": "0", "two": "50000"}


def test_iterations_of_all_hosts_are_in_our_time(world: AcrossWorld) -> None:
    before_s = time.monotonic()
    seen = world.learn()
    assert list(seen) == ["gpt2@one", "gpt2@two"]
    for iterations in seen.values():
        assert [each.duration_s for each in iterations] == pytest.approx([0.5, 0.5])
        assert [each.silent_s for each in iterations] == pytest.approx([0.4, 0.4])
        assert before_s - 2.5 < iterations[0].end_s < time.monotonic() - 2.0
    later = []
    while len(later) < 2:
        later += world.wait()
    assert {job for job, _ in later} == {"gpt2@one", "gpt2@two"}


def test_periods_get_what_their_hosts_counted(world: AcrossWorld) -> None:
    for number in range(2):
        world.switch(BASE)
        assert world.begin_period() == number
        counted = world.end_period(number)
        assert counted.notes == [f"{host}: gpt2 opened connections." for host in HOSTS]
        assert counted.retransmits == {"gpt2@one": 7, "gpt2@two": 50007}
    assert world.unlike(1, 0) == ["two: periods [1, 0] differ."]


def test_silence_ends_a_trial(world: AcrossWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.switch(BASE)
    monkeypatch.setattr(multihost, "SILENCE_S", 0.0)
    time.sleep(0.01)
    with pytest.raises(MltcpError, match="has been silent for"):
        world.wait()


def test_other_versions_and_hosts_out_of_reach_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\necho 'no route to host' >&2\nexit 255\n")
    ssh.chmod(0o755)
    monkeypatch.setenv("MLTCP_SSH", str(ssh))
    assert main(["trial", "--host", "a", "--job", "x"]) == 1
    assert "a: no route to host" in capsys.readouterr().err
    ssh.write_text('#!/bin/sh\nshift\nexec "$@"\n')
    monkeypatch.setattr(multihost, "__version__", "0")
    monkeypatch.setenv("MLTCP_REMOTE", f"{sys.executable} -m mltcp_tools.cli.main")
    assert main(["trial", "--host", "a", "--job", "x"]) == 1
    assert f"this host has mltcp-tools {__version__} and the trial 0" in capsys.readouterr().err
    assert main(["trial"]) == 2
    monkeypatch.setenv("MLTCP_REMOTE", "sudo 'mltcp")
    assert main(["trial", "--host", "a", "--job", "x"]) == 2
    assert "MLTCP_REMOTE in the environment is no command" in capsys.readouterr().err
