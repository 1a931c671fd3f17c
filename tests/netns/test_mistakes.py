# SPDX-License-Identifier: BSD-2-Clause
"""Mistakes end in one sentence, and leave nothing behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from netns.backends_here import RUNNABLE, why_not
from netns.runs import run_id
from support import procfs
from support.waiting import wait_for

from mltcp_tools.kernel.backends import get_backend
from mltcp_tools.lab.testbed.backend import try_lock
from mltcp_tools.lab.testbed.leftovers import LOCKS
from mltcp_tools.lab.testbed.namespaces import NAMESPACES, PREFIX

EXPERIMENT = """\
name: small
link: {rate: 100mbit, queue: 30kB}
jobs: [{name: job, count: 2, bytes: 100kB, compute: 20ms, jitter: 10%, start: random}]
variants: {reno: {cc: reno}, OTHER}
iterations: ITERATIONS
repetitions: 1
alone: {iterations: 2}
"""
RUN = (sys.executable, "-m", "mltcp_tools.cli.main", "testbed", "run")
DEMO = Path(__file__).parents[2] / "scripts" / "demo"


def write(folder: Path, iterations: int = 4, other: str = "cubic: {cc: cubic}") -> Path:
    path = folder / "small.yaml"
    text = EXPERIMENT.replace("ITERATIONS", str(iterations)).replace("OTHER", other)
    path.write_text(text)
    return path


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    before = left()
    yield
    assert left() <= before


def left() -> set[str]:
    """Namespaces and marks of dead runs, and what is loaded while no run lives."""
    living = {path.stem for path in LOCKS.glob("*.lock") if lives(path)}
    found = {path.name for path in LOCKS.glob("*.lock") if path.stem not in living}
    found |= {
        path.name
        for path in NAMESPACES.glob(f"{PREFIX}*")
        if path.name.removeprefix(PREFIX).partition("-")[0] not in living
    }
    if not living:
        found |= {name for each in RUNNABLE for name in get_backend(each).status().loaded}
    return found


def lives(mark: Path) -> bool:
    """Return whether the run with this mark holds it."""
    with contextlib.suppress(FileNotFoundError), open(mark) as file:
        return not try_lock(file.fileno())
    return False


def in_mounts_of_its_own(mounts: str, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command after these mounts, which nobody else sees."""
    script = f'set -e; {mounts}; exec "$@"'
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", *command], capture_output=True, text=True
    )


def the_sentence(done: subprocess.CompletedProcess[str], code: int) -> str:
    """The one sentence of a command that ended so."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    (sentence,) = [each for each in done.stderr.splitlines() if each.startswith("mltcp: error: ")]
    return sentence


@pytest.mark.skipif("bpf" not in RUNNABLE, reason=why_not("bpf"))
@pytest.mark.parametrize(
    ("mounts", "said"),
    [
        ("mount -t tmpfs none /sys/kernel/btf", "The kernel has no BTF"),
        ("umount /sys/fs/bpf", "No BPF file system is mounted at /sys/fs/bpf"),
    ],
)
def test_a_kernel_that_lacks_what_bpf_takes(tmp_path: Path, mounts: str, said: str) -> None:
    path, folder = write(tmp_path, other="mltcp: {cc: mltcp}"), tmp_path / "run"
    done = in_mounts_of_its_own(mounts, *RUN, path, "-o", folder, "--backend", "bpf")
    assert said in the_sentence(done, 3)


@pytest.mark.parametrize(
    ("size", "said"), [("8k", "{}/run/"), ("64k", "The report can't be written to {}/run")]
)
def test_no_space_left(tmp_path: Path, size: str, said: str) -> None:
    path, full = write(tmp_path), tmp_path / "full"
    full.mkdir()
    mounts = f"mount -t tmpfs -o size={size} none {full}"
    look = ("sh", "-c", f'"$@"; code=$?; find {full} -name ".*" >&2; exit $code', "sh")
    done = in_mounts_of_its_own(mounts, *look, *RUN, path, "-o", full / "run")
    sentence = the_sentence(done, 1)
    assert sentence.startswith(f"mltcp: error: {said.format(full)}")
    assert sentence.endswith("No space left on device.")
    assert done.stderr.splitlines()[-1] == sentence  # and no file that was begun


def test_no_root_for_the_demo() -> None:
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--clear-groups", DEMO], capture_output=True, text=True
    )
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert "need root; run: sudo scripts/demo" in done.stderr


def test_an_interrupted_demo_names_what_it_measured(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with subprocess.Popen(
        [DEMO, "-o", folder, "--variants", "cubic,reno", "--iterations", "100000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as demo:
        try:
            wait_for((folder / "iterations.csv").exists, "a variant", beside=demo)
            os.killpg(demo.pid, signal.SIGINT)  # as a terminal does
            _, errors = demo.communicate(timeout=300)
        finally:
            demo.kill()
    assert demo.returncode == 130, errors
    assert "Traceback" not in errors
    assert f"what was measured until then: mltcp report {folder}" in errors


# Phases of a run, each known by what there is then.
PHASES: dict[str, Callable[[Path, int], object]] = {
    "the lock": lambda folder, pid: run_id(pid),
    "namespaces": lambda folder, pid: list(NAMESPACES.glob(f"{PREFIX}{run_id(pid) or 'none'}-*")),
    "emulators": lambda folder, pid: procfs.children(pid),
    "a variant": lambda folder, pid: (folder / "iterations.csv").exists(),
}


@pytest.mark.parametrize("phase", PHASES)
def test_ctrl_c_in_every_phase(tmp_path: Path, phase: str) -> None:
    path, folder = write(tmp_path, iterations=100_000), tmp_path / "run"
    other = "mltcp: {cc: mltcp}" if "bpf" in RUNNABLE else "cubic: {cc: cubic}"
    path = write(tmp_path, iterations=100_000, other=other)
    with subprocess.Popen(
        [*RUN, path, "-o", folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            wait_for(lambda: PHASES[phase](folder, process.pid), phase, beside=process)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert errors.splitlines()[-1] == "mltcp: error: interrupted"
