# SPDX-License-Identifier: BSD-2-Clause
"""A kernel that may not be asked is no kernel without MLTCP: nothing changes, and all say so."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from netns.attached import recorded
from netns.backends_here import fresh_and_loaded
from netns.connected import holder
from netns.trainings import Training
from support.refused_calls import refusing

from mltcp_tools.base.errors import HostError, UnknownError
from mltcp_tools.kernel.backends import struct_ops
from mltcp_tools.kernel.backends.base import Backend
from mltcp_tools.kernel.backends.bpf_sockets import FIRST_PIN
from mltcp_tools.kernel.backends.pins import PIN_ROOT

MLTCP = "import sys; from mltcp_tools.cli.main import main; sys.exit(main(sys.argv[1:]))"

pytestmark = pytest.mark.bpf


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    with fresh_and_loaded("bpf") as found:
        yield found


@pytest.fixture(scope="module")
def attached(backend: Backend) -> Iterator[Training]:
    with holder(2) as found:
        assert mltcp("attach", found.pid, "--job", "a", "--kind", "all").returncode == 0
        yield found
        assert mltcp("detach", "--all").returncode == 0


def mltcp(*arguments: object, code: int | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", MLTCP, *map(str, arguments)]
    through = command if code is None else refusing(*command, code=code)
    return subprocess.run(through, capture_output=True, text=True, timeout=60)


def state_of(backend: Backend, attached: Training) -> tuple[object, ...]:
    return (
        backend.status(),
        sorted(PIN_ROOT.iterdir()),
        FIRST_PIN.exists(),
        struct_ops.registered(),
        recorded(),
        attached.ccs(),
        sorted(each for each in Path("/run/mltcp").rglob("*.json")),
    )


COMMANDS = [
    ("load",),
    ("load", "--replace"),
    ("load", "--ensure"),
    ("unload",),
    ("unload", "--force"),
    ("unload", "--backend", "bpf"),
    ("unload", "--everything"),
    ("attach", "PID", "--job", "b", "--kind", "all"),
    ("attach", "PID", "--job", "b", "--kind", "all", "--follow"),
    ("detach", "a"),
    ("detach", "--all"),
    ("status", "--check"),
    ("agent", "--config", "RULES"),
    ("trial", "--job", "a", "--phase-time", "6s"),
    ("watch",),
    ("lab", "record", "--duration", "1s", "-o", "RUN"),
    ("status", "flows"),
    ("status", "jobs"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_refused_bpf_calls_change_nothing(
    backend: Backend, attached: Training, command: tuple[str, ...], tmp_path: Path
) -> None:
    rules = tmp_path / "agent.yaml"
    rules.write_text(mltcp("agent", "--print", "rules").stdout)
    places = {"PID": attached.pid, "RULES": rules, "RUN": tmp_path / "run"}
    before = state_of(backend, attached)
    run = mltcp(*(places.get(each, each) for each in command), code=errno.EPERM)
    assert run.returncode == UnknownError.exit_code, run
    assert run.stderr.count("A seccomp profile refuses bpf()") == 1, run
    assert "mltcp: error: " in run.stderr
    assert state_of(backend, attached) == before


@pytest.mark.parametrize("code", [errno.EACCES, errno.ENOSYS, errno.EMFILE, errno.ENOMEM])
@pytest.mark.parametrize("command", [("load",), ("unload", "--force"), ("detach", "--all")])
def test_failing_bpf_calls_change_nothing(
    backend: Backend, attached: Training, command: tuple[str, ...], code: int
) -> None:
    before = state_of(backend, attached)
    run = mltcp(*command, code=code)
    assert run.returncode == UnknownError.exit_code, run
    assert run.stderr.startswith("mltcp: error: ")
    assert run.stderr.count("\n") == 1
    assert state_of(backend, attached) == before


def test_status_says_that_it_cannot_know(backend: Backend) -> None:
    run = mltcp("status", code=errno.EPERM)
    assert "bpf: A seccomp profile refuses bpf()" in run.stdout
    assert "bpf: nothing is loaded" not in run.stdout


def test_doctor_is_not_ready_where_bpf_is_refused(backend: Backend) -> None:
    run = mltcp("doctor", code=errno.EPERM)
    assert "BPF backend: lacks bpf()" in run.stdout
    assert "A seccomp profile refuses bpf()" in run.stdout


def test_first_algorithms_stay_while_unreadable(backend: Backend, attached: Training) -> None:
    code = "from mltcp_tools.kernel.backends.bpf_sockets import forget_first as f; print(f())"
    run = subprocess.run(
        refusing(sys.executable, "-c", code, code=errno.EMFILE), capture_output=True, text=True
    )
    assert run.stdout == "False\n", run
    assert FIRST_PIN.exists()


@pytest.mark.parametrize(
    "command",
    [("load",), ("load", "--replace"), ("unload", "--force"), ("unload", "--everything")],
    ids=" ".join,
)
def test_read_only_pins_change_nothing(
    backend: Backend, attached: Training, command: tuple[str, ...]
) -> None:
    before = state_of(backend, attached)
    run = with_read_only_pins(*command)
    assert run.returncode == HostError.exit_code, run
    assert f"{PIN_ROOT.parent} can't be written to" in run.stderr
    assert state_of(backend, attached) == before


def with_read_only_pins(*command: str) -> subprocess.CompletedProcess[str]:
    pins = PIN_ROOT.parent
    script = f'mount --bind {pins} {pins} && mount -o remount,bind,ro {pins} && exec "$@"'
    through = ["unshare", "--mount", "sh", "-c", script, "-", sys.executable, "-c", MLTCP]
    return subprocess.run([*through, *command], capture_output=True, text=True)
