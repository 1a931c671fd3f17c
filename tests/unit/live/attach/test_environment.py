# SPDX-License-Identifier: BSD-2-Clause
"""Knowledge of the environments of processes that rename themselves."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mltcp_tools.live.agent.rules import Rule
from mltcp_tools.live.agent.watchlist import Watchlist
from mltcp_tools.live.attach.environment import Environment, Environments, read_environment
from mltcp_tools.live.attach.processes import Process, process
from mltcp_tools.live.attach.selection import Target

SCRIPT = Path(__file__).parents[3] / "support" / "renaming.py"
NAME = "MLTCP_ATTACH"


class Renaming:
    def __init__(self, *words: str, through: tuple[str, ...] = (), **environment: str) -> None:
        self._child = subprocess.Popen(
            [*through, sys.executable, SCRIPT, *words],
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.answer() == "ready"

    def now(self) -> Process:
        return process(self._child.pid)

    def answer(self) -> str:
        assert self._child.stdout
        return self._child.stdout.readline().strip()

    def ask(self, line: str) -> str:
        assert self._child.stdin
        self._child.stdin.write(line + "\n")
        self._child.stdin.flush()
        return self.answer()

    def end(self) -> None:
        self._child.kill()
        self._child.communicate()


@contextlib.contextmanager
def renaming(*words: str, **environment: str) -> Iterator[Renaming]:
    found = Renaming(*words, **environment)
    try:
        yield found
    finally:
        found.end()


def seen(*found: Process) -> Environments:
    environments = Environments()
    environments.see(found, [NAME])
    return environments


@pytest.mark.parametrize("said", ["on", "off"])
def test_first_answer_survives_any_number_of_titles(said: str) -> None:
    with renaming(MLTCP_ATTACH=said) as job:
        environments = seen(job.now())
        for title in ("ray::IDLE", "MLTCP_ATTACH=on", "x" * 200, "x" * 5000, "ray::IDLE"):
            assert job.ask(title) == "renamed"
            environments.see([job.now()], [NAME])
            environments.keep([job.now()])
            assert environments.get(job.now(), NAME) == said
        environments.keep([])
        assert environments.get(job.now(), NAME) is None


@pytest.mark.parametrize("title", ["VLLM::Worker_TP0", "x" * 5000, "long"])
def test_overwritten_environment_is_unknown_not_absent(title: str) -> None:
    with renaming(MLTCP_ATTACH="off") as job:
        job.ask(title)
        assert seen(job.now()).get(job.now(), "NO_SUCH_VARIABLE") is None
        found = read_environment(job.now().pid)
        assert found is not None
        assert found.get("NO_SUCH_VARIABLE") is None
    with renaming() as job:
        assert seen(job.now()).get(job.now(), NAME) == ""


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"", ""),
        (b"A=1\0MLTCP_ATTACH=off\0", "off"),
        (bytes(100), None),
        (b"\0A=1\0", None),
        (b"A=1\0" + bytes(20), None),
        (b"tle\0A=1\0MLTCP_ATTACH=off\0", "off"),
        (b"A=1\0MLTCP_ATTACH=of", None),
        (b" " * 50, None),
    ],
)
def test_environment_that_is_whole_or_not(data: bytes, value: str | None) -> None:
    assert Environment(data).get(NAME) == value


def test_fork_of_renamed_process_has_its_first_answer() -> None:
    for said in ("off", ""):
        with renaming(MLTCP_ATTACH=said) as job:
            environments = seen(job.now())
            job.ask("ray::IDLE")
            child = process(int(job.ask("fork")))
            try:
                environments.see([child], [NAME])
                assert environments.get(child, NAME) == said
            finally:
                os.kill(child.pid, 9)


def a_process(job: Renaming, **changes: object) -> Process:
    return dataclasses.replace(job.now(), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("parent", "same", "value"),
    [
        ("on", {}, "on"),
        ("off", {}, "off"),
        ("", {}, None),  # the child alone may have had it
        ("on", {"uid": 4242}, None),
        ("on", {"cgroup": "/elsewhere"}, None),
    ],
)
def test_parent_speaks_for_a_process_of_its_own_job(
    parent: str, same: dict[str, object], value: str | None
) -> None:
    with renaming(MLTCP_ATTACH=parent) as first, renaming(MLTCP_ATTACH="off") as second:
        second.ask("VLLM::Worker_TP0")
        known = a_process(first, cgroup="/job_7") if "cgroup" not in same else first.now()
        own = a_process(second, **({"cgroup": known.cgroup, "ppid": known.pid} | same))
        assert seen(known, own).get(own, NAME) == value


def test_cgroup_speaks_if_all_there_say_the_same() -> None:
    def there(job: Renaming, cgroup: str = "/job_7") -> Process:
        return a_process(job, cgroup=cgroup, ppid=1)

    with (
        renaming(MLTCP_ATTACH="on") as one,
        renaming(MLTCP_ATTACH="on") as two,
        renaming() as silent,
        renaming(MLTCP_ATTACH="off") as gone,
    ):
        gone.ask("ray::IDLE")
        own = there(gone)
        assert seen(own, there(one), there(two)).get(own, NAME) == "on"
        assert seen(own, there(one), there(silent)).get(own, NAME) is None
        assert seen(own, there(silent)).get(own, NAME) is None
        assert seen(own, there(one, "/job_8")).get(own, NAME) is None
        root = there(gone, "/")
        assert seen(root, there(one, "/")).get(root, NAME) is None


def test_environment_of_a_process_that_execs_is_read_anew() -> None:
    code = "import os; input(); os.execvpe('sleep', ['sleep', '4242'], {'MLTCP_ATTACH': 'off'})"
    watchlist = Watchlist([Rule("job", Target(patterns=("4242",)))], [].append)
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as started:
        try:
            while process(started.pid).command[1:2] != ("-c",):
                pass
            watchlist.look(0)
            (watched,) = watchlist
            watched.declined = False
            assert watchlist.environments.get(watched.process, NAME) == ""
            assert started.stdin is not None
            started.stdin.write(b"\n")
            started.stdin.flush()
            while not (now := process(started.pid)).image or now.command[:1] != ("sleep",):
                pass
            watchlist.look(10)
            assert list(watchlist) == [watched]
            assert watched.declined is None
            assert watchlist.environments.get(watched.process, NAME) == "off"
        finally:
            started.kill()
