# SPDX-License-Identifier: BSD-2-Clause
"""Runs of the testbed that end early, or before anything is done, and what they leave behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from netns.backends_here import PARAMETERS, RUNNABLE, why_not
from netns.runs import CUBIC_RENO, command_line, run_id, table, write
from support import procfs
from support.waiting import wait_for

from mltcp_tools.base.errors import UsageError
from mltcp_tools.kernel.backends import get_backend
from mltcp_tools.lab.experiments.reading import load_experiment
from mltcp_tools.lab.experiments.variants import ALONE
from mltcp_tools.lab.testbed.leftovers import LOCKS
from mltcp_tools.lab.testbed.namespaces import NAMESPACES, PREFIX, inside
from mltcp_tools.lab.testbed.run_experiment import run_experiment

ENDLESS = ("--iterations", "100000", "--no-alone", "--variants", "cubic")


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    return write(tmp_path, CUBIC_RENO)


@contextlib.contextmanager
def running(experiment: Path, folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A run in another process, ended hard if the test didn't end it."""
    command = command_line("run", str(experiment), "-o", str(folder), *options)
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        with process:
            try:
                yield process
            finally:
                process.kill()
    finally:
        subprocess.run(command_line("clean"), check=True, capture_output=True)


def namespaces(run: str) -> list[str]:
    return sorted(path.name for path in NAMESPACES.glob(f"{PREFIX}{run}-*"))


def emulators(pid: int) -> dict[str, int]:
    """The emulators under process `pid`: pids by role, `server` or the job's name."""
    found = {}
    for child in procfs.children(pid):
        words = procfs.command(child)
        if "server" in words:
            found["server"] = child
        for word in words:
            if word.startswith("--job="):
                found[word.removeprefix("--job=")] = child
    return found


def all_jobs_run(process: subprocess.Popen[str]) -> dict[str, int]:
    """Wait until all jobs of the run have been started, and return the emulators' pids."""
    return wait_for(
        lambda: found if len(found := emulators(process.pid)) == 4 else {}, "running jobs"
    )


def sent_bytes(run: str) -> int:
    """Bytes that have left through the bottleneck of a run's present variant."""
    with inside(f"{PREFIX}{run}-router"):
        for line in Path("/proc/thread-self/net/dev").read_text().splitlines():
            name, _, counters = line.partition(":")
            if name.strip() == "bottleneck":
                return int(counters.split()[8])
    return 0


def alive(pid: int) -> bool:
    return procfs.state(pid) not in ("", "Z")


def test_an_interrupted_run_keeps_its_tables_and_nothing_else(
    experiment: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    with running(experiment, folder, "--iterations", "100000") as process:
        wait_for((folder / "iterations.csv").exists, "finished variant")
        pids = all_jobs_run(process).values()
        run = run_id(process.pid)
        assert namespaces(run)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGTERM)  # impatience must not cut the clearing up in half
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert namespaces(run) == []
    assert not any(alive(pid) for pid in pids)
    assert not (LOCKS / f"{run}.lock").exists()
    assert (table(folder, "iterations")["variant"] == ALONE).sum() == 6
    assert json.loads((folder / "environment.json").read_text())["outcome"] == "interrupted"


@pytest.mark.parametrize("name", PARAMETERS)
def test_what_a_killed_run_leaves_is_removed(tmp_path: Path, name: str) -> None:
    backend = get_backend(name)
    before = backend.status()
    experiment = write(tmp_path, "mltcp: {cc: mltcp}")
    options = ("--iterations", "100000", "--no-alone", "--backend", name)
    with running(experiment, tmp_path / "run", *options) as process:
        pids = all_jobs_run(process).values()
        wait_for(lambda: len(backend.jobs()) >= len(before.jobs) + 3, "jobs in the kernel")
        run = run_id(process.pid)
        process.kill()
        process.wait()
        wait_for(lambda: not any(alive(pid) for pid in pids), "end of the emulators")
        assert "mltcp" in backend.status().loaded
        left = namespaces(run)
        assert len(left) == 5
        clean = command_line("clean", "--json")
        done = subprocess.run(clean, capture_output=True, text=True, check=True)
        after = backend.status()
    assert {f"namespace {each}" for each in left} <= set(json.loads(done.stdout)["removed"])
    assert (namespaces(run), (LOCKS / f"{run}.lock").exists()) == ([], False)
    assert (after.loaded, after.jobs) == (before.loaded, before.jobs)


@pytest.mark.skipif("bpf" not in RUNNABLE, reason=why_not("bpf"))
def test_name_unknown_to_backend_ends_run_before_any_change(tmp_path: Path) -> None:
    experiment = load_experiment(write(tmp_path, "mltcp: {cc: mltcp_int}"))
    with pytest.raises(UsageError, match="kmod backend has no mltcp_int"):
        run_experiment(experiment, tmp_path / "run", backend="kmod")
    assert not get_backend("bpf").is_present()


def test_two_runs_at_once_and_clean_in_between(experiment: Path, tmp_path: Path) -> None:
    with (
        running(experiment, tmp_path / "one", "--repetitions", "1") as one,
        running(experiment, tmp_path / "two", "--repetitions", "1") as two,
    ):
        for process in (one, two):
            wait_for(partial(run_id, process.pid), "run")
            subprocess.run(command_line("clean"), check=True, capture_output=True)
        said = [process.communicate(timeout=120)[1] for process in (one, two)]
        assert (one.returncode, two.returncode) == (0, 0), said
        assert "another run is active on this host (process " in "".join(said)
    for name in ("one", "two"):
        assert len(table(tmp_path / name, "iterations")) == 2 * 27 + 6


@pytest.mark.parametrize(
    ("role", "sentence"),
    [
        ("server", "The emulator of the receiver was killed by SIGKILL before it was done."),
        ("job-2", "The emulator of job-2 was killed by SIGKILL before it was done."),
    ],
)
def test_failing_emulator_ends_run_and_keeps_measurements(
    experiment: Path, tmp_path: Path, role: str, sentence: str
) -> None:
    folder = tmp_path / "run"
    with running(experiment, folder, *ENDLESS) as process:
        pids = all_jobs_run(process)
        run = run_id(process.pid)
        wait_for(lambda: sent_bytes(run) > 2_000_000, "some iterations")
        os.kill(pids[role], signal.SIGKILL)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 1, errors
    assert sentence in errors
    assert "Traceback" not in errors
    assert namespaces(run) == []
    assert not any(alive(pid) for pid in pids.values())
    measured = table(folder, "iterations").groupby("job")["iteration"].max()
    assert set(measured.index) == {"job-1", "job-2", "other"} - {role}
    assert json.loads((folder / "environment.json").read_text())["outcome"] == sentence


@pytest.mark.parametrize("arguments", [("run", "two-jobs", "-o", "FOLDER"), ("clean",)])
def test_missing_privileges_are_named_before_anything_is_done(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    folder = tmp_path / "run"
    command = command_line(*(word.replace("FOLDER", str(folder)) for word in arguments))
    done = subprocess.run(
        ["setpriv", "--bounding-set", "-net_admin", *command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "CAP_NET_ADMIN is missing; run it as root" in done.stderr
    assert not folder.exists()
