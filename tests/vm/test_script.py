# SPDX-License-Identifier: BSD-2-Clause
"""scripts/vm itself: what comes out of a VM, and how its ends are told apart."""

from __future__ import annotations

import shutil
import subprocess
import uuid
from pathlib import Path

import pytest
from vm.bridge import QUICK, VM, unavailable
from vms.boot import LOG_PROBLEM, PANIC, QEMU_FAILED, TIMEOUT
from vms.common import CHECKOUT, LACKING

(SUITE,) = QUICK
OFFLINE = ("unshare", "--net")


@pytest.fixture(autouse=True)
def _vms_can_be_had() -> None:
    if reason := unavailable(SUITE):
        pytest.skip(reason)


def start(*words: str, options: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [VM, "run", SUITE, *options, "--", *words],
        cwd=CHECKOUT / "tests",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(*words: str, options: tuple[str, ...] = ()) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of a command in a VM."""
    with start(*words, options=options) as process:
        out, err = process.communicate()
    return process.returncode, out, err


def test_a_command_runs_in_the_checkout_and_its_files_stay() -> None:
    name = f".cache/vm/{uuid.uuid4().hex}"
    script = f"uname -r; pwd; seq 50000; echo complaint >&2; echo result >../{name}; exit 77"
    try:
        status, out, err = run("sh", "-c", script)
        release, folder, *numbers = out.splitlines()
        assert status == 77
        assert release.startswith("6.1.")
        assert Path(folder) == CHECKOUT / "tests"
        assert numbers == [str(number) for number in range(1, 50001)]
        assert err == "complaint\n"
        assert (CHECKOUT / name).read_text() == "result\n"
    finally:
        (CHECKOUT / name).unlink(missing_ok=True)


@pytest.mark.full
def test_virtual_time_skips_idle_time_and_testbed_is_in_memory() -> None:
    options = ("--icount", "--timeout", "10min")
    status, out, err = run("sh", "-c", "sleep 900; stat -fc %T ../mltcp_tools", options=options)
    assert (status, out, err) == (0, "tmpfs\n", "")


@pytest.mark.full
def test_a_panic(tmp_path: Path) -> None:
    log = tmp_path / "console.log"
    status, out, err = run(
        "sh",
        "-c",
        "echo before; echo c >/proc/sysrq-trigger; sleep 60",
        options=("--log", str(log)),
    )
    assert status == PANIC
    assert out == "before\n"
    assert f"panicked (sysrq triggered crash); see {log}" in err.splitlines()[-1]
    assert "Kernel panic" in log.read_text()


@pytest.mark.full
def test_a_command_that_never_ends(tmp_path: Path) -> None:
    log = tmp_path / "console.log"
    status, _, err = run("sleep", "1000", options=("--timeout", "15s", "--log", str(log)))
    assert status == TIMEOUT
    assert f"within 15 s; see {log}" in err


@pytest.mark.full
def test_a_kernel_that_complains(tmp_path: Path) -> None:
    log = tmp_path / "console.log"
    script = "echo '<4>WARNING: CPU: 0 PID: 1 at net/x.c:1' >/dev/kmsg; exit 5"
    status, _, err = run("sh", "-c", script, options=("--log", str(log)))
    assert status == LOG_PROBLEM
    complaint, end = err.splitlines()
    assert complaint.endswith("WARNING: CPU: 0 PID: 1 at net/x.c:1")
    assert f"ended with 5, but the kernel's log has problems; see {log}" in end


def test_qemu_that_fails(tmp_path: Path) -> None:
    options = ("--mem", "nonsense", "--log", str(tmp_path / "log"))
    status, _, err = run("true", options=options)
    assert status == QEMU_FAILED
    assert "QEMU failed (1)" in err


def test_without_network_the_cached_kernel_serves() -> None:
    done = subprocess.run([*OFFLINE, VM, "fetch", SUITE], capture_output=True, text=True)
    assert done.returncode == 0
    assert "can't be reached" in done.stderr
    assert f"Using the cached {SUITE} kernel, 6.1." in done.stderr


def test_without_network_and_cache_one_sentence_says_so(tmp_path: Path) -> None:
    for folder in ("scripts", "mltcp_tools"):
        shutil.copytree(CHECKOUT / folder, tmp_path / folder)
    command = [*OFFLINE, tmp_path / "scripts" / "vm", "run", SUITE, "--", "true"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == LACKING
    assert done.stderr.startswith(f"scripts/vm: The kernel of {SUITE} isn't cached and can't be")
    assert "Traceback" not in done.stderr
