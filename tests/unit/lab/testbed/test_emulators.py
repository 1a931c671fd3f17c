# SPDX-License-Identifier: BSD-2-Clause
"""The emulator's processes as the testbed starts and drives them, over loopback."""

from __future__ import annotations

from mltcp_tools.kernel.host.signals import Signals
from mltcp_tools.lab.emulator.job import JobSpec
from mltcp_tools.lab.experiments.tasks import Task
from mltcp_tools.lab.testbed.emulators import Emulators, Measured, Place


def run(*tasks: Task) -> tuple[Measured, dict[str, int], list[str]]:
    """Return what was measured, the sockets that each job sent by, and whose iterations ended."""
    sockets: dict[str, int] = {}
    ended: list[str] = []

    def prepare(task: Task, fds: object) -> None:
        sockets[task.name] = len(list(fds))  # type: ignore[call-overload]

    place = Place([None], None, "127.0.0.1")
    with (
        Signals() as signals,
        Emulators(place, signals, prepare=prepare, on_iteration=ended.append) as emulators,
    ):
        return emulators.run(tasks), sockets, ended


def test_jobs_run_to_their_end_and_say_what_they_measured() -> None:
    spec = JobSpec(100_000, 0.01, 3, flows=2, cc="reno")
    measured, sockets, ended = run(Task("a", 0, spec, 5), Task("b", 0, spec))
    assert measured.failure is None
    assert {name: len(each["iterations"]) for name, each in measured.documents.items()} == {
        "a": 3,
        "b": 3,
    }
    assert measured.documents["a"]["job"] == "a"
    assert sockets == {"a": 2, "b": 2}
    assert sorted(ended) == ["a"] * 3 + ["b"] * 3


def test_what_ends_a_job_early_is_told() -> None:
    measured, _, _ = run(Task("a", 0, JobSpec(100_000, 0.01, 3, cc="nosuch")))
    assert "no congestion control 'nosuch'" in str(measured.failure)
