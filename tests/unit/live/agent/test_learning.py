# SPDX-License-Identifier: BSD-2-Clause
"""Views of its jobs that the agent lets others have."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.watched_backend import WatchedBackend

from mltcp_tools.base.errors import HostError
from mltcp_tools.cli import jobs
from mltcp_tools.cli.main import main
from mltcp_tools.kernel.backends.base import Job
from mltcp_tools.live.agent import follow, learning
from mltcp_tools.live.agent.follow import Follower
from mltcp_tools.live.agent.followed import Followed
from mltcp_tools.live.agent.learning import Learning
from mltcp_tools.live.agent.notices import Notices
from mltcp_tools.live.agent.rules import parse_config
from mltcp_tools.live.observe.follower_state import FollowerState, read_ended, read_follower_states


class Present(WatchedBackend):
    def is_present(self) -> bool:
        return True


def test_who_asks_late_how_a_job_went_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (rule,) = parse_config("rules: [{job: slurm-7, cgroup: [a]}]", "agent.yaml").rules
    monkeypatch.setattr(jobs, "read_follower_states", lambda: read_follower_states(tmp_path))
    monkeypatch.setattr(jobs, "read_ended", lambda: read_ended(tmp_path))

    def told() -> str:
        assert main(["status", "jobs", "--mine", "--job", "slurm-7"]) == 0
        return capsys.readouterr().out

    job = Job(1, "slurm-7")
    followed = {"slurm-7": Followed(job, rule, os.geteuid())}
    backend = Present([job], [], [])
    known = Learning(followed, backend, Notices(print))
    with FollowerState(tmp_path) as known._follower_state:
        known.show(1.0)
        assert told() == "slurm-7: 0 connections; no iterations were seen.\n"
        backend.jobs().clear()
        known.end(followed.pop("slurm-7"), 2.0)
        known.show(3.0)
        assert told() == "slurm-7: ended; no iterations were seen.\n"
        known.show(300.0)
        assert told() == ""


def test_a_follower_that_is_killed_while_it_gets_ready_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its follower's state, by which one sees that, is there before anything that takes its
    time."""
    seen: list[str] = []

    def get_ready(*_: object) -> None:
        seen.extend(each.name for each in tmp_path.iterdir())
        raise HostError("no way to notice new connections")

    monkeypatch.setattr(learning, "FollowerState", lambda: FollowerState(tmp_path))
    monkeypatch.setattr(follow, "open_wakeups", get_ready)
    with pytest.raises(HostError), Follower([], Present([], [], []), print):
        pass
    assert seen == [f"{os.getpid()}.json"]
    assert not list(tmp_path.iterdir())
