# SPDX-License-Identifier: BSD-2-Clause
"""Trials across hosts, which are namespaces with clocks of their own, on live jobs."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from netns.apart import Apart, apart
from netns.backends_here import backend_fixture, fresh_and_loaded
from netns.following import BURST
from netns.test_trial import QUICK, runs, trial
from netns.trainings import training
from support.waiting import wait_for

from mltcp_tools.kernel.backends.base import Backend

backend = backend_fixture(fresh_and_loaded)

TOOL = [sys.executable, "-m", "mltcp_tools.cli.main"]
RECORD = "/run/mltcp/trial/trial.json"
JOBS = ("--job", "job-one", "--job", "job-two")


@contextlib.contextmanager
def jobs(folder: Path) -> Iterator[tuple[dict[str, Apart], list[str]]]:
    """Two hosts with an attached job each, which ran reno, and the options that reach them."""
    with contextlib.ExitStack() as stack:
        hosts, ssh = stack.enter_context(apart(folder, "one", "two", apart_s=10_000))
        for name, host in hosts.items():
            mark = f"mark-{uuid.uuid4().hex}"
            started = stack.enter_context(training(mark, "cc=reno", through=host.enter))
            started.ask("connect")
            started.tell(f"train 100000 0.04 {BURST}")
            attach = ["attach", mark, "--job", f"job-{name}", "--kind", "all"]
            subprocess.run([*host.enter, *TOOL, *attach], check=True)
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("MLTCP_SSH", str(ssh))
        patch.setenv("MLTCP_REMOTE", " ".join(TOOL))
        yield hosts, ["--host", "one,two"]


def is_as_before(backend: Backend, hosts: dict[str, Apart]) -> bool:
    """True: all is attached, and no host has a record of a trial."""
    records = [[*each.enter, "test", "-e", RECORD] for each in hosts.values()]
    left = any(subprocess.run(each).returncode == 0 for each in records)
    return not left and len(backend.flows()) == 4 and runs(backend) == {"mltcp"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_end_of_the_trial_puts_everything_back_on_all_hosts(
    backend: Backend, tmp_path: Path, number: signal.Signals
) -> None:
    with jobs(tmp_path) as (hosts, reach), trial(*reach, *JOBS, *QUICK) as process:
        wait_for(lambda: not runs(backend), "a period without", beside=process)
        process.send_signal(number)
        process.communicate(timeout=60)
        assert process.returncode
        wait_for(lambda: is_as_before(backend, hosts), "everything to be put back")


def test_host_that_reboots_ends_trial_and_others_are_restored(
    backend: Backend, tmp_path: Path
) -> None:
    with jobs(tmp_path) as (hosts, reach), trial(*reach, *JOBS, *QUICK) as process:
        wait_for(lambda: runs(backend) == {"mltcp"}, "all of both", beside=process)
        wait_for(lambda: not runs(backend), "a period without", beside=process)
        network = Path(f"/proc/{hosts['two'].pid}/ns/net").readlink()
        for pid in map(
            int, filter(str.isdecimal, os.listdir("/proc"))
        ):  # its job, its part of the trial and its guardian, at once
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/ns/net").readlink() == network:
                    os.kill(pid, signal.SIGKILL)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 1, err
        assert "two" in err.splitlines()[-1], err
        wait_for(lambda: len(backend.flows()) == 2, "the first host's job")
        assert runs(backend) == {"mltcp"}
        assert subprocess.run([*hosts["one"].enter, "test", "-e", RECORD]).returncode


def test_job_with_same_id_in_other_namespace_stays_attached(
    backend: Backend, tmp_path: Path
) -> None:
    with jobs(tmp_path) as (hosts, _):
        done = subprocess.run(
            [*hosts["one"].enter, *TOOL, "detach", "job-one"],
            check=True,
            capture_output=True,
            text=True,
        )
        assert len(done.stdout.splitlines()) == 2, done.stdout
        assert runs(backend) == {"mltcp"}
        assert len(backend.flows()) == 2
